"""Which rows come when. A plan is a function of (seed, step), so it can be asked at any step."""

from collections.abc import Iterable, Sized
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch

from course_lib.objectives import seeded_generator
from course_lib.objectives.collate import Ints, width_of

R = TypeVar("R", bound=Sized)


class BatchPlan:
    """Which rows make up batch number `step`, so that rows of like length stand together.

    Rows are sorted by the width that `pad` gives them and cut into batches once. Each epoch
    shuffles the rows of each width, and the batches.

    Args:
        lengths: tokens of each row.
        rows: rows in a batch; or
        tokens: positions in a batch at most, padding included.
        seed: of the shuffles.
        most: widths are not rounded up past it.
    """

    def __init__(
        self, lengths: Ints, rows: int | None, tokens: int | None, seed: int, most: int
    ) -> None:
        self.seed = seed
        self.widths = width_of(lengths, most)
        ordered = np.sort(self.widths)
        self.bounds = [0]  # batch i has the rows bounds[i] to bounds[i + 1], in this order
        while self.bounds[-1] < len(ordered):
            first = self.bounds[-1]
            size = rows or 1
            if tokens:
                # As many rows as make at most so many positions, all padded to the widest.
                widths = ordered[first : first + tokens // int(ordered[first]) + 1]
                positions = widths * np.arange(1, len(widths) + 1)
                size = max(1, int(np.searchsorted(positions, tokens, side="right")))
            self.bounds.append(min(first + size, len(ordered)))
        self.steps = len(self.bounds) - 1
        # Two epochs are kept, because one reader may be an epoch ahead of another.
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> Ints:
        epoch, at = divmod(step, self.steps)
        rows, batches = self._order(epoch)
        batch = int(batches[at])
        return rows[self.bounds[batch] : self.bounds[batch + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        rows = permutation(len(self.widths), self.seed, epoch, 0)
        by_width = np.argsort(self.widths[rows], kind="stable")
        return rows[by_width], permutation(self.steps, self.seed, epoch, 1)


class Shuffled:
    """Which of `count` rows make up batch number `step`: every epoch takes all in a new order.

    Args:
        count: of all rows.
        rows: rows in a batch; the last one of an epoch may have fewer.
        keys: the seeds of the order, beside the epoch.
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
    """Batches of `size` rows of like length, in random order."""
    ordered = sorted(rows, key=len)
    order = torch.randperm(len(ordered) // size, generator=rng).tolist()
    return [ordered[k * size : (k + 1) * size] for k in order]


@lru_cache(maxsize=8)
def permutation(count: int, *keys: int) -> Ints:
    """All numbers below `count` in an order that the keys decide."""
    return torch.randperm(count, generator=seeded_generator(*keys)).numpy()
