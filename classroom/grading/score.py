"""Grade one submission: run it in the box, ask its functions, compare here, write down what was
found.
"""

import base64
import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from classroom.checks.base import NotWrittenError, WrongError
from classroom.checks.homework import Sheet, compare
from classroom.grading.assignment import Assignment, Part
from classroom.grading.box import GoneError, Limits, Sandbox
from classroom.grading.collect import GradingRecord, Submission, clean
from classroom.grading.repair import GradingStep, repair, written
from classroom.grading.session import EndTest, MissingFunction, OutOfTime, Session
from classroom.grading.task import VISIBLE_SEED

SHOWN = 400_000  # characters of one submission's cells and their outputs that are kept


@dataclass(frozen=True)
class GradingRun:
    """What all submissions of one grading share.

    Attributes:
        assignment: which they answer.
        seed: of the tests' inputs.
        limits: what one submission may use.
        way: how students' code is shut in.
        checks: the file beside the notebook.
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
    """Whether a function passes a test, and the sentence for the student.

    No process is needed for a function that is trusted.
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
    """Everything about one submission, as JSON.

    Never raises; what goes wrong here has the status "grader failed".
    """
    began = time.monotonic()
    status = submission.status or "graded"
    record = unread(submission.student, submission.key, status, submission.notes)
    try:
        record["written"], answer_notes = written(submission.cells, run.assignment)
        if not submission.status:
            steps, repair_notes = repair(submission.cells, run.assignment)
            record["notes"] += repair_notes + answer_notes
            _Grading(run, record).go(steps)
    except Exception as error:  # noqa: BLE001  one submission must not end the others' grading
        what = type(error).__name__
        if isinstance(error, GoneError | OSError):
            what = "the box could not be started"
        record["status"] = "grader failed"
        record["tests"] = {}
        record["notes"].append(f"{what}: {error}")
    record["seconds"] = round(time.monotonic() - began, 1)
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
    """What the feedback page shows of an output: its kind ("out", "err" or "png") and its text.

    Anything that is not as it should be becomes nothing.
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
    picture = _png(data.get("image/png"))
    if picture:
        return "png", picture
    return "out", str(data.get("text/plain", ""))


def _png(text: Any) -> str:
    """A picture in base64 if it is a PNG, else ""."""
    if not isinstance(text, str):
        return ""
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return ""
    return base64.b64encode(raw).decode() if raw.startswith(b"\x89PNG") else ""


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
                lost = self._lost()
                if lost:
                    self._test_in_place(lost, steps)
        finally:
            self.session.close()
        for name, test in tests.items():
            if name not in self.record["tests"]:
                self._note(test, False, "Not reached in the time for the whole notebook.")
        if self.session.restarts:
            self.record["notes"].append(f"Python was started again {self.session.restarts} times")

    def _lost(self) -> set[str]:
        """Failed tests of functions that were right where their tests stand, and are no more."""
        changed = {name for name in self.right if not self._published(name)}
        failed = [name for name, found in self.record["tests"].items() if not found["passed"]]
        tests = self.run.assignment.tests
        return {name for name in failed if tests[name].function in changed}

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Ends what is inside when the time is up.

        Where the cells need more than there is, the tests of what came before have as much again.
        """
        try:
            yield
        except OutOfTime:
            if self.record["status"] != "timed out":
                seconds = self.run.limits.seconds
                self.record["notes"].append(f"stopped after {seconds:g} seconds in all")
            self.record["status"] = "timed out"
            self.session.spent = 0.0

    def _cell(self, number: int, step: GradingStep) -> None:
        """Run one cell; after a test's cell ask whether its function is right so far."""
        outputs: list[Any] = []
        if step.do in ("run", "test"):
            outputs, end = self.session.run(step.source)
            if end:
                self.deadly.add(step.source)
                self.record["notes"].append(f"cell {number} {end}")
                outputs = [{"output_type": "stream", "name": "stderr", "text": f"This cell {end}."}]
        self._keep(step, [] if step.do == "test" else outputs)
        if step.do == "test":
            function = self.run.assignment.tests[step.id].function
            if function not in self.right and self._published(function):
                self.right.add(function)

    def _published(self, name: str) -> bool:
        """Is a function right for the inputs that everybody may see (and print)?"""
        return _judge(self.session.function(name), self.run.published(name), secret=False)[0]

    def _test_in_place(self, lost: set[str], steps: list[GradingStep]) -> None:
        """Test in a new process, where their tests stand, functions that later cells changed."""
        self.session.renew()
        last = max(place for place, step in enumerate(steps) if step.id in lost)
        for step in steps[: last + 1]:
            if step.do in ("run", "test") and step.source not in self.deadly:
                self.session.run(step.source)
            if step.id in lost:
                self._test(self.run.assignment.tests[step.id])

    def _keep(self, step: GradingStep, outputs: list[Any]) -> None:
        """What the feedback page shows of a cell, while there is room."""
        kept = [each for each in map(shown, outputs) if each]
        self.room -= len(step.source) + sum(len(text) for _, text in kept)
        if self.room >= 0:
            self.record["cells"].append(
                {"do": step.do, "source": step.source, "id": step.id, "shown": kept}
            )
        else:
            self.record["cut"] = True
            self.room = 0

    def _test(self, test: Part) -> None:
        passed, says = judge(self.session.function(test.function), test, self.run)
        self._note(test, passed, says)

    def _note(self, test: Part, passed: bool, says: str) -> None:
        self.record["tests"][test.id] = {
            "points": test.points if passed else 0.0,
            "of": test.points,
            "passed": passed,
            "says": says[:2000],
        }
