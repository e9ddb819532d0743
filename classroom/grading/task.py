"""One function of an assignment as the teacher writes it: inputs to draw, and the mistakes to know."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from classroom.checks.base import Case, result
from classroom.checks.exercise import Exercise, Mistake
from classroom.checks.homework import Sheet, alike, compare, fingerprint
from course_lib.errors import CourseError

Draw = Callable[[torch.Generator, bool], Sequence[Case]]
VISIBLE_SEED = 0  # of the inputs that students get


@dataclass(frozen=True)
class Task:
    """Stands in a master's hidden region. The right answer is the master's own function, `fn`."""

    fn: Callable[..., Any]
    cases: Draw  # (generator, hidden) -> inputs, argument's name -> value; drawn for every grading, so for every seed
    mistakes: Sequence[tuple[str, str, str]]  # sentence, piece of the solution, what stands there instead
    verified: str  # what passing proves
    band: tuple[float, float] | None = None  # (absolute, relative) deviation that is right, for experiments

    @cached_property
    def exercise(self) -> Exercise:
        """The same as an exercise of a lesson, which knows how to make the mistakes."""
        return Exercise(self.fn, (), [Mistake(says, ((old, new),)) for says, old, new in self.mistakes], self.verified)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.exercise.name

    def sheet(self, seed: int, *, hidden: bool) -> Sheet:
        """Inputs, right results and what the mistakes give, for one seed; decimals cut to three, as in the release."""
        generator = torch.Generator().manual_seed(2 * seed + hidden)
        cases = [{name: _short(value) for name, value in case.items()} for case in self.cases(generator, hidden)]
        return Sheet(
            self.name,
            self.verified,
            cases,
            [self.fn(*case.values()) for case in cases],
            [(says, [fingerprint(result(fn, case)) for case in cases]) for says, fn in self.exercise.wrong],
            self.band,
        )

    def visible(self, seed: int) -> Sheet:
        """The visible test as it is graded: drawn anew until the published results cannot answer it all."""
        known = self.sheet(VISIBLE_SEED, hidden=False).right
        for number in range(50):
            sheet = self.sheet(seed + 1_000_003 * number, hidden=False)
            if not all(any(sheet.accepts(old, right) for old in known) for right in sheet.right):
                return sheet
        raise CourseError(f"{self.name}: the published results answer the visible test for any seed; draw its inputs.")

    def prove(self, seed: int = 0) -> None:
        """The solution passes; every mistake fails, on visible and on hidden inputs, or CourseError names it."""
        published, hidden_one = self.sheet(VISIBLE_SEED, hidden=False), self.sheet(seed, hidden=True)
        for sheet, hidden in ((published, False), (self.visible(seed), False), (hidden_one, True)):
            compare(self.fn, sheet)
            right = [fingerprint(value) for value in sheet.right]
            for says, prints in sheet.mistakes:
                if all(alike(a, b) for a, b in zip(prints, right, strict=True)):
                    kind = "hidden" if hidden else "visible"
                    raise CourseError(f"{self.name}: no {kind} input shows this mistake: {says}")
        print(f"{self.name}: right, and {len(self.mistakes)} mistakes are told apart.")  # noqa: T201  for the teacher


def _short(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return (value * 1000).round() / 1000
    return value
