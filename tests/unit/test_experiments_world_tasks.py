"""The difficulty table: what a baseline says, which cells are measured again, and when a model is ahead."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from course_lib import zoo
from course_lib.claims.record import figure
from course_lib.data.world import World
from course_lib.data.world.facts import held_out
from course_lib.errors import CourseError
from course_lib.experiments import world_asked, world_tasks, world_views
from course_lib.experiments.world_tasks import Bench, Cell, Recipe, ahead, cells, fill, measure, record
from course_lib.experiments.world_views import bag_of_words, majority, score, view
from course_lib.prompting.hiding import whole_words, word_scores

TINY = Recipe(batch=(4, 4), choices=(2, 2), epochs=(1, 1), choice_epochs=(1, 1), target_epochs=(1, 1), test_rows=6)


@pytest.fixture
def bench(tmp_path):
    return Bench(TINY, work=tmp_path)


@pytest.mark.parametrize(
    ("name", "kind", "metric"),
    [
        ("sentiment", "single", "accuracy"), ("rte", "pair", "accuracy"), ("similarity", "pair", "pearson"),
        ("pos", "tagging", "accuracy"), ("entities", "tagging", "entity_f1"), ("questions", "span", "exact_match"),
        ("questions-open", "pair", "accuracy"), ("retrieval", "choice", "accuracy"), ("cloze", "choice", "accuracy"),
        ("translation", "target", "tokens"), ("arithmetic", "target", "exact"),
    ],
)  # fmt: skip
def test_views(name, kind, metric):
    what = view(name)
    assert (what.kind, what.metric) == (kind, metric)
    assert what.rows(3, "train", 0) == what.rows(5, "train", 0)[:3]


def test_every_task_has_a_view():
    for name in World.task_names():
        assert view(name).rows(1, "test", 0)


def test_mismatched_is_trained_on_the_other_genre():
    what = view("nli-mismatched")
    assert what.rows(3, "train", 1) == view("nli").rows(3, "train", 1)
    assert what.rows(3, "test", 1) != view("nli").rows(3, "test", 1)


def test_the_right_passage_stands_where_the_label_says():
    rows = view("retrieval").rows(20, "train", 0)
    raw = World(0).task("retrieval", 20)
    assert all(row["choices"][row["label"]] == old["positive"] for row, old in zip(rows, raw, strict=True))
    assert len({row["label"] for row in rows}) == 4


def test_majority():
    what = view("sentiment")
    train = [{"text": "a", "label": 1}] * 3 + [{"text": "b", "label": 0}]
    assert majority(what, train, train) == 0.75
    tags = view("pos")
    rows = [{"tokens": ["a", "b"], "labels": [7, 7]}, {"tokens": ["c"], "labels": [1]}]
    assert majority(tags, rows, rows) == pytest.approx(2 / 3)
    assert majority(view("similarity"), train, train) == 0


def test_bag_of_words_learns_what_words_tell():
    rows = [{"text": f"word{i % 2} here", "label": i % 2} for i in range(40)]
    assert bag_of_words(view("sentiment"), rows, rows) == 1
    pairs = [{"text": "red blue", "pair": "red blue" if i % 2 else "green", "label": i % 2} for i in range(40)]
    assert bag_of_words(view("rte"), pairs, pairs) == 1
    choices = [{"text": "x", "choices": ["yes", "no"][:: 1 if i % 2 else -1], "label": 1 - i % 2} for i in range(40)]
    assert bag_of_words(view("pronouns"), choices, choices) == 1
    tags = [{"tokens": ["owl", "sleeps"], "labels": [7, 14]}]
    assert bag_of_words(view("pos"), tags, tags) == 1
    spans = [
        {"text": "Who came?", "pair": f"Then {name} came.", "answer": name} for name in ("Ann", "Bob", "Cleo", "Dan")
    ]
    assert bag_of_words(view("questions"), spans * 5, spans) == 1
    texts = [{"text": "2 plus 2", "target": "4"}, {"text": "3 minus 1", "target": "2"}]
    assert bag_of_words(view("arithmetic"), texts, texts) == 1


def test_tokens_in_place_count():
    rows = [{"target": "a b c d"}]
    assert score(view("translation"), ["a b x"], rows) == 0.5


@pytest.mark.parametrize("name", ["rte", "retrieval", "questions", "entities", "similarity", "translation"])
@pytest.mark.parametrize("start", world_tasks.AGAINST | dict.fromkeys(world_tasks.AGAINST.values(), ""))
def test_a_cell_of_every_kind(bench, name, start):
    if start not in world_tasks.starts(name):
        pytest.skip("Its answer is no judgement.")
    result = measure(Cell(name, 8, start, 0), bench)
    assert -1 <= result["score"] <= 1 and result["seconds"] >= 0


def test_what_is_done_is_not_done_again(bench):
    cell = Cell("rte", 8, "majority", 0)
    first = measure(cell, bench)
    bench.file(cell).write_text(json.dumps(first | {"score": 0.123}))
    assert measure(cell, bench)["score"] == 0.123
    other = replace(bench, recipe=replace(TINY, lr=1e-3))
    assert measure(cell, other)["score"] == first["score"]  # another recipe is another cell


def test_other_words_are_another_cell(bench, monkeypatch):
    before = bench.file(Cell("rte", 8, "majority", 0))
    monkeypatch.setattr(world_tasks, "_fingerprint", lambda task: "changed")
    assert bench.file(Cell("rte", 8, "majority", 0)) != before


def test_record(bench):
    table = cells(["rte"], [8], 2)
    assert [cell for cell, _ in fill(table, bench)] == table
    values = record(table, bench)
    row = values["tasks"]["rte"]["8"]
    assert len(row["pretrained"]["seeds"]) == 2 and set(row) == {*world_tasks.STARTS, *world_tasks.ASKED, "ahead"}
    assert (
        values["seeds"] == [0, 1] and values["seconds"] >= 0 and set(values["checkpoints"]) == {"bert-mini", "gpt-mini"}
    )


def test_a_stopped_run_has_whole_rows_only(bench):
    table = cells(["rte", "qnli"], [8], 2)
    for cell in table[: len(world_tasks.starts("rte")) + 2]:  # all of rte with seed 0, a part of qnli
        measure(cell, bench)
    values = record(table, bench)
    assert list(values["tasks"]) == ["rte"] and values["seeds"] == [0]
    assert values["measured"] == "8 of 24 cells" and values["clearly_ahead"] == []
    with pytest.raises(CourseError, match="No row"):
        record(cells(["wic"], [8], 1), bench)


def test_who_is_ahead():
    def found(pretrained, scratch, bag=0.5):
        return {
            "majority": figure([0.5] * 3), "bag of words": figure([bag] * 3), "from scratch": figure(scratch),
            "pretrained": figure(pretrained),
        }  # fmt: skip

    assert ahead(found([0.8, 0.81, 0.82], [0.6, 0.61, 0.62]))["clear"]
    assert not ahead(found([0.8, 0.81, 0.82], [0.6, 0.61, 0.62], bag=0.79))["clear"]  # words do it nearly as well
    assert not ahead(found([0.9, 0.5, 0.7], [0.5, 0.6, 0.5]))["clear"]  # not with every seed
    assert ahead(found([0.8, 0.81, 0.82], [0.6, 0.61, 0.62], bag=0.79))["over"] == "bag of words"


def test_asked_counts_against_asked_without_pretraining():
    def found(asked, random):
        starts = dict.fromkeys(("majority", "bag of words", "from scratch", "pretrained"), figure([0.5] * 3))
        return ahead(starts | {"asked": figure(asked), "asked from scratch": figure(random)})

    assert found([0.7, 0.72, 0.71], [0.5, 0.51, 0.52]) == {
        "best": "asked", "margin": 0.2, "over": "asked from scratch", "clear": True
    }  # fmt: skip
    assert not found([0.7, 0.72, 0.71], [0.69, 0.7, 0.71])["clear"]  # what is asked does not matter, then


@pytest.mark.parametrize(
    ("rows", "contexts", "statements"),
    [
        ([{"text": "A b."}], [""], ["A b."]),
        ([{"text": "A long text.", "pair": "Short."}] * 2, ["A long text."] * 2, ["Short."] * 2),
        (
            [{"text": "Who?", "pair": "A long answer."}, {"text": "Who is that?", "pair": "Me."}],
            ["A long answer.", "Me."], ["Who?", "Who is that?"],  # one side for the whole task
        ),
        ([{"text": "A long text.", "choices": ["a", "b"]}], ["A long text."] * 2, ["a", "b"]),
    ],
)  # fmt: skip
def test_the_words_of_the_shorter_side_are_asked_for(monkeypatch, rows, contexts, statements):
    asked = []

    def scores(model, tokenizer, given, said):
        asked.extend([list(given), list(said)])
        return [torch.zeros(2, 2)] * len(said)

    monkeypatch.setattr(world_asked, "word_scores", scores)
    monkeypatch.setattr(world_asked, "stand_ins", lambda tokenizer, texts, names, things: [t.lower() for t in texts])
    tokenizer = zoo.load("bert-mini").tokenizer
    assert world_asked.features(rows, None, tokenizer).shape == (len(statements), 8)
    assert asked == [[text.lower() for text in side] for side in (contexts, statements)]


def test_new_names_of_the_test_split_are_called_otherwise(monkeypatch):
    asked = []

    def scores(model, tokenizer, given, said):
        asked.extend(zip(given, said, strict=True))
        return [torch.zeros(2, 2)] * len(said)

    monkeypatch.setattr(world_asked, "word_scores", scores)
    town, (_, tokenizer, _) = world_views.world(), zoo.load("bert-mini")
    new = [name for i, name in enumerate(town.names("people")) if held_out(i)]
    known = {name for i, name in enumerate(town.names("people")) if not held_out(i)}
    whole = set(whole_words(tokenizer, new))
    assert len(whole) < 0.1 * len(new)  # the others are in pieces
    rows = [{"text": f"{a} met {b}.", "pair": f"{b} saw {a}."} for a, b in pairwise(new)]
    world_asked.features(rows, None, tokenizer)
    assert len(asked) == len(new) - 1 > 20
    for (context, statement), (a, b) in zip(asked, pairwise(new), strict=True):
        first, second = context.rstrip(".").split(" met ")
        assert statement == f"{second} saw {first}." and first != second
        assert all(now == was if was in whole else now in known for was, now in ((a, first), (b, second)))


def test_asking_in_another_way_is_another_cell(bench, monkeypatch):
    before = {start: bench.file(Cell("rte", 8, start, 0)) for start in world_tasks.starts("rte")}
    monkeypatch.setattr(world_asked, "HOW", "otherwise")
    after = {start: bench.file(Cell("rte", 8, start, 0)) for start in world_tasks.starts("rte")}
    assert {start for start in before if before[start] != after[start]} == set(world_tasks.ASKED)


def test_a_linear_model_judges_by_what_was_asked():
    said = np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
    judged = [{"text": "a", "pair": "b", "label": i % 2} for i in range(40)]
    assert world_asked.score(view("rte"), judged, judged, said, said) == 1
    graded = [{"text": "a", "pair": "b", "label": 0.5 + 3.0 * (i % 2)} for i in range(40)]
    assert world_asked.score(view("similarity"), graded, graded, said, said) == pytest.approx(1)
    chosen = [{"text": "a", "choices": ["b", "c"], "label": 1}] * 20  # the second one has the larger first number
    assert world_asked.score(view("cloze"), chosen, chosen, said, said) == 1


def test_asked_by_its_own_head_bert_mini_tells_who_did_it():
    loaded = zoo.load("bert-mini")
    texts = ["Anna bought the lamp. Owen bought the rug."] * 2
    right, wrong = word_scores(
        loaded.model, loaded.tokenizer, texts, ["Anna bought the lamp.", "Owen bought the lamp."]
    )
    assert right[:, 1].min() > 0 > wrong[:, 1].min()  # in place of "Owen" it would rather say "Anna"


def test_side_by_side_gives_the_same(bench, tmp_path):
    table = cells(["rte"], [8], 1)[:3]
    alone = dict(fill(table, bench))
    both = dict(fill(table, replace(bench, work=tmp_path / "two"), jobs=2))
    assert {cell: r["score"] for cell, r in alone.items()} == {cell: r["score"] for cell, r in both.items()}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--tasks", "stance"], "no task 'stance'"), (["--tasks", "rte,rte"], "twice"),
        (["--labels", "5"], "at least 10"), (["--labels", "ten"], "at least 10"),
    ],
)  # fmt: skip
def test_bad_options_are_said(option, said):
    with pytest.raises(CourseError, match=said):
        CliRunner().invoke(world_tasks.app, ["run", *option], catch_exceptions=False)


def test_show(bench, tmp_path):
    table = cells(["rte"], [8], 1)
    list(fill(table, bench))
    path = tmp_path / "out.json"
    path.write_text(json.dumps(record(table, bench) | {"config": {"labels": [8]}}))
    text = CliRunner().invoke(world_tasks.app, ["show", str(path)]).output
    assert "rte" in text and "of 1 tasks" in text
    assert world_views.world().seed == 0


def test_other_weights_are_another_cell_and_another_shape_is_one_from_scratch(tmp_path, bench):
    folder = tmp_path / "bert-mini"
    folder.mkdir()
    own = replace(bench, checkpoints=tmp_path)
    cells = [Cell("rte", 8, start, 0) for start in ("majority", "from scratch", "pretrained")]

    def named(weights: str, config: str) -> list[str]:
        (folder / "model.safetensors").write_text(weights)
        (folder / "config.json").write_text(config)
        world_tasks._sha256.cache_clear()
        return [own.file(cell).name for cell in cells]

    first, weights, config = named("1", "a"), named("2", "a"), named("1", "b")
    assert [a == b for a, b in zip(first, weights, strict=True)] == [True, True, False]
    assert [a == b for a, b in zip(first, config, strict=True)] == [True, False, True]
