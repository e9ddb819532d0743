"""What a task of the world is: the names of its columns and labels, and a maker of rows."""

import random
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from classroom.town.documents import Writer
from classroom.town.grammar import SentenceTemplate
from classroom.town.lexicon import TableRow, read_table

Example = dict[str, Any]


class TownTask:
    """One task. A subclass names its columns and labels and makes one row at a time.

    The rows of a group of `group` share a generator, so that they can be one row of every label.
    """

    columns: ClassVar[tuple[str, ...]]
    labels: ClassVar[tuple[str, ...]]
    group: ClassVar[int] = 1

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.casting = writer.casting
        self.lexicon = writer.lexicon
        self._compiled: dict[str, SentenceTemplate] = {}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Row `member` (0 to group - 1) of the group of `rng`: the columns and, under "gold", how
        it came about.
        """
        raise NotImplementedError

    def table(self, name: str, *columns: str, **allowed: Sequence[str]) -> list[TableRow]:
        """The rows of one of the task's tables (`read_table`), all of a known split."""
        return read_table(name, columns, self.lexicon.folder, split=("all", "test"), **allowed)

    def template(self, text: str) -> SentenceTemplate:
        """Compiled once."""
        if text not in self._compiled:
            self._compiled[text] = SentenceTemplate(text, self.lexicon)
        return self._compiled[text]

    def compile(self, texts: Iterable[str]) -> None:
        """Templates of a table, so that a wrong one is said at once."""
        for text in texts:
            self.template(text)


def of_split(rows: list[TableRow], split: str) -> list[TableRow]:
    """Rows for a split: the test split has its own half of the time, so they stand as often as all
    others together.
    """
    common = [row for row in rows if row["split"] == "all"]
    held = [row for row in rows if row["split"] == "test"]
    return common + held * max(1, len(common) // max(1, len(held))) if split == "test" else common


def order_of(rng: random.Random, n: int) -> list[int]:
    """0 to n - 1 in random order: which member of a group has which label."""
    return rng.sample(range(n), n)


def balanced(rng: random.Random, member: int, n: int) -> tuple[int, random.Random]:
    """The label of a group's row `member`, every one of `n` once a group, and a generator for that
    row alone.
    """
    label = order_of(rng, n)[member]
    return label, random.Random(f"{rng.random()}/{member}")
