"""What somebody answers who has measured nothing, but knows the published results.

`Task.prove` tries all of these, so that no constant, no line and no power earns the points of a
measurement.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from classroom.checks.base import Case

POWERS = (-2.0, -1.0, -0.5, 0.25, 1 / 3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


def guesses(
    published: Sequence[Case], results: Sequence[Any], cases: Sequence[Case]
) -> Iterator[tuple[str, list[float]]]:
    """Each way to guess in words, and its results for other inputs.

    Args:
        published: inputs that everybody can read.
        results: right for them; where they are no numbers, there is nothing to guess by.
        cases: the inputs that are asked for.
    """
    if not results or not all(map(_is_number, results)):
        return
    known = list(zip(published, results, strict=True))
    for value in (*results, sum(results) / len(results)):
        yield f"the constant {value:.3g}", [value] * len(cases)
    yield (
        "the published result of the most similar input",
        [_nearest(case, known) for case in cases],
    )
    for name in _numeric(cases[0]):
        for power in POWERS:
            guessed = [_on_curve(case, known, name, power) for case in cases]
            if all(map(math.isfinite, guessed)):
                curve = "a line" if power == 1 else f"a curve of {name}**{power:.2g}"
                yield f"{curve} through the published results over `{name}`", guessed


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numeric(case: Case) -> list[str]:
    """The arguments that a result can depend on as a curve; a seed's number means nothing."""
    return [name for name, value in case.items() if _is_number(value) and name != "seed"]


def _unlike(one: Case, other: Case) -> tuple[int, float]:
    """How many arguments differ that are words, and how far the numbers are apart."""
    words = sum(str(one[name]) != str(other[name]) for name in one if name not in _numeric(one))
    return words, sum(abs(one[name] - other[name]) for name in _numeric(one))


def _nearest(case: Case, known: list[tuple[Case, float]]) -> float:
    return min(known, key=lambda row: _unlike(case, row[0]))[1]


def _on_curve(case: Case, known: list[tuple[Case, float]], name: str, power: float) -> float:
    """a + b x ** power through two published results, of inputs with the same words if there are
    two; NaN where there is no such curve.
    """
    rows = sorted(known, key=lambda row: _unlike(case, row[0]))
    points: dict[float, float] = {}
    for other, result in rows:
        points.setdefault(other[name], result)
    if len(points) < 2:
        return rows[0][1]
    (x, y), (u, v) = itertools.islice(points.items(), 2)
    try:
        slope = (v - y) / (u**power - x**power)
        return float(y + slope * (case[name] ** power - x**power))
    except (ZeroDivisionError, OverflowError, TypeError):  # TypeError: a complex number
        return math.nan
