"""Each number in a lesson's prose stands in an output or a line of code near it, in a record, a
card or the lesson's papers.json.

Whole numbers below 100, years, and places in papers ("table 5") are left out. What is neither
measured nor a figure of the lesson's paper has its source in the lesson's numbers.json, or in
data/numbers.json for all. A changed last
digit is seen in four of ten cases: nearby tables hold many numbers."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from classroom import course
from course_lib.files import COURSE, read_json

LESSONS = sorted((COURSE / "notebooks").glob("[0-9][0-9]_*.ipynb"))
NOT_PROSE = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|<[^>]+>|https?://\S+|arXiv:\S+", re.DOTALL
)
MARKUP = re.compile(r"<(style|script).*?</\1>|<[^>]+>", re.DOTALL)
PLACE = re.compile(r"(section|table|figure|equation|appendix|lesson|exercise)s?\s*$", re.IGNORECASE)
STATED = re.compile(
    r"(?<![\w.,/])(?<!\w-)(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?\s?(%|points?\b|[mb]illion\b)?"
)
ANY = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+(?:[eE][-+]?\d+)?")
UNITS = {"million": 1e6, "billion": 1e9}
BEFORE, AFTER = 25, 3  # cells


def numbers(text: str) -> list[float]:
    """Everything that reads as a number."""
    return [float(found.replace(",", "")) for found in ANY.findall(text)]


def leaves(value: Any) -> Iterator[float]:
    """The numbers of a JSON value, those in its strings too."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif not isinstance(value, bool) and value is not None:
        yield from numbers(str(value))


def known(cell: dict[str, Any]) -> Iterator[float]:
    """The numbers that a cell shows, and those of the records that it names."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "code":
        yield from numbers(source)
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        for shown in (
            output.get("text", ""),
            data.get("text/plain", ""),
            data.get("text/html", ""),
        ):
            yield from numbers(MARKUP.sub(" ", "".join(shown)))
    for path in (COURSE / "data" / "results").glob("*.json"):
        if path.stem in source:
            record = read_json(path)
            for figure in record.get("figures", record).values():
                yield from leaves(
                    [figure["mean"], figure["interval"]]
                    if isinstance(figure, dict) and "mean" in figure
                    else figure
                )


def stated(source: str) -> Iterator[tuple[str, float, int, tuple[float, ...]]]:
    """Each number of a text: as printed, its value, its decimals, by what a known number may be
    multiplied.
    """
    text = NOT_PROSE.sub(" ", source)
    for found in STATED.finditer(text):
        whole, part, unit = found.groups(default="")
        value = float(f"{whole.replace(',', '')}.{part or 0}")
        small = value < 100 or (1900 <= value <= 2030 and "," not in whole)
        if not (small and not part and not unit) and not PLACE.search(text[: found.start()]):
            yield (
                found[0].strip(),
                value,
                len(part),
                (1, 1 / UNITS[unit]) if unit in UNITS else (1, 100),
            )


def unfounded(path: Path) -> Iterator[str]:
    """The numbers in a lesson's prose that stand nowhere near."""
    cells, name = json.loads(path.read_text("utf-8"))["cells"], path.stem
    sources = read_json(COURSE / "data" / "numbers.json") | course.contents(name, "numbers.json")
    common = list(leaves(course.papers(name)))
    cards = (COURSE / "data" / "checkpoints").glob("*/card.json")
    common += [
        n for card in cards if f"{card.parent.name}" in str(cells) for n in leaves(read_json(card))
    ]
    shown = [list(known(cell)) for cell in cells]
    for i, cell in enumerate(cells):
        near: Iterable[float] = {n for c in shown[max(0, i - BEFORE) : i + AFTER] for n in c} | set(
            common
        )
        prose = "".join(cell["source"]) if cell["cell_type"] == "markdown" else ""
        for printed, value, decimals, factors in stated(prose):
            room = 0.5 * 10**-decimals + 1e-9 * value
            given = printed in sources
            if not given and not any(
                abs(n * factor - value) <= room for n in near for factor in factors
            ):
                yield f"cell {i}: {printed}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_number_has_a_source(path: Path) -> None:
    assert list(unfounded(path)) == []


def test_numbers_are_read() -> None:
    text = "In 2018, `99` of 12 rows, 1,234 in all, table 500; 12.5% and 0.9 billion, -3.25."
    assert [(printed, value) for printed, value, *_ in stated(text)] == [
        ("1,234", 1234),
        ("12.5%", 12.5),
        ("0.9 billion", 0.9),
        ("3.25", 3.25),
    ]
