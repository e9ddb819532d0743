"""Disjoint parts of test rows: what a seed means where nothing is trained.

An interval over parts says how much a score would change with other rows of the same kind. Rows
that are drawn with replacement overlap, and would make the interval too narrow.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def part(rows: Sequence[Item], number: int, parts: int) -> list[Item]:
    """One of several equal parts of the rows, which do not overlap.

    Args:
        rows: they are shuffled first, always in the same way.
        number: of the part, from 0.
        parts: how many there are.
    """
    order = list(range(len(rows)))
    random.Random(0).shuffle(order)
    return [rows[i] for i in order[number % parts :: parts]]
