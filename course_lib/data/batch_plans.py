"""Batch plans: which rows make up the batch of each step.

    plan = Shuffled(5, 2, 0)    # 5 rows, 2 in a batch, seed 0
    plan[0], plan[1], plan[2]   # [3, 4], [0, 1], [2]: one epoch, each row once; then shuffle again

A plan depends on nothing but (seed, step). So a resumed training reads the same batches.
"""

from collections.abc import Iterable, Sized
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch

from course_lib.objectives import seeded_generator
from course_lib.objectives.collate import Ints, width_of

R = TypeVar("R", bound=Sized)

# An epoch of `BatchPlan` draws twice. Each draw has a random stream of its own.
ROW_ORDER = 0
BATCH_ORDER = 1


class BatchPlan:
    """`plan[step]` is the numbers of a batch's rows. Rows of similar length share a batch.

    This saves padding. The rows are sorted by their width (the length, rounded up as `pad` does)
    and cut into batches once. Each epoch shuffles the rows of the same width, and the batches.

    Args:
        lengths: number of tokens in each row.
        rows: number of rows in a batch. It is not used if `tokens` is given.
        tokens: maximum number of positions in a batch, padding included.
        seed: seed of the shuffles.
        max_width: `pad` does not round up past this width.
    """

    def __init__(
        self, lengths: Ints, rows: int | None, tokens: int | None, seed: int, max_width: int
    ) -> None:
        self.seed = seed
        self.widths = width_of(lengths, max_width)
        ordered = np.sort(self.widths)
        # Batch i has the sorted rows from bounds[i] up to bounds[i + 1].
        self.bounds = [0]
        while self.bounds[-1] < len(ordered):
            first = self.bounds[-1]
            size = rows or 1
            if tokens:
                # The largest number of rows whose positions fit, when all are padded to the widest.
                # No batch can have more rows than `tokens` divided by its smallest width.
                widths = ordered[first : first + tokens // int(ordered[first]) + 1]
                positions = widths * np.arange(1, len(widths) + 1)
                size = max(1, int(np.searchsorted(positions, tokens, side="right")))
            self.bounds.append(min(first + size, len(ordered)))
        self.steps = len(self.bounds) - 1
        # Two epochs are kept, because one reader may be an epoch ahead of another.
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> Ints:
        epoch, index = divmod(step, self.steps)
        rows, batches = self._order(epoch)
        batch = int(batches[index])
        return rows[self.bounds[batch] : self.bounds[batch + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        rows = permutation(len(self.widths), self.seed, epoch, ROW_ORDER)
        # A stable sort keeps the random order among rows of the same width.
        by_width = np.argsort(self.widths[rows], kind="stable")
        return rows[by_width], permutation(self.steps, self.seed, epoch, BATCH_ORDER)


class Shuffled:
    """`plan[step]` is the numbers of a batch's rows. Each epoch has every row once, shuffled anew.

    >>> plan = Shuffled(5, 2, 0)  # 5 rows, 2 in a batch, seed 0
    >>> [plan[step] for step in range(plan.steps)]
    [[3, 4], [0, 1], [2]]

    Args:
        count: number of all rows.
        rows: number of rows in a batch; the last batch of an epoch may have fewer.
        keys: the seed, and further numbers that tell one plan's order from another's.
    """

    def __init__(self, count: int, rows: int, *keys: int) -> None:
        self.count = count
        self.rows = rows
        self.keys = keys
        self.steps = -(-count // rows)  # rounded up

    def __getitem__(self, step: int) -> list[int]:
        epoch, index = divmod(step, self.steps)
        order = permutation(self.count, *self.keys, epoch)
        return [int(row) for row in order[index * self.rows : (index + 1) * self.rows]]


def by_length(rows: Iterable[R], size: int, rng: torch.Generator) -> list[list[R]]:
    """Batches of `size` rows of similar length, in random order.

    Rows that do not fill a last batch are left out: these are the longest ones.
    """
    ordered = sorted(rows, key=len)
    order = torch.randperm(len(ordered) // size, generator=rng).tolist()
    return [ordered[k * size : (k + 1) * size] for k in order]


@lru_cache(maxsize=8)
def permutation(count: int, *keys: int) -> Ints:
    """The numbers below `count` in a random order; the same keys give the same order."""
    return torch.randperm(count, generator=seeded_generator(*keys)).numpy()
