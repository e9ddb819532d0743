"""Pairs of sentences that people have graded by how alike they are: STS 2012 to 2016 and STS-B."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from course_lib import data

YEARS = (2012, 2013, 2014, 2015, 2016)


class Graded(NamedTuple):
    """Two sentences and their grade, 0 to 5."""

    first: str
    second: str
    grade: float


def read_all(find: Callable[[str], Path]) -> dict[str, list[Graded]]:
    """The test pairs of each set, "STS12" to "STS16" and "STS-B".

    STS-B was put together from the older sets. A pair of its training or development part is left
    out of them, because a model may have been trained on it.

    Args:
        find: the path of a public data set by its name, such as `Lab.public_data`.
    """
    benchmark = find("stsb_en")
    learned = {
        _key(row["text"], row["pair"])
        for split in ("train", "validation")
        for row in data.task(benchmark, split=split)
    }
    sets = {f"STS{year - 2000}": read_year(find("sts12_16") / str(year)) for year in YEARS}
    sets = {
        name: [row for row in rows if _key(row.first, row.second) not in learned]
        for name, rows in sets.items()
    }
    test = data.task(benchmark, split="test")
    sets["STS-B"] = [Graded(row["text"], row["pair"], row["label"]) for row in test]
    return sets


def read_year(folder: Path) -> list[Graded]:
    """The test pairs of a year's files that have a grade."""
    rows = []
    for path in sorted(folder.glob("*.test.tsv")):
        for line in path.read_text("utf-8").splitlines():
            grade, first, second = line.split("\t")
            if grade:
                rows.append(Graded(first, second, float(grade)))
    return rows


def _key(first: str, second: str) -> tuple[str, str]:
    """A pair without case and without what its files do to blanks and marks."""
    plain = ["".join(c for c in text.lower() if c.isalnum()) for text in (first, second)]
    return plain[0], plain[1]
