"""The difficulty table: what a baseline says, which cells are measured again, and when a model is
ahead.
"""

import json
from dataclasses import replace

import pytest
import torch

from classroom.records.figures import figure
from classroom.town import World
from course_lib import zoo
from lab.town import tasks
from lab.town.hiding import word_scores
from lab.town.tasks import Cell, Grid, Hyperparameters, ahead, cells, measure, record
from lab.town.views import bag_of_words, majority, probed, view

TINY = Hyperparameters(
    batch=(4, 4),
    choices=(2, 2),
    epochs=(1, 1),
    choice_epochs=(1, 1),
    target_epochs=(1, 1),
    test_rows=6,
)


@pytest.fixture
def grid(tmp_path):
    return Grid(TINY, work=tmp_path)


def test_views():
    kinds = {
        "sentiment": ("single", "accuracy"),
        "rte": ("pair", "accuracy"),
        "similarity": ("pair", "pearson"),
        "pos": ("tagging", "accuracy"),
        "entities": ("tagging", "entity_f1"),
        "questions": ("span", "exact_match"),
        "questions-open": ("pair", "accuracy"),
        "retrieval": ("choice", "accuracy"),
        "cloze": ("choice", "accuracy"),
        "translation": ("target", "tokens"),
        "arithmetic": ("target", "exact"),
    }
    assert {name: (view(name).kind, view(name).metric) for name in kinds} == kinds
    assert view("cloze").rows(3, "train", 0) == view("cloze").rows(5, "train", 0)[:3]


def test_the_right_passage_stands_where_the_label_says():
    rows = view("retrieval").rows(20, "train", 0)
    raw = World(0).task("retrieval", 20)
    assert all(
        row["choices"][row["label"]] == old["positive"] for row, old in zip(rows, raw, strict=True)
    )
    assert len({row["label"] for row in rows}) == 4


def test_majority():
    what = view("sentiment")
    train = [{"text": "a", "label": 1}] * 3 + [{"text": "b", "label": 0}]
    assert majority(what, train, train) == 0.75
    tags = view("pos")
    rows = [{"tokens": ["a", "b"], "labels": [7, 7]}, {"tokens": ["c"], "labels": [1]}]
    assert (
        majority(tags, rows, rows) == pytest.approx(2 / 3)
        and majority(view("similarity"), train, train) == 0
    )


def test_bag_of_words_learns_what_words_tell():
    rows = [{"text": f"word{i % 2} here", "label": i % 2} for i in range(40)]
    assert bag_of_words(view("sentiment"), rows, rows) == 1
    pairs = [
        {"text": "red blue", "pair": "red blue" if i % 2 else "green", "label": i % 2}
        for i in range(40)
    ]
    assert bag_of_words(view("rte"), pairs, pairs) == 1
    choices = [
        {"text": "x", "choices": ["yes", "no"][:: 1 if i % 2 else -1], "label": 1 - i % 2}
        for i in range(40)
    ]
    assert bag_of_words(view("pronouns"), choices, choices) == 1
    tags = [{"tokens": ["owl", "sleeps"], "labels": [7, 14]}]
    assert bag_of_words(view("pos"), tags, tags) == 1
    spans = [
        {"text": "Who came?", "pair": f"Then {name} came.", "answer": name}
        for name in ("Ann", "Bob", "Cleo", "Dan")
    ]
    assert bag_of_words(view("questions"), spans * 5, spans) == 1
    texts = [{"text": "2 plus 2", "target": "4"}, {"text": "3 minus 1", "target": "2"}]
    assert bag_of_words(view("arithmetic"), texts, texts) == 1


@pytest.mark.parametrize(
    "name", ["rte", "retrieval", "questions", "entities", "similarity", "translation"]
)
@pytest.mark.parametrize("start", tasks.AGAINST | dict.fromkeys(tasks.AGAINST.values(), ""))
def test_a_cell_of_every_kind(grid, name, start):
    if start not in tasks.starts(name):
        pytest.skip("Its answer is no judgement.")
    result = measure(Cell(name, 8, start, 0), grid)
    assert -1 <= result["score"] <= 1 and result["seconds"] >= 0


def test_what_is_done_is_not_done_again(grid):
    cell = Cell("rte", 8, "majority", 0)
    first = measure(cell, grid)
    grid.file(cell).write_text(json.dumps(first | {"score": 0.123}))
    assert measure(cell, grid)["score"] == 0.123
    other = replace(grid, settings=replace(TINY, lr=1e-3))
    assert measure(cell, other)["score"] == first["score"]  # another recipe is another cell


def test_record(grid):
    table = cells(["rte"], [8], 2)
    values = record(table, grid)
    row = values["tasks"]["rte"]["8"]
    assert len(row["pretrained"]["seeds"]) == 2 and set(row) == {
        *tasks.STARTS,
        *tasks.ASKED,
        "ahead",
    }
    assert values["seeds"] == [0, 1] and set(values["checkpoints"]) == {"bert-mini", "gpt-mini"}


def test_who_is_ahead():
    def found(values):
        others = dict.fromkeys(
            ("majority", "bag of words", "from scratch", "pretrained"), [0.5] * 3
        )
        return ahead({start: figure(scores) for start, scores in (others | values).items()})

    better = {"pretrained": [0.8, 0.81, 0.82], "from scratch": [0.6, 0.61, 0.62]}
    assert found(better)["clear"]
    words = found(better | {"bag of words": [0.79] * 3})  # words do it nearly as well
    assert not words["clear"] and words["over"] == "bag of words"
    # not with every seed
    assert not found({"pretrained": [0.9, 0.5, 0.7], "from scratch": [0.5, 0.6, 0.5]})["clear"]
    asked = {"asked": [0.7, 0.72, 0.71], "asked from scratch": [0.5, 0.51, 0.52]}
    assert found(asked) == {
        "best": "asked",
        "margin": 0.2,
        "over": "asked from scratch",
        "clear": True,
    }
    # what is asked does not matter, then
    assert not found(asked | {"asked from scratch": [0.69, 0.7, 0.71]})["clear"]


def test_asked_by_its_own_head_bert_mini_tells_who_did_it():
    model, tokenizer, _ = zoo.load("bert-mini")
    texts, told = (
        ["Anna bought the lamp. Owen bought the rug."] * 2,
        ["Anna bought the lamp.", "Owen bought the lamp."],
    )
    right, wrong = word_scores(model, tokenizer, texts, told)
    # in place of "Owen" it would rather say "Anna"
    assert right[:, 1].min() > 0 > wrong[:, 1].min()


def test_a_linear_score_of_names_is_their_f1():  # of O everywhere, which most words are
    rows = [view("entities").rows(8, split, 0) for split in ("train", "test")]
    assert (
        probed(
            view("entities"),
            *(torch.zeros(sum(len(r["labels"]) for r in part), 4) for part in rows),
            *rows,
        )
        == 0
    )
