"""Grade one submission: run it in the box, ask its functions, compare here, write down what was
found.
"""

import base64
import builtins
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from classroom.checks.base import NotWrittenError, WrongError
from classroom.checks.homework import Sheet, compare
from classroom.grading.assignment import Assignment, Part
from classroom.grading.box import PATIENCE, Box, GoneError, Limits, Sandbox
from classroom.grading.collect import GradingRecord, GradingStep, Submission, clean, repair, written
from classroom.grading.task import VISIBLE_SEED

SHOWN = 400_000  # characters of one submission's cells and their outputs that are kept


class EndTest(BaseException):
    """A function's test cannot go on; the message says why. No `except Exception` on the way
    catches it.
    """


class MissingFunction(BaseException):
    """There is no function of this name (yet)."""


class OutOfTime(BaseException):
    """The time for the whole submission is used up."""


class Session:
    """Runs cells and calls functions. When the process dies, the next request starts a new one,
    which first runs again all cells that had come to an end, so that a death costs the cell that
    caused it and nothing else."""

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

    def renew(self) -> None:
        """A new process that knows no cell yet."""
        self.close()
        self.box, self.done = Box(self.way, self.limits, self.files), []

    def run(self, source: str) -> tuple[list[Any], str]:
        """Run a cell: its outputs, and how it ended the process, or ""."""
        try:
            answer = self._ask(self.limits.cell_seconds, do="run", source=source)
        except GoneError as gone:
            return [], str(gone)
        self.done.append(source)
        outputs = answer.get("outputs")
        return (outputs if isinstance(outputs, list) else []), ""

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for the student's function: takes and returns data, computes in the box; all
        its calls together may take as long as one cell."""
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
        """Ask the process, and add up what it took: by its own account, but no less than a part of
        the clock's time.
        """
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
            passed, took = time.monotonic() - began, answer.get("took")
            self.spent += max(
                min(passed, took if isinstance(took, int | float) else seconds), passed / PATIENCE
            )
        return answer

    def _restart(self) -> None:
        """A new process, with the cells that had come to an end run again; one that does not this
        time is left out.
        """
        while self.box is None:
            if self.restarts >= self.limits.restarts:
                raise GoneError("was not tried: Python had ended too often before")
            self.restarts += 1
            # a slow start of Python is not the student's time
            self.box = Box(self.way, self.limits, self.files)
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
        raise MissingFunction(
            "There is no function of this name when the notebook has run to its end."
        )
    if kind == "stub":
        raise NotWrittenError
    if kind == "changed":
        raise WrongError(
            f"It changes its argument number {int(text) + 1 if text.isdigit() else '?'} in place."
        )
    name = str(answer.get("type"))  # one of their own could tell what the hidden inputs are
    raise type(
        name if isinstance(getattr(builtins, name, None), type) else "Error", (Exception,), {}
    )(text)


@dataclass(frozen=True)
class GradingRun:
    """What all submissions of one grading share. seed: of the inputs. checks: the file beside the
    notebook.
    """

    assignment: Assignment
    seed: int
    limits: Limits
    way: Sandbox
    checks: Path

    @cache  # noqa: B019  one run a process
    def sheet(self, function: str, hidden: bool) -> Sheet:
        """Inputs and right results of one function."""
        task = self.assignment.tasks[function]
        return task.sheet(self.seed if hidden else task.visible_seed(self.seed), hidden=hidden)

    @cache  # noqa: B019
    def published(self, function: str) -> Sheet:
        """What students can read beside their notebook."""
        return self.assignment.tasks[function].sheet(VISIBLE_SEED, hidden=False)


def judge(fn: object, test: Part, run: GradingRun) -> tuple[bool, str]:
    """Does this function pass this test, and the sentence for the student. No process is needed for
    a trusted `fn`.
    """
    return _judge(fn, run.sheet(test.function, test.hidden), secret=test.hidden)


def _judge(fn: object, sheet: Sheet, *, secret: bool) -> tuple[bool, str]:
    try:
        compare(fn, sheet, secret=secret)
    except NotWrittenError:
        return False, "Not written: it returns nothing."
    except (WrongError, EndTest, MissingFunction) as end:
        return False, str(end)
    except Exception as error:  # noqa: BLE001  results may be of any form
        return False, f"Its results cannot be compared ({type(error).__name__})."
    return True, "Right."


def grade(submission: Submission, run: GradingRun) -> GradingRecord:
    """Everything about one submission, as JSON. Never raises; what goes wrong here has the status
    "grader failed".
    """
    begin = time.monotonic()
    record = unread(
        submission.student, submission.key, submission.status or "graded", submission.notes
    )
    try:
        record["written"], said = written(submission.cells, run.assignment)
        if not submission.status:
            steps, mended = repair(submission.cells, run.assignment)
            record["notes"] += mended + said
            _Grading(run, record).go(steps)
    except Exception as error:  # noqa: BLE001  one submission must not end the others' grading
        start = isinstance(error, GoneError | OSError)
        what = "the box could not be started" if start else type(error).__name__
        record |= {
            "status": "grader failed",
            "tests": {},
            "notes": [*record["notes"], f"{what}: {error}"],
        }
    record["seconds"] = round(time.monotonic() - begin, 1)
    record["notes"] = [note[:500] for note in record["notes"][:30]]
    cleaned: GradingRecord = clean(record)
    return cleaned


def unread(
    student: str, key: str, status: str = "graded", notes: Iterable[str] = ()
) -> GradingRecord:
    """The record of a submission of which nothing has run yet."""
    return {
        "student": student,
        "key": key,
        "status": status,
        "notes": list(notes),
        "tests": {},
        "written": {},
        "cells": [],
    }


def shown(output: Any) -> tuple[str, str] | None:
    """An output's kind ("out", "err" or "png") and text; anything that is not as it should be
    becomes nothing.
    """
    if not isinstance(output, dict):
        return None
    if output.get("output_type") == "error":
        lines = output.get("traceback")
        return "err", str(lines[0]) if isinstance(lines, list) and lines else ""
    if output.get("output_type") == "stream":
        return "out", _settled(str(output.get("text", "")))
    data = output.get("data")
    if not isinstance(data, dict):
        return None
    if isinstance(picture := data.get("image/png"), str):
        with contextlib.suppress(ValueError):
            raw = base64.b64decode("".join(picture.split()), validate=True)
            if raw.startswith(b"\x89PNG"):
                return "png", base64.b64encode(raw).decode()
    return "out", str(data.get("text/plain", ""))


def _settled(text: str) -> str:
    """Text as a screen shows it in the end: a progress bar's last state."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class _Grading:
    """The way through one notebook."""

    def __init__(self, run: GradingRun, record: GradingRecord) -> None:
        self.run, self.record = run, record
        self.session = Session(run.way, run.limits, (run.checks,))
        self.room = SHOWN
        self.right: set[str] = set()  # functions that were, where their tests stand
        self.deadly: set[str] = set()  # sources of cells that ended the process

    def go(self, steps: list[GradingStep]) -> None:
        """All cells, and then the tests, so that no cell can print what they ask."""
        tests = self.run.assignment.tests
        try:
            with self._in_time():
                for number, step in enumerate(steps, 1):
                    self._cell(number, step)
            with self._in_time():
                for test in tests.values():
                    self._test(test)
                changed = {name for name in self.right if not self._published(name)}
                wrong = [
                    name for name, found in self.record["tests"].items() if not found["passed"]
                ]
                if lost := {name for name in wrong if tests[name].function in changed}:
                    self._test_in_place(lost, steps)
        finally:
            self.session.close()
        for name, test in tests.items():
            if name not in self.record["tests"]:
                self._note(test, False, "Not reached in the time for the whole notebook.")
        if self.session.restarts:
            self.record["notes"].append(f"Python was started again {self.session.restarts} times")

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Where the cells need more than there is, the tests of what came before have as much
        again.
        """
        try:
            yield
        except OutOfTime:
            if self.record["status"] != "timed out":
                self.record["notes"].append(
                    f"stopped after {self.run.limits.seconds:g} seconds in all"
                )
            self.record["status"], self.session.spent = "timed out", 0.0

    def _cell(self, number: int, step: GradingStep) -> None:
        outputs: list[Any] = []
        if step.do in ("run", "test"):
            outputs, gone = self.session.run(step.source)
            if gone:
                self.deadly.add(step.source)
                self.record["notes"].append(f"cell {number} {gone}")
                outputs = [
                    {"output_type": "stream", "name": "stderr", "text": f"This cell {gone}."}
                ]
        self._keep(step, [] if step.do == "test" else outputs)
        if (
            step.do == "test"
            and (name := self.run.assignment.tests[step.id].function) not in self.right
        ):
            self.right |= {name} if self._published(name) else set()

    def _published(self, name: str) -> bool:
        """Is a function right for the inputs that everybody may see (and print)?"""
        return _judge(self.session.function(name), self.run.published(name), secret=False)[0]

    def _test_in_place(self, lost: set[str], steps: list[GradingStep]) -> None:
        """In a new process, test where their tests stand what was right there and has been changed
        by later cells.
        """
        self.session.renew()
        last = max(place for place, step in enumerate(steps) if step.id in lost)
        for step in steps[: last + 1]:
            if step.do in ("run", "test") and step.source not in self.deadly:
                self.session.run(step.source)
            if step.id in lost:
                self._test(self.run.assignment.tests[step.id])

    def _keep(self, step: GradingStep, outputs: list[Any]) -> None:
        """What the feedback page shows of a cell, while there is room."""
        found = [each for output in outputs if (each := shown(output))]
        self.room -= len(step.source) + sum(len(text) for _, text in found)
        if self.room >= 0:
            self.record["cells"].append(
                {"do": step.do, "source": step.source, "id": step.id, "shown": found}
            )
        else:
            self.record["cut"], self.room = True, 0

    def _test(self, test: Part) -> None:
        self._note(test, *judge(self.session.function(test.function), test, self.run))

    def _note(self, test: Part, passed: bool, says: str) -> None:
        points = test.points if passed else 0.0
        self.record["tests"][test.id] = {
            "points": points,
            "of": test.points,
            "passed": passed,
            "says": says[:2000],
        }
