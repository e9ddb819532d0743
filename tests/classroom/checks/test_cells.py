"""Cells of lessons 07 and 21: the data that they make is what they say, the card holds every claim
that has a record and guesses none.
"""

from pathlib import Path
from typing import Any

import pytest

from classroom import course, records
from classroom.records import ledger
from course_lib.data.words import split_words
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


def test_the_reviews_of_lesson_07_mean_what_they_say(tmp_path: Path) -> None:
    """No labelled review of the lesson turns its opinion around; all words of one are of one
    kind.
    """
    space = started("07_transfer", tmp_path, "data")
    rows = [row for domain in ("food", "film") for row in space["reviews"](domain, 60)]
    lines = (ROOT / "data" / "world" / "opinions.tsv").read_text("utf-8").splitlines()[1:]
    kinds = {
        word: int(kind == "positive") for word, _, kind in (line.split("\t") for line in lines)
    }
    assert len(rows) == 120
    for row in rows:
        assert {kinds[word] for word in split_words(row["text"]) if word in kinds} == {
            row["label"]
        }, row
