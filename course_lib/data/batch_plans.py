"""Which rows make up a batch: random rows, or rows of similar length, which need less padding.

    Shuffled(5, 2, 0)                     rows in random order; 5 rows, 2 in a batch, seed 0
    SimilarLength(lengths, rows=2, ...)   rows of similar length, and batches in random order
    by_length(rows, 2, rng)               the same for the rows of one file of a stream

The first two are batch plans: `plan[step]` is the indices of the rows in the batch of that step,
for every step from 0. `plan.steps` batches are one epoch, a pass over all rows. A plan depends on
nothing but (seed, step), so a resumed training reads the same batches.

A plan has to know the number of rows. A stream does not, so it draws batches from the rows that it
has read so far, by `by_length`, which is a function and no plan.
"""

from collections.abc import Iterable, Sized
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch

from course_lib.errors import CourseError
from course_lib.objectives import seeded_generator
from course_lib.objectives.collate import Ints, width_of

R = TypeVar("R", bound=Sized)

# An epoch of `SimilarLength` draws twice. Each draw has a random stream of its own.
ROW_ORDER = 0
BATCH_ORDER = 1


class Shuffled:
    """A batch plan of rows in random order. Each epoch has every row once, shuffled anew.

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
        self.steps = -(-count // rows)  # count / rows, rounded up

    def __getitem__(self, step: int) -> list[int]:
        """The indices of the rows in the batch of this step."""
        epoch, index = divmod(step, self.steps)
        order = permutation(self.count, *self.keys, epoch)
        return [int(row) for row in order[index * self.rows : (index + 1) * self.rows]]


class SimilarLength:
    """A batch plan of rows of similar length, which saves padding.

    The rows are sorted by their width, which is the length, rounded up to a multiple of 16 as `pad`
    does. The sorted rows are cut into batches once. Each epoch shuffles the rows of the same width,
    and the batches.

    Give either `rows` or `tokens`.

    Args:
        lengths: number of tokens in each row.
        rows: number of rows in a batch.
        tokens: maximum number of positions in a batch, padding included. A single row that is wider
            is a batch of its own.
        seed: seed of the shuffles.
        max_width: a width is not rounded up past this number.

    Raises:
        CourseError: both of `rows` and `tokens` are given, or neither.
    """

    def __init__(
        self, lengths: Ints, rows: int | None, tokens: int | None, seed: int, max_width: int
    ) -> None:
        self.seed = seed
        self.widths = width_of(lengths, max_width)
        # Batch i has the sorted rows from bounds[i] up to bounds[i + 1].
        if tokens is not None and rows is None:
            self.bounds = bounds_by_tokens(np.sort(self.widths), tokens)
        elif rows is not None and tokens is None:
            self.bounds = [*range(0, len(lengths), rows), len(lengths)]
        else:
            raise CourseError("Give either the rows or the tokens of a batch, and not both.")
        self.steps = len(self.bounds) - 1
        # Two epochs are kept: on a GPU a thread makes batches one step ahead of the training, so it
        # may read the next epoch while the caller still reads this one.
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> Ints:
        """The indices of the rows in the batch of this step."""
        epoch, index = divmod(step, self.steps)
        rows, batches = self._order(epoch)
        batch = int(batches[index])
        return rows[self.bounds[batch] : self.bounds[batch + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        """The rows, sorted by width, and the batches, in the order of this epoch."""
        rows = permutation(len(self.widths), self.seed, epoch, ROW_ORDER)
        # A stable sort keeps the random order among rows of the same width.
        by_width = rows[np.argsort(self.widths[rows], kind="stable")]
        by_width.setflags(write=False)  # the cache hands it out to every caller
        return by_width, permutation(self.steps, self.seed, epoch, BATCH_ORDER)


def bounds_by_tokens(widths: Ints, tokens: int) -> list[int]:
    """Cut sorted rows into batches of at most `tokens` positions, each with as many as fit.

    Each row of a batch is padded to the widest. Two rows of the width 16 fit into 40 positions; a
    third one of the width 32 would make it 96:

    >>> bounds_by_tokens(np.array([16, 16, 32]), 40)  # the batches are rows 0 to 1, and row 2
    [0, 2, 3]

    Args:
        widths: the rows' widths, the smallest first.
        tokens: maximum number of positions in a batch. A single row may have more.
    """
    bounds = [0]
    while bounds[-1] < len(widths):
        first = bounds[-1]
        # No batch can have more rows than `tokens` divided by its smallest width. Looking at one
        # more is enough, and much faster than looking at all rows for each batch.
        nearest = widths[first : first + tokens // int(widths[first]) + 1]
        positions = nearest * np.arange(1, len(nearest) + 1)  # of the first row, the first two, ...
        fitting = int(np.searchsorted(positions, tokens, side="right"))
        bounds.append(first + max(1, fitting))
    return bounds


def by_length(rows: Iterable[R], size: int, rng: torch.Generator) -> list[list[R]]:
    """Batches of `size` rows of similar length, in random order, for rows that are here already.

    Rows that do not fill a last batch are left out: these are the longest ones.
    """
    ordered = sorted(rows, key=len)
    order = torch.randperm(len(ordered) // size, generator=rng).tolist()
    return [ordered[k * size : (k + 1) * size] for k in order]


@lru_cache(maxsize=8)
def permutation(count: int, *keys: int) -> Ints:
    """The numbers below `count` in a random order; the same keys give the same order.

    The array is read-only, because the cache hands it out to every caller.
    """
    order: Ints = torch.randperm(count, generator=seeded_generator(*keys)).numpy()
    order.setflags(write=False)
    return order
