"""The English that was written for the course: whole, and no row in two parts."""

import json

import pytest

from course_lib import data
from course_lib.data.sources import SHIPPED, TASKS
from course_lib.files import DATA

PARTS = ("train", "validation", "test")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_opens_by_its_name_and_no_row_is_in_two_parts(name: str) -> None:
    seen: set[str] = set()
    for part in PARTS:
        rows = data.task(f"tasks/{name}", split=part)
        keys = {json.dumps([row.get("text"), row.get("pair"), row.get("tokens")]) for row in rows}
        assert len(keys) == len(rows) > 0
        assert not keys & seen
        seen |= keys


def test_the_parts_of_a_task_have_the_same_classes_equally_often() -> None:
    for name, classes in (("sentiment", 2), ("inference", 3)):
        for part in PARTS:
            labels = data.task(f"tasks/{name}", split=part)["label"]
            counts = [list(labels).count(label) for label in range(classes)]
            assert min(counts) == max(counts)


def test_an_answer_stands_where_its_question_says() -> None:
    paragraphs: dict[str, str] = {}
    for part in PARTS:
        for row in data.task("tasks/questions", split=part):
            start = row["start"]
            assert row["pair"][start : start + len(row["answer"])] == row["answer"]
            assert paragraphs.setdefault(row["pair"], part) == part


def test_the_queries_name_paragraphs_that_exist() -> None:
    folder = DATA / "tasks" / "search"
    read = [json.loads(line) for line in (folder / "paragraphs.jsonl").open(encoding="utf-8")]
    ids = {row["id"] for row in read}
    assert len(ids) == len(read) == len({row["text"] for row in read})
    for line in (folder / "queries.jsonl").open(encoding="utf-8"):
        assert set(json.loads(line)["relevant"]) <= ids


def test_the_texts_are_a_corpus_in_the_order_that_seed_0_draws() -> None:
    texts = {part: data.corpus("text", split=part)["text"][:] for part in PARTS}
    assert not set(texts["train"]) & set(texts["test"])
    assert data.corpus("text", n=20)["text"][:] == texts["train"][:20]
    with (SHIPPED["text"] / "train.jsonl").open(encoding="utf-8") as file:
        registers = [json.loads(line)["register"] for line in file]
    assert len(set(registers[:20])) > 5  # mixed, so that a sample has many registers
