"""Grade one submission: run it in the box, ask its functions, compare here, write down what was found."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from classroom.checks.base import NotWrittenError, WrongError
from classroom.checks.homework import Sheet, compare
from classroom.grading.assignment import Assignment, Part
from classroom.grading.box import PATIENCE, Box, GoneError, Limits, Sandbox
from classroom.grading.collect import GradingRecord, GradingStep, Submission, repair, written


class EndTest(BaseException):
    """A function's test cannot go on; the message says why. No `except Exception` on the way catches it."""


class MissingFunction(BaseException):
    """There is no function of this name (yet)."""


class OutOfTime(BaseException):
    """The time for the whole submission is used up."""


class Session:
    """Runs cells and calls functions. When the process dies, the next request starts a new one, which first runs again
    all cells that had come to an end, so that a death costs the cell that caused it and nothing else."""

    def __init__(self, way: Sandbox, limits: Limits, files: tuple[Path, ...] = ()) -> None:
        self.way, self.limits, self.files = way, limits, files
        self.box: Box | None = Box(way, limits, files)
        self.spent = 0.0  # processor time, in seconds
        self.restarts = 0
        self.done: list[str] = []  # sources of the cells that came to an end
        self.hopeless: dict[str, str] = {}  # functions that ended the process, and how

    def close(self) -> None:
        """End the process."""
        if self.box is not None:
            self.box.close()

    def run(self, source: str) -> tuple[list[dict[str, Any]], str]:
        """Run a cell: its outputs, and how it ended the process, or ""."""
        try:
            answer = self._ask(self.limits.cell_seconds, do="run", source=source)
        except GoneError as gone:
            return [], str(gone)
        self.done.append(source)
        outputs = answer.get("outputs")
        return (outputs if isinstance(outputs, list) else []), ""

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for the student's function: takes and returns data, computes in the box; all its calls together
        may take as long as one cell."""
        until = self.spent + self.limits.cell_seconds

        def call(*args: Any) -> Any:
            if name in self.hopeless:
                raise EndTest(self.hopeless[name])
            try:
                answer = self._ask(until - self.spent, do="call", name=name, args=list(args))
            except GoneError as gone:
                self.hopeless[name] = f"When it was called, it {gone}."
                raise EndTest(self.hopeless[name]) from None
            return _result(answer)

        return call

    def _ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        """Ask the process, and add up what it took: by its own account, but no less than a part of the clock's time."""
        if self.spent >= self.limits.seconds:
            raise OutOfTime
        self._restart()
        assert self.box is not None
        seconds = max(1.0, min(seconds, self.limits.seconds - self.spent))
        began, answer = time.monotonic(), {"took": seconds}
        try:
            answer = self.box.ask(seconds, **request)
        except GoneError:
            self.box = None
            raise
        finally:
            passed = time.monotonic() - began
            self.spent += max(min(passed, answer.get("took", seconds)), passed / PATIENCE)
        return answer

    def _restart(self) -> None:
        """A new process, with the cells that had come to an end run again; one that does not this time is left out."""
        while self.box is None:
            if self.restarts >= self.limits.restarts:
                raise GoneError("was not tried: Python had ended too often before")
            self.restarts += 1
            self.box = Box(self.way, self.limits, self.files)  # a slow start of Python is not the student's time
            for source in self.done:
                try:
                    self._ask(self.limits.cell_seconds, do="run", source=source)
                except GoneError:
                    self.done.remove(source)
                    break


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


@dataclass(frozen=True)
class GradingRun:
    """What all submissions of one grading share. seed: of the inputs. checks: the file beside the notebook."""

    assignment: Assignment
    seed: int
    limits: Limits
    way: Sandbox
    checks: Path

    @cache  # noqa: B019  one run a process
    def sheet(self, function: str, hidden: bool) -> Sheet:
        """Inputs and right results of one function."""
        return self.assignment.tasks[function].sheet(self.seed, hidden=hidden)


def judge(fn: object, test: Part, run: GradingRun) -> tuple[bool, str]:
    """Does this function pass this test, and the sentence for the student; MissingFunction for a stub, or a stand-in
    for what is not there. No process is needed for a trusted `fn`."""
    try:
        compare(fn, run.sheet(test.function, test.hidden), secret=test.hidden)
    except NotWrittenError:
        raise MissingFunction("Not written: it returns nothing.") from None
    except (WrongError, EndTest) as end:
        return False, str(end)
    return True, "Right."


def grade(submission: Submission, run: GradingRun) -> GradingRecord:
    """Everything about one submission, as JSON. Never raises; what goes wrong here has the status "grader failed"."""
    begin = time.monotonic()
    record = unread(submission)
    record["written"] = written(submission.cells, run.assignment)
    if not submission.status:
        steps, mended = repair(submission.cells, run.assignment)
        record["notes"] += mended
        try:
            _Grading(run, record).go(steps)
        except Exception as error:  # noqa: BLE001  one submission must not end the others' grading
            start = isinstance(error, GoneError | OSError)
            what = "the box could not be started" if start else type(error).__name__
            record["status"] = "grader failed"
            record["notes"].append(f"{what}: {error}")
    record["seconds"] = round(time.monotonic() - begin, 1)
    return record


def unread(submission: Submission) -> GradingRecord:
    """The record of a submission of which nothing has run yet."""
    return {
        "student": submission.student,
        "key": submission.key,
        "status": submission.status or "graded",
        "notes": list(submission.notes),
        "tests": {},
        "written": {},
        "cells": [],
        "digest": submission.digest,
    }


class _Grading:
    """The way through one notebook."""

    def __init__(self, run: GradingRun, record: GradingRecord) -> None:
        self.run, self.record = run, record
        self.session = Session(run.way, run.limits, (run.checks,))

    def go(self, steps: list[GradingStep]) -> None:
        """All steps; tests whose function is not there yet are tried again at the end."""
        late: list[Part] = []
        try:
            for number, step in enumerate(steps, 1):
                outputs: list[dict[str, Any]] = []
                if step.do in ("run", "test"):
                    outputs, gone = self.session.run(step.source)
                    if gone:
                        self.record["notes"].append(f"cell {number} {gone}")
                        outputs = [{"output_type": "stream", "name": "stderr", "text": f"This cell {gone}."}]
                shown = [] if step.do == "test" else outputs
                self.record["cells"].append({"do": step.do, "source": step.source, "id": step.id, "outputs": shown})
                if step.do == "test":
                    test = self.run.assignment.tests[step.id]
                    if not self._test(test):
                        late.append(test)
            for test in late:
                self._test(test, last=True)
        except OutOfTime:
            self.record["status"] = "timed out"
            self.record["notes"].append(f"stopped after {self.run.limits.seconds:g} seconds in all")
        finally:
            self.session.close()
        for name, test in self.run.assignment.tests.items():
            if name not in self.record["tests"]:
                self._note(test, False, "Not reached in the time for the whole notebook.")
        if self.session.restarts:
            self.record["notes"].append(f"Python was started again {self.session.restarts} times")

    def _test(self, test: Part, *, last: bool = False) -> bool:
        """Test a function; False where it is not there and may still come."""
        try:
            passed, says = judge(self.session.function(test.function), test, self.run)
        except MissingFunction as missing:
            if not last:
                return False
            passed, says = False, str(missing)
        self._note(test, passed, says)
        return True

    def _note(self, test: Part, passed: bool, says: str) -> None:
        points = test.points if passed else 0.0
        self.record["tests"][test.id] = {"points": points, "of": test.points, "passed": passed, "says": says}
