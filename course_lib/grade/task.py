"""One function of an assignment as the teacher writes it: inputs to draw, and the mistakes to know."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from course_lib.check.base import Case, Crash
from course_lib.check.homework import Sheet, alike, compare, fingerprint
from course_lib.errors import CourseError

Draw = Callable[[torch.Generator, bool], Sequence[Case]]


@dataclass(frozen=True)
class Task:
    """Stands in a master's hidden region. The right answer is the master's own function.

    Args:
        fn: the master's solution. cases: (generator, hidden) -> inputs, each a dict from argument's name to value;
            drawn anew for every grading run, so they must do for every seed.
        mistakes: (sentence for the student, a piece of the solution's source, what stands there instead).
        verified: what passing proves. band: (absolute, relative) deviation that is right, for experiments.

    Raises:
        CourseError: a mistake's piece no longer stands in the solution (when the mistakes are first needed).
    """

    fn: Callable[..., Any]
    cases: Draw
    mistakes: Sequence[tuple[str, str, str]]
    verified: str
    band: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.fn.__name__

    @cached_property
    def wrong(self) -> list[tuple[str, Callable[..., Any]]]:
        """The mistakes as functions."""
        return [(says, self.variant(old, new)) for says, old, new in self.mistakes]

    def variant(self, old: str, new: str) -> Callable[..., Any]:
        """The solution with one piece of its source replaced."""
        source = inspect.getsource(self.fn)
        if old not in source:
            raise CourseError(f"{self.name}: the solution has no {old!r} any more; mend the list of mistakes.")
        space: dict[str, Any] = dict(self.fn.__globals__)
        exec(compile(source.replace(old, new), f"<{self.name}>", "exec"), space)  # noqa: S102  the master's own code
        made: Callable[..., Any] = space[self.name]
        return made

    def sheet(self, seed: int, *, hidden: bool) -> Sheet:
        """Inputs, right results and what the mistakes give, for one seed; decimals cut to three, as in the release."""
        generator = torch.Generator().manual_seed(2 * seed + hidden)
        cases = [{name: _short(value) for name, value in case.items()} for case in self.cases(generator, hidden)]
        return Sheet(
            self.name,
            self.verified,
            cases,
            [self.fn(*case.values()) for case in cases],
            [(says, [fingerprint(_result(fn, case)) for case in cases]) for says, fn in self.wrong],
            self.band,
        )

    def prove(self, seed: int = 0) -> None:
        """The solution passes; every mistake fails, on visible and on hidden inputs. Prints one line.

        Raises:
            CourseError: names the mistake that would get through.
        """
        for hidden in (False, True):
            sheet = self.sheet(seed, hidden=hidden)
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


def _result(fn: Callable[..., Any], case: Mapping[str, Any]) -> Any:
    given = [value.clone() if isinstance(value, Tensor) else value for value in case.values()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn(*given)
    except Exception as error:  # noqa: BLE001  a mistake may crash
        return Crash(error)
