"""The experiment of lesson 14: its rule can come out every way, and its race is a fair one."""

from dataclasses import replace

import pytest

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.claims.record import figure
from course_lib.experiments import electra

PLAN = replace(PLANS["smoke"], steps=15)


@pytest.mark.parametrize(
    ("mlm", "chosen", "verdict"),
    [
        (0.6, 0.6, "reproduced"),
        (0.8, 0.6, "partly"),
        (0.6, 0.7, "partly"),
        (0.7, 0.7, "not at this scale"),
        (0.8, 0.8, "not at this scale"),
    ],
)
def test_rule(mlm: float, chosen: float, verdict: str) -> None:
    test = find("electra-efficiency")
    assert test is not None
    scores = {"MLM": mlm, "ELECTRA": 0.7, "ELECTRA 15%": chosen}
    spread = {name: (-0.01 if name == "ELECTRA" else 0.01) for name in scores}
    f = {f"full budget/{n}": figure([x - spread[n], x, x + spread[n]]) for n, x in scores.items()}
    said, why = test.verdict(f)
    assert said == verdict, why
    assert "nan" not in why


def test_every_objective_starts_from_the_same_body_and_pays_for_what_it_trains() -> None:
    starts = [electra.fresh(PLAN, name, 0)[1].state_dict() for name in electra.OBJECTIVES]
    assert all(value.equal(start[key]) for start in starts[1:] for key, value in starts[0].items())
    count = electra.steps(replace(PLAN, steps=900))
    assert count["ELECTRA"] == count["ELECTRA 15%"] == 240 < count["MLM"] < 300


def test_what_is_labelled_is_not_read() -> None:
    known = electra.known(PLAN)
    assert not {" ".join(row["tokens"]) for row in known.labelled} & set(known.read)


def test_the_measure_gives_what_the_rule_asks_for() -> None:
    values = electra.electra_efficiency(Lab(PLAN), 0)
    test = find("electra-efficiency")
    assert test is not None
    assert test.verdict({name: figure([value] * 2) for name, value in values.items()})
    assert len({value for name, value in values.items() if "/" not in name or name.startswith("full")}) > 1
