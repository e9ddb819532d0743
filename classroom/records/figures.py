"""A measured quantity with its interval, and the words for what became of a claim."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from course_lib.errors import CourseError

Verdict = Literal["reproduced", "partly", "no difference", "opposite", "not tested"]
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Figure:
    """One measured quantity: its value with each seed, and the 95% interval of the mean by
    Student's t.

    One value alone has no interval (None), unless it is exact: then the interval is the value
    itself."""

    seeds: list[float]
    mean: float
    interval: tuple[float, float] | None

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; twice the mean where there is none."""
        return self.interval or (self.mean, self.mean)

    def __str__(self) -> str:
        half = (
            ""
            if self.interval is None
            else f" ± {short((self.interval[1] - self.interval[0]) / 2)}"
        )
        return short(self.mean) + ("" if len(self.seeds) == 1 else half)


Figures = Mapping[str, Figure]


def figure(values: Sequence[float], *, exact: bool = False) -> Figure:
    """Values of several seeds to their mean and its 95% interval."""
    if not values or not all(math.isfinite(value) for value in values):
        raise CourseError(f"A figure needs finite numbers, one a seed; it got {list(values)}.")
    values = [float(value) for value in values]
    mean = sum(values) / len(values)
    if exact:
        return Figure(values, mean, (min(values), max(values)))
    if len(values) < 2:
        return Figure(values, mean, None)
    from scipy.stats import t

    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = float(t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return Figure(values, mean, (mean - half, mean + half))


def difference(a: Figure, b: Figure) -> Figure:
    """a - b, paired by seed."""
    return figure([x - y for x, y in zip(a.seeds, b.seeds, strict=True)])


def short(value: float) -> str:
    """A number as one says it: three digits or so, whole ones whole."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= least:
            return f"{value:.{digits}f}"
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"
