"""The shipped records follow from their figures, and the claims that need no training are made again here."""

from pathlib import Path

import pytest

from course_lib import claims
from course_lib.claims import ledger
from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS
from course_lib.claims.record import RESULTS, Record, figure
from course_lib.claims.run import Bench, run

LESSONS = ("00_start_here", "01_self_attention", "08_gpt1", "09_bert", "10_bert_finetuning")
CLAIMS = [claim.id for lesson in LESSONS for claim in ledger.of_lesson(lesson)]
RECORDED = sorted({*CLAIMS, *(name for name in ledger.read() if claims.record(name))})
LIVE = [name for name in CLAIMS if claims.claim(name).kind != "measured"]


def recorded(name: str) -> Record:
    found = claims.record(name)
    assert found is not None, f"python -m course_lib claims run {name}"
    return found


def test_these_lessons_have_so_many_claims() -> None:
    assert len(CLAIMS) == 22
    assert len(LIVE) == 6


@pytest.mark.parametrize("name", RECORDED)
def test_a_record_follows_from_its_figures(name: str) -> None:
    found, test = recorded(name), find(name)
    assert test is not None
    assert found.rule == test.rule
    assert found.rule_hash == test.rule_hash, "the rule has changed since; run the claim again"
    assert (found.verdict, found.why) == test.verdict(found.figures)
    exact = found.kind != "measured"
    for key, value in found.figures.items():
        assert value == figure(value.seeds, exact=exact), key
        assert len(value.seeds) == len(found.seeds)
    assert exact or len(found.seeds) >= 3
    assert found.kind == claims.claim(name).kind
    assert found.config["plan"]["scale"] in ("cpu", "gpu")
    assert found.tried == list(test.tried)
    assert found.tried or found.verdict != "not at this scale", "say what was tried"
    assert claims.summary(name).startswith(f"{name}: {found.verdict}")


@pytest.mark.parametrize("name", CLAIMS)
def test_arms_are_named(name: str) -> None:
    found = recorded(name)
    assert len(set(found.arms)) == len(found.arms)
    if found.arms:
        assert {arm["objective"] for arm in found.config["arms"]} <= {"mlm_nsp", "mlm", "clm", "bilm"}


def test_every_record_in_the_folder_is_of_a_claim() -> None:
    others = {"bench", "lessons", "world_tasks"}
    names = {path.stem for path in RESULTS.glob("*.json")} - others
    assert {name for name in names if not name.startswith("real_")} <= set(ledger.read())


@pytest.mark.parametrize("name", LIVE)
def test_exact_and_computed_claims_hold_here_too(name: str, tmp_path: Path) -> None:
    bench = Bench(PLANS["cpu"], out=tmp_path, work=tmp_path / "claims", arms=tmp_path / "arms")
    *_, done = run([name], bench)
    assert done.record is not None
    assert done.record.verdict == "reproduced"
    shipped = recorded(name)
    if name != "gelu":  # rounding differs between machines
        assert done.record.figures == shipped.figures
