"""The conversation with the box about one notebook: run its cells, call its functions.

It keeps the account of time, and starts a new process where one has died.
"""

import base64
import builtins
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from classroom.checks.base import NotWrittenError, WrongError
from classroom.grading.box import PATIENCE, Box, GoneError, Limits, Sandbox

EXCEPTIONS = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}


class EndTest(BaseException):
    """A function's test cannot go on; the message says why. No `except Exception` on the way
    catches it.
    """


class MissingFunction(BaseException):
    """There is no function of this name (yet)."""


class OutOfTime(BaseException):
    """The time for the whole submission is used up."""


class Session:
    """Runs cells and calls functions.

    When the process dies, the next request starts a new one, which first runs again all cells that
    had come to an end. So a death costs the cell that caused it and nothing else.

    Args:
        way: how the process is shut in.
        limits: what it may use.
        files: of the course, shown in its home.
        own: the student's, by their paths; they are written there.
    """

    def __init__(
        self,
        way: Sandbox,
        limits: Limits,
        files: tuple[Path, ...] = (),
        own: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self.way, self.limits, self.files, self.own = way, limits, files, own
        self.box: Box | None = self._new_box()
        self.spent = 0.0  # processor time, in seconds
        self.restarts = 0
        self.done: list[str] = []  # sources of the cells that came to an end
        self.hopeless: dict[str, str] = {}  # functions that ended the process, and how
        self.saw_hidden = False  # whether hidden inputs have come into the process

    def close(self) -> None:
        """End the process."""
        if self.box is not None:
            self.box.close()

    def renew(self) -> None:
        """A new process that knows no cell yet."""
        self.close()
        self.box = self._new_box()
        self.done = []
        self.saw_hidden = False

    def _new_box(self) -> Box:
        """A process that knows no cell, with the student's files beside it."""
        box = Box(self.way, self.limits, self.files)
        for name, data in self.own.items():
            text = base64.b64encode(data).decode()
            box.ask(self.limits.cell_seconds, do="file", name=name, data=text)
        return box

    def run(self, source: str) -> tuple[list[Any], str]:
        """Run a cell: its outputs, and how it ended the process, or ""."""
        try:
            answer = self._ask(self.limits.cell_seconds, do="run", source=source)
        except GoneError as gone:
            return [], f"{gone} ({gone.how})" if gone.how else str(gone)
        self.done.append(source)
        outputs = answer.get("outputs")
        return (outputs if isinstance(outputs, list) else []), ""

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for the student's function, which takes and returns data and computes in the
        box.

        All its calls together may take as long as one cell.
        """
        until = self.spent + self.limits.cell_seconds

        def call(*args: Any) -> Any:
            if name in self.hopeless:
                raise EndTest(self.hopeless[name])
            try:
                answer = self._ask(until - self.spent, do="call", name=name, args=list(args))
            except GoneError as gone:
                self.hopeless[name] = f"When it was called, it {gone}."
                raise EndTest(self.hopeless[name]) from None
            return value_of(answer, len(args))

        return call

    def _ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        """Ask the process, and add up the time that it took."""
        if self.spent >= self.limits.seconds:
            raise OutOfTime
        self._restart()
        assert self.box is not None
        seconds = max(1.0, min(seconds, self.limits.seconds - self.spent))
        began = time.monotonic()
        answer = {"took": seconds}
        try:
            answer = self.box.ask(seconds, **request)
        except GoneError:
            self.box = None
            raise
        finally:
            self.spent += _time_spent(answer.get("took"), seconds, time.monotonic() - began)
        return answer

    def _restart(self) -> None:
        """A new process, with the cells that had come to an end run again.

        A cell that does not come to its end this time is left out.
        """
        while self.box is None:
            if self.restarts >= self.limits.restarts:
                raise GoneError("was not tried: Python had ended too often before")
            self.restarts += 1
            # a slow start of Python is not the student's time
            self.box = self._new_box()
            for source in self.done:
                try:
                    self._ask(self.limits.cell_seconds, do="run", source=source)
                except GoneError:
                    self.done.remove(source)
                    break


def _time_spent(took: Any, most: float, passed: float) -> float:
    """The time that counts of a request.

    Args:
        took: processor time by the process's own account, which may be anything.
        most: what counts where that is no number.
        passed: by the clock. No more than this counts, and no less than a part of it.
    """
    seconds = took if isinstance(took, int | float) else most
    return max(min(passed, seconds), passed / PATIENCE)


class RemoteError(Exception):
    """An exception that a student's function raised in the box.

    Attributes:
        own_line: of the student's code, where it was raised; "" where it is not known.
    """

    own_line = ""


def value_of(answer: dict[str, Any], arguments: int) -> Any:
    """The value of a call, or its exception.

    Args:
        answer: of the box, which may hold anything.
        arguments: how many the function was given.
    """
    kind = answer.get("error")
    if kind is None:
        return answer.get("value")
    if kind == "missing":
        raise MissingFunction(
            "There is no function of this name when the notebook has run to its end."
        )
    if kind == "stub":
        raise NotWrittenError
    if kind == "changed":
        number = answer.get("argument")
        which = "an argument"
        if type(number) is int and 0 <= number < arguments:
            which = f"its argument number {number + 1}"
        raise WrongError(f"It changes {which} in place.")
    # a name of their own could tell what the hidden inputs are
    name = answer.get("type")
    if not isinstance(name, str) or name not in EXCEPTIONS:
        name = "Error"
    error = type(name, (RemoteError,), {})(_words(answer.get("text"), 300))
    error.own_line = _words(answer.get("line"), 120)
    raise error


def _words(value: Any, most: int) -> str:
    """Text of a student's, on one line; "" where it is no text."""
    return " ".join(value.split())[:most] if isinstance(value, str) else ""
