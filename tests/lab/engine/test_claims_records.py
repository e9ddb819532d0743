"""The shipped records follow from their figures, and the claims that need no training are made
again here.
"""

import re
from pathlib import Path

import pytest

from classroom import records
from classroom.records import ledger, report
from classroom.records.figures import figure
from classroom.records.record import RESULTS, Record
from lab.engine.lab import PLANS
from lab.engine.run import RunSettings, judge_again, run

LESSONS = ("00_start_here", "01_self_attention", "08_gpt1", "09_bert", "10_bert_finetuning")
LIVE = [
    claim.id for lesson in LESSONS for claim in ledger.of_lesson(lesson) if claim.kind != "measured"
]
# The others wait for their first run: a rule stands in the ledger before it.
RECORDED = [name for name in ledger.read() if records.record(name) is not None]


def recorded(name: str) -> Record:
    found = records.record(name)
    assert found is not None, f"python -m course_lib claims run {name}"
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_a_record_follows_from_its_figures(name: str) -> None:
    found = recorded(name)
    assert judge_again(found) == found, (
        "the rule has changed since: python -m course_lib claims judge"
    )
    assert "no figure" not in found.why
    # a clause younger than the run may lower a verdict, and never lifts one
    if found.ruled != found.rule_hash:
        rule, good = ledger.claim(name).rule, ["partly", "reproduced"]
        higher = good[good.index(rule["before"]) + 1 :] if rule["before"] in good else good
        assert rule["changed"] >= found.made and found.verdict not in higher
    told = str({key: value for key, value in found.config.items() if key not in ("plan", "arms")})
    # where the settings say that the seeds are those of rows or texts
    drawn = "draws" in report.basis(found)
    assert drawn == ("; of draws" in found.why)
    assert drawn or not re.search(r"seeds('?:)? ('|are )(those )?of the", told)
    exact = found.kind != "measured"
    for key, value in found.figures.items():
        assert value == figure(value.seeds, exact=exact), key
        assert len(value.seeds) == len(found.seeds)
    assert exact or len(found.seeds) >= 3
    assert found.kind == records.claim(name).kind and found.config["plan"]["scale"] in (
        "cpu",
        "gpu",
    )
    assert records.summary(name).startswith(f"{name}: {found.verdict}")


def test_every_record_in_the_folder_is_of_a_claim() -> None:
    others = {"bench", "bench_gpu", "lessons", "world_tasks"}
    names = {path.stem for path in RESULTS.glob("*.json")} - others
    assert {name for name in names if not name.startswith("real_")} <= set(ledger.read())


@pytest.mark.parametrize("name", LIVE)
def test_exact_and_computed_claims_hold_here_too(name: str, tmp_path: Path) -> None:
    settings = RunSettings(
        PLANS["cpu"], out=tmp_path, work=tmp_path / "claims", arms=tmp_path / "arms"
    )
    *_, done = run([name], settings)
    assert done.record is not None and done.record.verdict == "reproduced"
    shipped = recorded(name)
    assert done.record.figures == shipped.figures
