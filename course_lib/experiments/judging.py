"""What the rules of the claims have in common: who is ahead, by how much, and in how many of several comparisons."""

from collections.abc import Iterable

from course_lib.claims.record import Figure, Figures, difference, short


def gap(figures: Figures, better: str, worse: str) -> Figure:
    """How far the first figure is above the second, seed by seed."""
    return difference(figures[better], figures[worse])


def clearly_above(figures: Figures, better: str, worse: str) -> bool:
    """Whether the 95% interval of the paired difference lies above zero."""
    interval = gap(figures, better, worse).interval
    return interval is not None and interval[0] > 0


def above(figures: Figures, better: str, worse: str, by: float = 0.0) -> bool:
    """Whether the mean difference is more than `by`."""
    return gap(figures, better, worse).mean > by


def share(condition: Iterable[bool]) -> tuple[int, int]:
    """How many of how many hold."""
    held = list(condition)
    return sum(held), len(held)


def names(figures: Figures, prefix: str) -> list[str]:
    """What stands after `prefix/` in the figures' names: the tasks of a system, the systems of a table."""
    return [key[len(prefix) + 1 :] for key in figures if key.startswith(f"{prefix}/")]


def percent(value: float) -> str:
    """A share as it is said."""
    return f"{100 * value:.0f}%" if abs(value) >= 0.095 else f"{100 * value:.1f}%"


def points(figure: Figure) -> str:
    """A difference of shares, with half of its interval."""
    if figure.interval is None:
        return f"{100 * figure.mean:+.1f} points"
    return f"{100 * figure.mean:+.1f} ± {100 * (figure.interval[1] - figure.interval[0]) / 2:.1f} points"


__all__ = ["above", "clearly_above", "gap", "names", "percent", "points", "share", "short"]
