"""One function of an assignment as the teacher writes it: inputs to draw, and the mistakes to
know.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from classroom.checks.base import Case, result
from classroom.checks.exercise import Exercise, Variant
from classroom.checks.homework import Sheet, alike, compare, fingerprint
from course_lib.errors import CourseError

Draw = Callable[[torch.Generator, bool], Sequence[Case]]
VISIBLE_SEED = 0  # of the inputs that students get


@dataclass(frozen=True)
class Task:
    """Stands in a master's hidden region. The right answer is the master's own function, `fn`."""

    fn: Callable[..., Any]
    # (generator, hidden) -> inputs, argument's name -> value; drawn for every grading, so for every
    # seed
    cases: Draw
    # sentence, piece of the solution, what stands there instead
    mistakes: Sequence[tuple[str, str, str]]
    verified: str  # what passing proves
    # (absolute, relative) deviation that is right, for experiments
    band: tuple[float, float] | None = None

    @cached_property
    def exercise(self) -> Exercise:
        """The same as an exercise of a lesson, which knows how to make the mistakes."""
        return Exercise(
            self.fn,
            (),
            [Variant(says, ((old, new),)) for says, old, new in self.mistakes],
            self.verified,
        )

    @property
    def name(self) -> str:
        """The function's name."""
        return self.exercise.name

    def sheet(self, seed: int, *, hidden: bool) -> Sheet:
        """Inputs, right results and what the mistakes give, for one seed; decimals cut to three, as
        in the release.
        """
        cases = self._draw(seed, hidden=hidden)
        return Sheet(
            self.name,
            self.verified,
            cases,
            [self.fn(*case.values()) for case in cases],
            [
                (says, [fingerprint(result(fn, case)) for case in cases])
                for says, fn in self.exercise.wrong
            ],
            self.band,
        )

    def visible_seed(self, seed: int) -> int:
        """This one, or the next that draws visible inputs which the published results do not
        answer.
        """
        accepts = Sheet(self.name, "", (), (), (), self.band).accepts
        known = self._right(VISIBLE_SEED)
        for other in range(seed, seed + 50 * 1_000_003, 1_000_003):
            if not all(any(accepts(old, right) for old in known) for right in self._right(other)):
                return other
        raise CourseError(
            f"{self.name}: the published results answer the visible test for any seed; draw its"
            " inputs."
        )

    def _draw(self, seed: int, *, hidden: bool) -> list[Case]:
        generator = torch.Generator().manual_seed(2 * seed + hidden)
        return [
            {name: _short(value) for name, value in case.items()}
            for case in self.cases(generator, hidden)
        ]

    def _right(self, seed: int) -> list[Any]:
        return [self.fn(*case.values()) for case in self._draw(seed, hidden=False)]

    def prove(self, seed: int = 0) -> None:
        """The solution passes; every mistake fails, on visible and on hidden inputs, or CourseError
        names it.
        """
        drawn = self.visible_seed(seed)
        for hidden in (False, True):
            sheet = self.sheet(
                drawn if seed != VISIBLE_SEED and not hidden else seed, hidden=hidden
            )
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
