"""Cells of lesson 21: the card holds every claim that has a record and guesses none."""

from typing import Any

import pytest

from classroom import course, records
from classroom.records import ledger
from tests.classroom.checks.lessons import ROOT, run_cells, started


@pytest.fixture(scope="module")
def choosing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Lesson 21's first cells, at scale smoke."""
    return started("21_choosing", tmp_path_factory.mktemp("choosing"))


def test_the_card_has_every_recorded_claim_and_guesses_no_verdict(
    choosing: dict[str, Any],
) -> None:
    entries = run_cells("21_choosing", choosing, "report-card")["entries"]
    recorded = [name for name in ledger.read() if records.record(name)]
    assert [entry.claim for entry in entries] == recorded
    for entry in entries:
        found = records.record(entry.claim)
        assert found is not None and entry.verdict == found.verdict
        notebook, _, anchor = entry.link.partition("#")
        assert anchor in ("", entry.claim)
        assert (ROOT / "notebooks" / notebook).exists()


def test_the_guide_names_claims_and_lessons_that_there_are(choosing: dict[str, Any]) -> None:
    for _, _, behind, lesson in run_cells("21_choosing", choosing, "guide-lines")["GUIDE"]:
        assert lesson in course.names() and all(ledger.claim(name) for name in behind.split())
