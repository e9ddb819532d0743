"""Collections to search: who answers is told by the words; the distilled table says what the
encoder says.
"""

import json
from pathlib import Path

import pytest

from classroom.town import searches
from course_lib.analysis.retrieval import words
from course_lib.errors import CourseError


@pytest.fixture(scope="module")
def town() -> searches.Collection:
    return searches.collection("world", split="test", n=60)


def test_a_deed_is_a_verb_and_one_thing() -> None:
    text = (
        "At noon, Kate purchased the lamp. Did Ben buy the vase? Ben did not buy the vase. The coin"
        " was bought."
    )
    assert searches.deeds(text) == [
        ("kate", "purchased", "buy", "lamp"),
        ("", "bought", "buy", "coin"),
    ]


def test_queries_are_what_their_kind_says(town: searches.Collection) -> None:
    assert {query.kind for query in town.queries} == set(searches.KINDS)
    for query in town.queries:
        asked = set(words(query.text))
        assert query.passage in query.answers
        for answer in query.answers:
            shared = asked & set(words(town.passages[answer]))
            if query.kind == "other words":
                assert not shared
            elif query.kind == "name, other words":
                assert shared == {words(query.text)[0]}
        if query.kind == "same words":
            assert asked <= set(words(town.passages[query.passage]))


def test_nothing_else_answers(town: searches.Collection) -> None:
    for query in (q for q in town.queries if q.kind == "same words"):
        meaning, thing = words(query.text)
        for number, passage in enumerate(town.passages):
            told = {(deed.verb, deed.thing) for deed in searches.deeds(passage)}
            assert number in query.answers or (meaning, thing) not in told


def test_the_splits_ask_of_different_documents(town: searches.Collection) -> None:
    other = searches.collection("world", split="train", n=60)
    assert not set(town.passages) & set(other.passages) and town == searches.collection(
        "world", split="test", n=60
    )


def test_other_texts_are_asked_for_by_their_first_sentence(tmp_path: Path) -> None:
    texts = [f"Title number {i}. {'word ' * 90}end{i}. It rains." for i in range(9)]
    (tmp_path / "train.jsonl").write_text(
        "\n".join(json.dumps({"text": text}) for text in texts), "utf-8"
    )
    found = searches.collection(tmp_path / "train.jsonl")  # a file has no test split
    asked = [query.text for query in found.queries]
    assert [text for text in asked if "Title" in text] == [f"Title number {i}." for i in range(9)]
    assert all(len(passage.split()) <= searches.LONGEST for passage in found.passages)
    assert all(query.text in found.passages[query.passage] for query in found.queries)
    # no word is lost
    assert " ".join(found.passages).split() == " ".join(texts).split()
    (tmp_path / "bad.txt").write_text("One sentence only", "utf-8")
    with pytest.raises(CourseError, match="nothing to search"):
        searches.collection(tmp_path / "bad.txt", split="train")


def test_two_words_of_a_passage() -> None:
    passages = searches.collection("tasks/search").passages[:20]
    for query in searches.two_words(passages, seed=1).queries:
        assert len(query.text.split()) == 2
        assert set(query.text.split()) <= set(words(passages[query.passage]))


def test_each_order_names_one_part() -> None:
    shop = searches.part_numbers(30)
    for query in shop.queries:
        number = query.text.split()[-1].rstrip(".")
        assert [i for i, part in enumerate(shop.passages) if number in part] == [query.passage]


def test_what_was_written_for_the_course() -> None:
    found = searches.collection("tasks/search")
    assert len(found.passages) == len(found.topics)
    by_question = {query.text: query for query in found.queries}
    query = by_question["when should I replace a bicycle chain"]
    (answer,) = query.answers
    assert query.passage == answer and found.topics[answer] == "bike"
    assert "chain" in found.passages[answer]
