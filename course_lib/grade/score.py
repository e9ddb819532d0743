"""Grade one submission: run it in the box, ask its functions, compare here, write down what was found."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.check.base import NotWrittenError, WrongError
from course_lib.check.homework import Sheet, compare
from course_lib.grade import collect
from course_lib.grade.assignment import Assignment, Test
from course_lib.grade.box import GoneError, Limits, Sandbox
from course_lib.grade.repair import Step, repair, written
from course_lib.grade.session import EndTest, MissingFunction, OutOfTime, Outputs, Session

Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
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


def judge(fn: object, test: Test, run: Run) -> tuple[bool, str]:
    """Does this function pass this test, and the sentence for the student. No process is needed for a trusted `fn`.

    Raises:
        MissingFunction: it is a stub, or a stand-in for a function that is not there.
    """
    try:
        compare(fn, run.sheet(test.function, test.hidden), secret=test.hidden)
    except NotWrittenError:
        raise MissingFunction("Not written: it returns nothing.") from None
    except WrongError as wrong:
        return False, str(wrong)
    except MissingFunction:
        raise
    except EndTest as end:
        return False, str(end)
    return True, "Right."


def grade(submission: collect.Submission, run: Run) -> Record:
    """Everything about one submission, as JSON. Never raises; what goes wrong here has the status "grader failed"."""
    begin = time.monotonic()
    record = unread(submission)
    record["written"] = written(submission.cells, run.assignment)
    if not submission.status:
        steps, mended = repair(submission.cells, run.assignment)
        record["notes"] += mended
        try:
            _Grading(run, record).go(steps)
        except (GoneError, OSError) as error:
            record["status"] = "grader failed"
            record["notes"].append(f"the box could not be started: {error}")
        except Exception as error:  # noqa: BLE001  one submission must not end the others' grading
            record["status"] = "grader failed"
            record["notes"].append(f"{type(error).__name__}: {error}")
    record["seconds"] = round(time.monotonic() - begin, 1)
    return record


def unread(submission: collect.Submission) -> Record:
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

    def __init__(self, run: Run, record: Record) -> None:
        self.run, self.record = run, record
        self.session = Session(run.way, run.limits, (run.checks,))

    def go(self, steps: list[Step]) -> None:
        """All steps; tests whose function is not there yet are tried again at the end."""
        late: list[Test] = []
        try:
            for number, step in enumerate(steps, 1):
                outputs: Outputs = []
                if step.do in ("run", "test"):
                    outputs, gone = self.session.run(step.source)
                    if gone:
                        self.record["notes"].append(f"cell {number} {gone}")
                        outputs = [{"output_type": "stream", "name": "stderr", "text": f"This cell {gone}."}]
                self.record["cells"].append(_shown(step, outputs))
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

    def _test(self, test: Test, *, last: bool = False) -> bool:
        """Test a function; False where it is not there and may still come."""
        self.session.begin_test()
        try:
            passed, says = judge(self.session.function(test.function), test, self.run)
        except MissingFunction as missing:
            if not last:
                return False
            passed, says = False, str(missing)
        self._note(test, passed, says)
        return True

    def _note(self, test: Test, passed: bool, says: str) -> None:
        points = test.points if passed else 0.0
        self.record["tests"][test.id] = {"points": points, "of": test.points, "passed": passed, "says": says}


def _shown(step: Step, outputs: Outputs) -> Record:
    return {"do": step.do, "source": step.source, "id": step.id, "outputs": [] if step.do == "test" else outputs}
