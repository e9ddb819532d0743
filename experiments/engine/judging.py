"""The rules of the claims as data: what has to hold for "reproduced", and what for "partly".

    verdict(clearly("loss/ReLU", "loss/GELU"), partly=above("loss/ReLU", "loss/GELU"))
    statements(above("hint", "none", by=5), clearly("lead", "hint"))        # all hold: reproduced; some: partly

A quantity is a figure's name, a number, two names (a, b) for a minus b seed by seed, or a `Ratio`. The words of every
rule stand in data/claims.yaml.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from classroom.records.record import Figure, Figures, Verdict, figure, short

MILLION, BILLION = 1e6, 1e9
MOST_FACTS = 12  # of a verdict's reason

Judge = Callable[[Figures], tuple[Verdict, str]]  # figures -> verdict and why


@dataclass(frozen=True)
class Ratio:
    """a / b seed by seed, or its logarithm."""

    a: str
    b: str
    log: bool = False

    def __str__(self) -> str:
        return f"{'log of ' * self.log}{self.a} / {self.b}"


Quantity = str | float | tuple[str, str] | Ratio


@dataclass(frozen=True)
class Statement:
    """Something about the figures that holds or does not, and what there is to say of it."""

    holds: Callable[[Figures], bool]
    facts: Callable[[Figures], list[str]]

    def __call__(self, figures: Figures) -> bool:
        return self.holds(figures)

    def __and__(self, other: "Statement") -> "Statement":
        return all_of(self, other)

    def __or__(self, other: "Statement") -> "Statement":
        return any_of(self, other)

    def __invert__(self) -> "Statement":
        return Statement(lambda f: not self.holds(f), self.facts)


def above(a: Quantity, b: Quantity, by: float = 0.0) -> Statement:
    """The mean of a minus b is more than 0; with `by`, at least that."""
    return _compared(a, b, lambda gap: gap.mean >= by if by else gap.mean > 0)


def clearly(a: Quantity, b: Quantity = 0.0) -> Statement:
    """The 95% interval of the paired difference a minus b lies above 0."""
    return _compared(a, b, lambda gap: gap.interval is not None and gap.interval[0] > 0)


def exactly(a: Quantity, b: Quantity) -> Statement:
    """Both are the same with every seed."""
    return _compared(a, b, lambda gap: not any(gap.seeds))


def within(a: Quantity, least: float, most: float) -> Statement:
    """The value lies in this range with every seed."""
    return _compared(a, 0.0, lambda value: all(least <= x <= most for x in value.seeds))


def ratio(a: str, b: str | float, least: float = 0.0, most: float = math.inf) -> Statement:
    """The first mean divided by the second lies in this range."""

    def divided(f: Figures) -> float:
        return f[a].mean / (f[b].mean if isinstance(b, str) else b)

    other = b if isinstance(b, str) else short(b)
    return such_that(lambda f: least <= divided(f) <= most, lambda f: f"{a} is {divided(f):.3g} times {other}")


def near(a: str, b: str | float, share: float) -> Statement:
    """The first mean is off the second by no more than this share of it."""
    return ratio(a, b, 1 - share, 1 + share)


def always(a: str, b: str, times: float = 1.0) -> Statement:
    """The first is above so many times the second with every seed."""
    return _compared(a, b, lambda gap: True) & Statement(
        lambda f: all(x > times * y for x, y in zip(f[a].seeds, f[b].seeds, strict=True)), lambda f: []
    )


def such_that(holds: Callable[[Figures], bool], tell: Callable[[Figures], str] | None = None) -> Statement:
    """What no other statement here says. A function with a docstring is told by it."""

    def facts(f: Figures) -> list[str]:
        about = holds.__doc__
        return [tell(f)] if tell else [f"{about.rstrip('.')}: {'yes' if holds(f) else 'no'}"] if about else []

    return Statement(holds, facts)


def at_least(count: int, *parts: Statement) -> Statement:
    """So many of the parts hold."""
    return Statement(
        lambda f: sum(part(f) for part in parts) >= count, lambda f: [fact for part in parts for fact in part.facts(f)]
    )


def all_of(*parts: Statement) -> Statement:
    """All hold."""
    return at_least(len(parts), *parts)


def any_of(*parts: Statement) -> Statement:
    """One of them holds, or more."""
    return at_least(1, *parts)


def most_of(*parts: Statement) -> Statement:
    """More than half of them hold."""
    return at_least(len(parts) // 2 + 1, *parts)


def verdict(reproduced: Statement, partly: Statement | None = None) -> Judge:
    """A rule: "reproduced" if the first holds, "partly" if the second does, otherwise "not at this scale"."""

    def judge(f: Figures) -> tuple[Verdict, str]:
        facts = list(dict.fromkeys([*reproduced.facts(f), *(partly.facts(f) if partly else [])]))
        more = [f"{len(facts) - MOST_FACTS} more"] if len(facts) > MOST_FACTS else []
        why = "; ".join([*facts[:MOST_FACTS], *more]) + "."
        if reproduced(f):
            return "reproduced", why
        return ("partly" if partly is not None and partly(f) else "not at this scale"), why

    return judge


def statements(*parts: Statement) -> Judge:
    """A rule: "reproduced" if all parts hold, "partly" if some do."""
    rule = verdict(all_of(*parts), any_of(*parts))

    def judge(f: Figures) -> tuple[Verdict, str]:
        found, why = rule(f)
        return found, f"{sum(part(f) for part in parts)} of {len(parts)} statements hold: {why}"

    return judge


def by_figures(make: Callable[[Figures], Judge]) -> Judge:
    """A rule whose parts follow from which figures there are, or which is the highest of some."""
    return lambda f: make(f)(f)


def names(figures: Figures, prefix: str) -> list[str]:
    """What stands after `prefix/` in the figures' names: the tasks of a system, the systems of a table."""
    return [key[len(prefix) + 1 :] for key in figures if key.startswith(f"{prefix}/")]


def highest(figures: Figures, keys: list[str]) -> str:
    """Of these figures' names that of the largest mean, the first of several."""
    return max(keys, key=lambda key: figures[key].mean)


def _compared(a: Quantity, b: Quantity, test: Callable[[Figure], bool]) -> Statement:
    return Statement(lambda f: test(_minus(f, a, b)), lambda f: [*_told(f, a), *_told(f, b)])


def _minus(f: Figures, a: Quantity, b: Quantity) -> Figure:
    return figure(np.atleast_1d(np.subtract(_seeds(f, a), _seeds(f, b))).tolist())


def _seeds(f: Figures, quantity: Quantity) -> list[float] | float:
    """The values of all seeds; a number as it is."""
    if isinstance(quantity, str):
        return f[quantity].seeds
    if isinstance(quantity, tuple):
        return _minus(f, *quantity).seeds
    if isinstance(quantity, Ratio):
        shares = np.divide(f[quantity.a].seeds, f[quantity.b].seeds)
        return list((np.log(shares) if quantity.log else shares).tolist())
    return quantity


def _told(f: Figures, quantity: Quantity) -> list[str]:
    if isinstance(quantity, float | int):
        return []
    name = " minus ".join(quantity) if isinstance(quantity, tuple) else str(quantity)
    return [f"{name} {f[quantity] if isinstance(quantity, str) else _minus(f, quantity, 0.0)}"]
