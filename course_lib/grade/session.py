"""One student's notebook as it runs in the box: started again where it dies, and asked for its functions' results."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.check.base import NotWrittenError, WrongError
from course_lib.grade.box import Box, GoneError, Limits, Sandbox, patience

Outputs = list[dict[str, Any]]


class EndTest(BaseException):
    """A function's test cannot go on; the message says why. No `except Exception` on the way catches it."""


class MissingFunction(EndTest):
    """There is no function of this name (yet)."""


class OutOfTime(BaseException):
    """The time for the whole submission is used up."""


class Session:
    """Runs cells and calls functions. When the process dies, the next request starts a new one, which first runs again
    all cells that had come to an end, so that a death costs the cell that caused it and nothing else.

    Args:
        way: how it is shut in. limits: what it may use. files: what stands in its home.
    """

    def __init__(self, way: Sandbox, limits: Limits, files: tuple[Path, ...] = ()) -> None:
        self.way, self.limits, self.files = way, limits, files
        self.box: Box | None = Box(way, limits, files)
        self.started = time.monotonic()
        self.restarts = 0
        self.done: list[str] = []  # sources of the cells that came to an end
        self.hopeless: dict[str, str] = {}  # functions that ended the process, and how
        self._until = 0.0  # when the test now in progress must be over

    def close(self) -> None:
        """End the process."""
        if self.box is not None:
            self.box.close()

    def run(self, source: str) -> tuple[Outputs, str]:
        """Run a cell: its outputs, and how it ended the process, or "".

        Raises:
            OutOfTime: the whole submission's time is over.
        """
        try:
            answer = self._ask(self.limits.cell_seconds * patience(), do="run", source=source)
        except GoneError as gone:
            return [], str(gone)
        self.done.append(source)
        outputs = answer.get("outputs")
        return (outputs if isinstance(outputs, list) else []), ""

    def begin_test(self) -> None:
        """From here, calls together may take as long as one cell."""
        self._until = time.monotonic() + self.limits.cell_seconds * patience()

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for the student's function: takes and returns data, computes in the box."""

        def call(*args: Any) -> Any:
            if name in self.hopeless:
                raise EndTest(self.hopeless[name])
            try:
                answer = self._ask(self._until - time.monotonic(), do="call", name=name, args=list(args))
            except GoneError as gone:
                self.hopeless[name] = f"When it was called, it {gone}."
                raise EndTest(self.hopeless[name]) from None
            return _result(answer)

        return call

    def _ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        if self._left() <= 0:
            raise OutOfTime
        if self.box is None:
            self._restart()
        assert self.box is not None
        try:
            return self.box.ask(max(0.0, min(seconds, self._left())), **request)
        except GoneError:
            self.box = None
            if self._left() <= 0:
                raise OutOfTime from None
            raise

    def _left(self) -> float:
        """Seconds left for the whole submission."""
        return self.limits.seconds * patience() - (time.monotonic() - self.started)

    def _restart(self) -> None:
        """A new process, with the cells that had come to an end run again."""
        if self.restarts >= self.limits.restarts:
            raise GoneError("was not tried: Python had ended too often before")
        self.restarts += 1
        self.box = Box(self.way, self.limits, self.files)
        for source in list(self.done):
            try:
                seconds = min(self.limits.cell_seconds * patience(), self._left())
                self.box.ask(max(0.0, seconds), do="run", source=source)
            except GoneError:
                self.done.remove(source)  # it has lived once; it does not get a third chance
                self.box = None
                return self._restart()
        return None


def _result(answer: dict[str, Any]) -> Any:
    """The value of a call, or its exception."""
    kind, text = answer.get("error"), str(answer.get("text", ""))
    if kind is None:
        return answer.get("value")
    if kind == "missing":
        raise MissingFunction("There is no function of this name when the notebook has run to its end.")
    if kind == "stub":
        raise NotWrittenError
    if kind == "changed":
        raise WrongError(f"It changes its argument number {int(text) + 1 if text.isdigit() else '?'} in place.")
    name = str(answer.get("type", "Error"))
    raise type(name if name.isidentifier() and len(name) < 60 else "Error", (Exception,), {})(text)
