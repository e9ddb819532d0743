"""Every rule can come out either way, and hangs on what its words say.

verdicts.json has figures for each claim, and under "verdicts" what they lead to once some of them are changed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from classroom.records import ledger
from classroom.records.record import VERDICTS, figure
from experiments.engine.judging import (
    Ratio,
    above,
    always,
    at_least,
    clearly,
    exactly,
    highest,
    most_of,
    names,
    near,
    ratio,
    statements,
    such_that,
    verdict,
    within,
)
from tests.experiments.engine.judged import judge

CLAIMS = json.loads((Path(__file__).parents[1] / "verdicts.json").read_text("utf-8"))


@pytest.mark.parametrize("claim", ledger.read())
def test_rules(claim: str) -> None:
    """Whatever is changed to null is left out."""
    figures, said = CLAIMS[claim]["figures"], {}
    for expected, changes in CLAIMS[claim]["verdicts"]:
        given = {key: value for key, value in (figures | changes).items() if value is not None}
        found, why = judge(claim, given)
        assert found == expected, changes
        assert why.endswith(".") and "nan" not in why, why
        said[expected] = why
    assert len(said) > 1 and set(said) <= set(VERDICTS)


def test_statements_about_figures() -> None:
    seeds: dict[str, list[float]] = {"a": [0.5, 0.6, 0.7], "b": [0.4, 0.5, 0.6], "c": [0.1, 0.9, 0.5], "x/t": [1, 1, 1]}
    f = {name: figure(values) for name, values in seeds.items()}
    yes, no = above("a", "c"), above("c", "a")
    holds = {
        clearly("a", "b"): True, clearly("a", "c"): False, clearly("a"): True, clearly(1.0, "b"): True,
        yes: True, no: False, above("a", "b", by=0.11): False, above("a", "b", by=0.09): True,
        above(("a", "b"), 0.05): True, clearly(Ratio("a", "b", log=True)): True, exactly("x/t", 1.0): True,
        exactly("a", 0.6): False, within("b", 0.4, 0.6): True, within("c", 0.4, 0.6): False,
        ratio("a", "b", 1.25, 1.3): False, near("a", "b", 0.21): True, always("x/t", "a"): True,
        always("a", "b", times=1.2): False, yes & no: False, yes | no: True, ~no: True,
        at_least(2, yes, no, no): False, most_of(yes, yes, no): True, such_that(lambda f: False): False,
    }  # fmt: skip
    assert [statement(f) for statement in holds] == list(holds.values())
    assert verdict(yes & no, yes)(f) == ("partly", "a 0.600 ± 0.248; c 0.500 ± 0.994.")
    assert statements(no, no)(f)[0] == "not at this scale"
    assert statements(yes, no)(f) == ("partly", "1 of 2 statements hold: a 0.600 ± 0.248; c 0.500 ± 0.994.")
    assert names(f, "x") == ["t"] and highest(f, ["c", "a"]) == "a"


def test_a_live_run_is_judged_by_the_rule_of_the_record() -> None:
    """One seed alone has no interval, so that what needs one cannot be reproduced; a count needs none."""
    once: dict[str, Any] = {"held-out loss/GELU": 3.0, "held-out loss/ReLU": 3.2, "steps": 40}
    assert judge("gelu-converges", once)[0] == "partly"
    three = {key: [value - 0.1, value, value + 0.1] for key, value in once.items()}
    assert judge("gelu-converges", three)[0] == "reproduced"
    assert judge("causal-mask", {"unchanged, causal": 23, "unchanged, no mask": 0, "cuts": 23})[0] == "reproduced"
    with pytest.raises(KeyError, match="held-out loss/ReLU"):
        judge("gelu-converges", {"held-out loss/GELU": 3.0})
