"""One function of an assignment as the teacher writes it: inputs to draw, and the mistakes to
know.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from classroom.checks.base import Case, result
from classroom.checks.exercise import Exercise, Variant
from classroom.checks.homework import Sheet, alike, compare, fingerprint
from classroom.grading.guesses import guesses
from course_lib.errors import CourseError

Draw = Callable[[torch.Generator, bool], Sequence[Case]]
VISIBLE_SEED = 0  # of the inputs that students get


@dataclass(frozen=True)
class Task:
    """How a function is tested; it stands in a master's hidden region.

    Attributes:
        fn: the master's own function, which is the right answer.
        cases: (generator, hidden) -> inputs, each argument's name -> value. They are drawn anew for
            every grading, so they must do for every seed.
        mistakes: what is often wrong: a sentence, a piece of the solution, what stands there
            instead.
        verified: what passing proves.
        band: (absolute, relative) deviation that is right, for experiments. It allows for rounding
            and other machines, not for another draw: what is drawn is given to the student, by a
            function of the seed or as an argument.
    """

    fn: Callable[..., Any]
    cases: Draw
    mistakes: Sequence[tuple[str, str, str]]
    verified: str
    band: tuple[float, float] | None = None

    @cached_property
    def exercise(self) -> Exercise:
        """The same as an exercise of a lesson, which knows how to make the mistakes."""
        variants = [Variant(says, ((old, new),)) for says, old, new in self.mistakes]
        return Exercise(self.fn, (), variants, self.verified)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.exercise.name

    def sheet(self, seed: int, *, hidden: bool) -> Sheet:
        """Inputs, right results and what the mistakes give, for one seed.

        Decimals are cut to three, as in the release.
        """
        sheet = self._sheet(seed, hidden=hidden)
        mistakes = []
        for says, fn in self.exercise.wrong:
            mistakes.append((says, [fingerprint(result(fn, case)) for case in sheet.cases]))
        return replace(sheet, mistakes=mistakes)

    def _sheet(self, seed: int, *, hidden: bool) -> Sheet:
        """The same without the mistakes, which take longest."""
        cases = self._draw(seed, hidden=hidden)
        right = [self.fn(*case.values()) for case in cases]
        return Sheet(self.name, self.verified, cases, right, [], self.band)

    @cached_property
    def _published(self) -> Sheet:
        """What students get."""
        return self._sheet(VISIBLE_SEED, hidden=False)

    def _guess(self, sheet: Sheet) -> str:
        """How its results can be guessed from the published ones, "" where they cannot."""
        for how, guessed in guesses(self._published.cases, self._published.right, sheet.cases):
            if all(map(sheet.accepts, guessed, sheet.right)):
                return how
        return ""

    def visible_seed(self, seed: int) -> int:
        """This seed, or the next whose visible inputs the published results do not answer."""
        published = self._published.right
        for other in range(seed, seed + 50 * 1_000_003, 1_000_003):
            sheet = self._sheet(other, hidden=False)
            answered = [
                any(sheet.accepts(old, right) for old in published) for right in sheet.right
            ]
            if not all(answered) and not self._guess(sheet):
                return other
        raise CourseError(
            f"{self.name}: the published results answer the visible test for any seed, or a guess"
            " by them does; draw its inputs, or narrow its band."
        )

    def _draw(self, seed: int, *, hidden: bool) -> list[Case]:
        generator = torch.Generator().manual_seed(2 * seed + hidden)
        return [
            {name: _short(value) for name, value in case.items()}
            for case in self.cases(generator, hidden)
        ]

    def prove(self, seed: int = 0) -> None:
        """Raise if the solution fails, or if a mistake or a guess passes."""
        other_seed = self.visible_seed(seed)  # raises where the inputs are not drawn
        visible_seed = seed if seed == VISIBLE_SEED else other_seed
        sheets = {
            "visible": self.sheet(visible_seed, hidden=False),
            "hidden": self.sheet(seed, hidden=True),
        }
        for kind, sheet in sheets.items():
            self._prove(sheet, kind)
            if kind == "hidden" or visible_seed != VISIBLE_SEED:
                self._prove_measured(sheet, kind)
        print(f"{self.name}: right, and {len(self.mistakes)} mistakes are told apart.")  # noqa: T201  for the teacher

    def _prove(self, sheet: Sheet, kind: str) -> None:
        compare(self.fn, sheet)
        right = [fingerprint(value) for value in sheet.right]
        for says, prints in sheet.mistakes:
            if all(alike(wrong, value) for wrong, value in zip(prints, right, strict=True)):
                raise CourseError(f"{self.name}: no {kind} input shows this mistake: {says}")

    def _prove_measured(self, sheet: Sheet, kind: str) -> None:
        """Raise where a guess passes, or what somebody has measured with other seeds."""
        how = self._guess(sheet)
        if not how and any("seed" in case for case in sheet.cases):
            others = [{**case, "seed": case["seed"] + 1} for case in sheet.cases]
            measured = [self.fn(*case.values()) for case in others]
            if all(map(sheet.accepts, measured, sheet.right)):
                how = "a measurement with another seed"
        if how:
            raise CourseError(
                f"{self.name}: {how} passes the {kind} test. Give the draw to the student (by a"
                " function of the seed, or as an argument), and narrow the band."
            )


def _short(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return (value * 1000).round() / 1000
    return value
