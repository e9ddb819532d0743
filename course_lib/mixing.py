"""Many tasks, one model: how often each is drawn (Raffel et al. 2020, section 3.5.2), and batches of such a mixture.

examples-proportional   r_m ~ min(e_m, K): by size, but no task counts for more than K examples
temperature-scaled      r_m^(1/T): T = 1 is proportional; the larger T, the more equal
equal                   every task alike
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from course_lib.corrupt import generator
from course_lib.errors import CourseError
from course_lib.inputs import Collates, Row
from course_lib.losses import Batch
from course_lib.train import Batches

BLOCK = 1024  # draws made at a time


def proportional(sizes: Sequence[int], *, limit: int | None = None) -> list[float]:
    """Examples-proportional mixing: each task's share of the draws.

    Args:
        sizes: examples of each task. limit: K, T5's artificial limit on a task's size; None for none.

    >>> proportional([100, 300, 10_000], limit=400)
    [0.125, 0.375, 0.5]
    """
    if not sizes or min(sizes) < 1:
        raise CourseError(f"The sizes of the tasks are {list(sizes)}; each needs at least one example.")
    if limit is not None and limit < 1:
        raise CourseError(f"limit is {limit}; a task must be allowed at least one example.")
    counted = [size if limit is None else min(size, limit) for size in sizes]
    return [count / sum(counted) for count in counted]


def temperature_scaled(sizes: Sequence[int], temperature: float = 2.0, *, limit: int | None = 2**21) -> list[float]:
    """Temperature-scaled mixing: the proportional shares to the power 1 / temperature, made to add up to 1.

    limit: as for `proportional`; the paper's is 2^21 here, so large that it hardly matters.

    >>> temperature_scaled([100, 900], temperature=2)
    [0.25, 0.75]
    """
    if temperature <= 0:
        raise CourseError(f"temperature is {temperature}; it must be above 0.")
    scaled = [rate ** (1 / temperature) for rate in proportional(sizes, limit=limit)]
    return [rate / sum(scaled) for rate in scaled]


def equal(sizes: Sequence[int]) -> list[float]:
    """Every task alike: small ones are then repeated often, large ones hardly read."""
    return [1 / len(sizes) for _ in proportional(sizes)]


def rates(
    sizes: Sequence[int],
    how: Literal["proportional", "temperature", "equal"] = "proportional",
    *,
    limit: int | None = None,
    temperature: float = 2.0,
) -> list[float]:
    """One of the three by its name.

    Raises:
        CourseError: no such mixing.
    """
    if how == "proportional":
        return proportional(sizes, limit=limit)
    if how == "temperature":
        return temperature_scaled(sizes, temperature, limit=limit)
    if how == "equal":
        return equal(sizes)
    raise CourseError(f"There is no mixing {how!r}; there are proportional, temperature and equal.")


class Draws:
    """Draw number -> (task, how many draws of this task came before): a pure function of the rates and the seed.

    >>> draws = Draws([0.5, 0.5], seed=0)
    >>> [draws[i] for i in range(4)]
    [(1, 0), (1, 1), (1, 2), (0, 0)]
    """

    def __init__(self, rates: Sequence[float], seed: int) -> None:
        if not rates or min(rates) < 0 or abs(sum(rates) - 1) > 1e-6:
            raise CourseError(f"The rates are {list(rates)}; give shares that add up to 1.")
        self.rates, self.seed = torch.tensor(rates, dtype=torch.float64), seed
        self._before = [torch.zeros(len(rates), dtype=torch.int64)]  # draws of each task before each block
        self._last: tuple[int, Tensor] = (-1, torch.zeros(0))

    def __getitem__(self, number: int) -> tuple[int, int]:
        block, index = divmod(number, BLOCK)
        while len(self._before) <= block:
            counts = torch.bincount(self._block(len(self._before) - 1), minlength=len(self.rates))
            self._before.append(self._before[-1] + counts)
        drawn = self._block(block)
        task = int(drawn[index])
        return task, int(self._before[block][task] + (drawn[:index] == task).sum())

    def _block(self, block: int) -> Tensor:
        if self._last[0] != block:
            rng = generator(self.seed, block)
            self._last = block, torch.multinomial(self.rates, BLOCK, replacement=True, generator=rng)
        return self._last[1]


class MixedBatches:
    """Batches of several sources in turn, each whole batch from one of them: for objectives that differ in shape.

    The k-th batch drawn from a source is its batch number k; batch `step` depends on (sources, rates, seed, step) only.
    """

    def __init__(self, sources: Sequence[Batches], rates: Sequence[float], *, seed: int = 0) -> None:
        if len(sources) != len(rates):
            raise CourseError(f"{len(sources)} sources came with {len(rates)} rates; give one for each.")
        self.sources, self.draws = sources, Draws(rates, seed)

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        source, number = self.draws[step]
        of = self.sources[source]
        return of[number % len(of)] if isinstance(of, Sequence) else of[number]


class MixedTasks:
    """Batches whose rows come from several tasks of one frame, each row drawn by its task's rate, as T5 mixes them.

    Args:
        frame: collates the rows; text to text, every task is a source and a target (`inputs.SourceTarget`).
        tasks: name -> framed rows. rates: share of the draws of each, in this order. batch: rows a batch.

    Each task is read in random order, from end to end before it is read again.
    """

    def __init__(
        self, frame: Collates, tasks: Mapping[str, Sequence[Row]], rates: Sequence[float], *, batch: int, seed: int = 0
    ) -> None:
        if len(tasks) != len(rates):
            raise CourseError(f"{len(tasks)} tasks came with {len(rates)} rates; give one for each.")
        if empty := [name for name, rows in tasks.items() if not rows]:
            raise CourseError(f"The task {empty[0]!r} has no rows.")
        self.frame, self.tasks, self.names = frame, tasks, list(tasks)
        self.draws, self.batch, self.seed = Draws(rates, seed), batch, seed
        self._orders: dict[tuple[int, int], list[int]] = {}

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        return self.frame.collate([row for _, row in self.rows(step)])

    def rows(self, step: int) -> list[tuple[str, Row]]:
        """The rows of this step's batch, each with its task's name."""
        return [self._row(*self.draws[number]) for number in range(step * self.batch, (step + 1) * self.batch)]

    def _row(self, task: int, number: int) -> tuple[str, Row]:
        name = self.names[task]
        rows = self.tasks[name]
        epoch, index = divmod(number, len(rows))
        if (task, epoch) not in self._orders:
            self._orders.pop((task, epoch - 2), None)
            order = torch.randperm(len(rows), generator=generator(self.seed, task, epoch)).tolist()
            self._orders[task, epoch] = order
        return name, rows[self._orders[task, epoch][index]]
