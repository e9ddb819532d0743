"""The experiment of every claim runs in miniature, and its figures are those that the claim's rule
asks for.
"""

from pathlib import Path
from typing import Any

import pytest

from classroom import records
from classroom.records import ledger
from course_lib import public_models
from lab.engine.experiment import find
from lab.engine.lab import PLANS, Lab
from tests.lab import public_data
from tests.lab.engine.judged import judge

SLOW = (
    "attention-complexity",
    "bart-generates",
    "bytes-bpe",
    "catastrophic-forgetting",
    "frozen-or-tuned",
    "labels-saved",
    "public-tasks",
    "qlora",
    "relative-beats-absolute",
    "relative-extrapolates",
    "scaling-laws",
    "search-by-meaning",
    "t5-text-to-text",
)
QUICK = ("gelu-converges",)  # of those that pretrain arms


def marked(name: str) -> Any:
    """Left out of the quick tests: what takes seconds."""
    found = find(name)
    slow = name in SLOW or (name not in QUICK and bool(found.needs(PLANS["smoke"], 0)))
    return pytest.param(name, marks=pytest.mark.slow if slow else ())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One workplace for all: arms and scores are shared, as in a run."""
    folder: Path = tmp_path_factory.mktemp("arms")
    public = public_data.write(tmp_path_factory.mktemp("public"))
    return Lab(PLANS["smoke"], folder, public=public)


@pytest.mark.parametrize("claim", [marked(name) for name in ledger.read()])
def test_a_measure_gives_what_its_rule_asks_for(claim: str, lab: Lab) -> None:
    found = find(claim)
    public = found.config.get("public model")
    if public is not None and not public_models.is_here(public):
        pytest.skip(f"{public} was not fetched: python -m course_lib fetch {public}")
    values = found.measure(lab, 0)
    recorded = records.record(claim)
    if ledger.claim(claim).kind == "measured":
        assert judge(claim, {name: [value, value] for name, value in values.items()}).why
    elif recorded is not None:
        assert judge(claim, values).verdict == recorded.verdict
    for name in found.needs(lab.plan, 0):
        assert (lab.folder / name.name / "card.json").exists(), (
            "an arm that no one needed was announced"
        )
