"""Lesson 21's three architectures: the rule's verdicts, the forms in which they read the same rows, a tiny run."""

import random

import pytest
import torch

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.corrupt import IGNORE
from course_lib.experiments import choosing
from course_lib.experiments.choosing import BOTH, DECODER, ENCODER, KINDS, TASKS
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged, made


def suite(stories: float, search: float, many: float) -> Values:
    """Figures by: the encoder's surprise minus the decoder's; its lead in the search over chance and the others; the
    encoder-decoder's lead over all tasks."""
    values: Values = {"then/best possible": [0.17] * 3}
    for kind in KINDS:
        values |= {f"who/{kind}": around(0.9), f"roles/{kind}": around(0.95), f"velin/{kind}": around(0.5)}
        values[f"search/{kind}"] = around(0.5 + search) if kind == ENCODER else around(0.5)
        values[f"then/{kind}"] = around(0.3 + (stories if kind == ENCODER else 0))
        values[f"many tasks/{kind}"] = around(0.7 + (many if kind == BOTH else 0))
        values[f"cost/who/{kind}"] = [100.0] * 3
        values[f"cost/roles/{kind}"] = [100.0 if kind == ENCODER else 150.0] * 3
    return values


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ((0.5, 0.2, 0.1), YES),
        ((0.5, 0.2, -0.1), PARTLY),
        ((0.5, 0.0, 0.0), PARTLY),  # the search at chance, nobody ahead on many tasks
        ((-0.1, 0.2, 0.0), PARTLY),
        ((-0.1, -0.2, 0.0), NO),
    ],
)
def test_the_rule(numbers: tuple[float, float, float], verdict: str) -> None:
    test = find("which-architecture")
    assert test is not None
    said, why = test.verdict(made(suite(*numbers)))
    assert said == verdict
    assert why.endswith(".")
    if numbers[1] < 0:
        assert "Clearly ahead of the encoder: decoder on search, encoder-decoder on search." in why


@pytest.mark.parametrize(
    ("other", "lost"),
    [
        ({f"who/{kind}": around(0.12) for kind in KINDS}, "light"),  # nobody is above chance
        ({f"search/{DECODER}": around(0.9)}, "light"),
        ({f"then/{BOTH}": around(0.1)}, "open"),
        ({f"many tasks/{DECODER}": around(0.9)}, "many"),
    ],
)
def test_what_costs_a_statement(other: Values, lost: str) -> None:
    test = find("which-architecture")
    assert test is not None
    said, why = test.verdict(made(suite(0.5, 0.2, 0.1) | other))
    assert said == PARTLY
    assert "Of three statements 2 hold" in why
    assert f"({lost}" not in why and f"; {lost}" not in why


def test_the_encoders_tags_must_be_the_cheapest_answers() -> None:
    values = suite(-0.1, 0.2, 0.0) | {f"cost/roles/{ENCODER}": [151.0] * 3}
    assert judged("which-architecture", values) == NO


def test_each_architecture_is_asked_the_same_and_answers_at_its_own_places() -> None:
    rng = random.Random(1)
    rows = [choosing.asked(task, rng) for task in TASKS for _ in range(5)]
    wanted = {kind: [row[row != IGNORE].tolist() for row in choosing.form(kind, rows)["labels"]] for kind in KINDS}
    targets = [choosing.ids(target) for *_, target in rows]
    assert wanted[DECODER] == wanted[BOTH] == targets
    for (task, source, _), said, target in zip(rows, wanted[ENCODER], targets, strict=True):
        assert said == target[: choosing.KEPT[task] or None]
        assert len(said) >= len(target) - 1, f"no place for the whole answer to {source}"
    batch = choosing.form(ENCODER, rows)
    roles = [i for i, (task, *_) in enumerate(rows) if task == "roles"]
    masked = (batch["ids"] == choosing.MASK)[roles]
    assert not masked.any(), "tags stand at the words themselves"
    assert (batch["labels"][roles] != IGNORE).sum(1).tolist() == (batch["keep"][roles].sum(1) - 1).tolist()


def test_equal_operations() -> None:
    spent = {
        kind: choosing.steps(kind, 500) * sum(choosing.flops(kind, choosing.Street(kind, 0)[i]) for i in range(5))
        for kind in KINDS
    }
    assert max(spent.values()) / min(spent.values()) < 1.005
    assert len({choosing.steps(kind, 500) for kind in KINDS}) == 3


def test_an_answer_ends_where_it_ends() -> None:
    class Parrot(torch.nn.Module):
        def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            """Says [SEP] and [MASK] in turn."""
            return torch.nn.functional.one_hot(torch.arange(ids.shape[1]) % 2 + choosing.END, 50).float()[None]

    rows = [choosing.asked("who", random.Random(2), form=form) for form in range(4)]
    for row in rows:  # the first place of an answer is behind the source
        expected = [[], [choosing.MASK]][len(choosing.ids(row[1])) % 2]
        assert choosing.answers(ENCODER, Parrot(), [row]) == [expected]


def test_a_tiny_run() -> None:
    values = choosing.which_architecture(Lab(PLANS["smoke"]), 0)
    assert {f"{task}/{kind}" for task in (*TASKS, "search", "many tasks") for kind in KINDS} <= set(values)
    assert 0.15 < values["then/best possible"] < 0.18
    assert judged("which-architecture", {name: [value] * 3 for name, value in values.items()})
