"""Cells of lessons 07 and 21: the data that they make is what they say, the card holds every claim
and guesses none.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from classroom import course, records
from classroom.records import ledger
from course_lib.data.words import split_words
from course_lib.vocab import IGNORE
from tests.classroom.checks.lessons import ROOT, run_cells, started

STREET = ("street", "street-rows", "street-ids", "forms", "forms-encoder", "build", "flops")


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Lesson 21 up to the street's data, at scale smoke."""
    return started("21_choosing", tmp_path_factory.mktemp("street"), *STREET)


def test_the_three_read_the_same_rows(street: dict[str, Any]) -> None:
    rng = random.Random(3)
    rows = [street["row"](task, rng) for task in street["TASKS"] for _ in range(5)]
    batches = {kind: form(rows) for kind, form in street["FORM"].items()}
    for i, (task, source, target) in enumerate(rows):
        wanted = street["ids"](target)
        for kind, batch in batches.items():
            labels = batch["labels"][i]
            kept = street["PLACES_KEPT"][task] if kind == "encoder" else 0
            assert labels[labels != IGNORE].tolist() == wanted[: kept or None], (task, kind)
        places = (batches["encoder"]["labels"][i] != IGNORE).nonzero()[:, 0].tolist()
        # tags stand at the words, masks behind them
        first = 1 if task == "roles" else len(street["ids"](source))
        assert places == list(range(first, first + len(places)))
        read = batches["encoder"]["ids"][i][batches["encoder"]["attention_mask"][i]].tolist()
        assert read[: len(street["ids"](source))] == street["ids"](source)
    for text, roles in street["FORMS"]:
        said = dict(zip(text.split(), roles.split(), strict=True))
        assert [said[who] for who in ("{x}", "{y}", "{o}")] == ["giver", "taker", "thing"]


def test_padding_costs_nothing(street: dict[str, Any]) -> None:
    rows = [("who", "who? Mara gave Theo the lamp .", "Theo")]
    longer = [
        *rows,
        ("velin", "velin? the lamp was given to Theo by Mara .", "Mara -o Theo -ti lamp -m gifu"),
    ]
    for kind, form in street["FORM"].items():
        alone, padded = form(rows), {name: part[:1] for name, part in form(longer).items()}
        assert street["flops"](kind, alone) == street["flops"](kind, padded)


def test_the_card_has_every_claim_and_guesses_no_verdict(street: dict[str, Any]) -> None:
    entries = run_cells("21_choosing", street, "report-card")["entries"]
    assert [entry.claim for entry in entries] == list(ledger.read())
    for entry in entries:
        found = records.record(entry.claim)
        assert entry.verdict == (found.verdict if found else "")
        there = (ROOT / "notebooks" / f"{entry.lesson}.ipynb").exists()
        assert bool(entry.link) == there
        if found is None:
            assert ("shown live in lesson " if there else "does not stand yet") in entry.note


def test_the_guide_names_claims_and_lessons_that_there_are(street: dict[str, Any]) -> None:
    for _, _, behind, lesson in run_cells("21_choosing", street, "guide-lines")["GUIDE"]:
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
