"""What a task of the world is: the names of its columns and labels, and a maker of rows."""

import random
from typing import Any, ClassVar

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import Template
from course_lib.data.world.lexicon import Row, read_table
from course_lib.errors import CourseError

Example = dict[str, Any]


class Task:
    """One task. A subclass names its columns and labels and makes one row at a time.

    Rows come in groups of `group`: the rows of a group share a generator, so that they can be the two halves of a
    minimal pair or one row of every label. `make` returns the columns and, under "gold", how the row came about.
    """

    columns: ClassVar[tuple[str, ...]]
    labels: ClassVar[tuple[str, ...]]
    group: ClassVar[int] = 1

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.casting = writer.casting
        self.lexicon = writer.lexicon

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Row `member` (0 to group - 1) of the group that `rng` stands for."""
        raise NotImplementedError

    def table(self, name: str, *columns: str) -> list[Row]:
        """The rows of one of the task's tables, all of a known split."""
        rows = read_table(name, columns, self.lexicon.folder)
        for row in rows:
            if row["split"] not in ("all", "test"):
                raise CourseError(f"{name}: the split of {row} is {row['split']!r}; it must be all or test.")
        return rows

    def template(self, text: str) -> Template:
        """The compiled template."""
        return Template(text, self.lexicon)


def of_split(rows: list[Row], split: str) -> list[Row]:
    """Rows for a split: the test split has its own half of the time, so they stand as often as all others together."""
    common = [row for row in rows if row["split"] == "all"]
    held = [row for row in rows if row["split"] == "test"]
    return common + held * max(1, len(common) // max(1, len(held))) if split == "test" else common


def order_of(rng: random.Random, n: int) -> list[int]:
    """0 to n - 1 in random order: which member of a group has which label."""
    return rng.sample(range(n), n)


def balanced(rng: random.Random, member: int, n: int) -> tuple[int, random.Random]:
    """The label of a group's row `member`, every one of `n` once a group, and a generator for that row alone."""
    label = order_of(rng, n)[member]
    return label, random.Random(f"{rng.random()}/{member}")
