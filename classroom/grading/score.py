"""Grade one submission: run it in the box, ask its functions, compare here, write down what was
found.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from classroom.checks.base import NotWrittenError, WrongError
from classroom.checks.homework import Sheet, compare
from classroom.grading import pictures
from classroom.grading.assignment import Assignment, Part
from classroom.grading.box import GoneError, Limits, Sandbox
from classroom.grading.collect import GradingRecord, Submission, clean
from classroom.grading.repair import GradingStep, repair, written
from classroom.grading.session import (
    EXCEPTIONS,
    EndTest,
    MissingFunction,
    OutOfTime,
    Session,
)
from classroom.grading.task import VISIBLE_SEED

# characters of one submission that are kept: of its cells, and of their outputs
SHOWN = {"cells": 400_000, "outputs": 400_000}
MOST_NOTES = 30  # of one submission
LEAST = 2000  # of a cell for which there is no room
# how sentences begin in which nothing is of the student's
OURS = ("It returns None: the `return`", "Two calls with the same input", "It changes ")
# errors that may be the box's fault, not the student's
OF_THE_BOX = {
    "ModuleNotFoundError",
    "FileNotFoundError",
    "PermissionError",
    "OSError",
    "EOFError",
    "MemoryError",
    "UsageError",
    "ConnectionError",
    "ConnectionRefusedError",
    "URLError",
    "BlockingIOError",  # its limit of processes
}


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


class Verdict(NamedTuple):
    """What a test found.

    Attributes:
        passed: whether all results are right.
        says: the sentence for the student; it may quote what their code printed or raised.
        mistake: the sentence for the teacher, which quotes nothing of the student's.
    """

    passed: bool
    says: str
    mistake: str = ""


def judge(fn: object, test: Part, run: GradingRun, *, secret: bool = False) -> Verdict:
    """Whether a function passes a test; no process is needed for a function that is trusted.

    Args:
        fn: the function.
        test: which test.
        run: of the grading.
        secret: tell nothing of what the function returns, as for hidden inputs.
    """
    return _judge(fn, run.sheet(test.function, test.hidden), secret=secret or test.hidden)


def _judge(fn: object, sheet: Sheet, *, secret: bool) -> Verdict:
    try:
        compare(fn, sheet, secret=secret)
    except NotWrittenError:
        return _wrong("Not written: it returns nothing.")
    except (EndTest, MissingFunction) as end:
        return _wrong(str(end))
    except WrongError as wrong:
        says = str(wrong)
        return Verdict(False, says, says if secret else _mistake(says, sheet))
    except Exception as error:  # noqa: BLE001  results may be of any form
        return _wrong(f"Its results cannot be compared ({type(error).__name__}).")
    return Verdict(True, "Right.")


def _wrong(says: str) -> Verdict:
    """A verdict in a sentence of ours."""
    return Verdict(False, says, says)


def _mistake(says: str, sheet: Sheet) -> str:
    """The sentence without anything that the student's code has chosen."""
    if says in [known for known, _ in sheet.mistakes] or says.startswith(OURS):
        return says
    raised = re.match(r"It raises (\w+)", says)
    return f"It raises {raised[1]}." if raised else "Its results are wrong in another way."


def grade(submission: Submission, run: GradingRun) -> GradingRecord:
    """Everything about one submission, as JSON.

    Never raises; what goes wrong here has the status "grader failed".
    """
    began = time.monotonic()
    status = submission.status or "graded"
    record = unread(submission.student, submission.key, status, submission.notes)
    try:
        answers, answer_notes = written(submission.cells, run.assignment)
        record["written"] = {name: answer.text for name, answer in answers.items()}
        record["pictures"] = {name: answer.pictures for name, answer in answers.items()}
        if not submission.status:
            steps, repair_notes = repair(submission.cells, run.assignment)
            record["notes"] += repair_notes + answer_notes
            _Grading(run, record, submission.files).go(steps)
    except Exception as error:  # noqa: BLE001  one submission must not end the others' grading
        what = type(error).__name__
        if isinstance(error, GoneError | OSError):
            what = "the box could not be started"
        record["status"] = "grader failed"
        record["tests"] = {}
        record["notes"].append(f"{what}: {error}")
    record["seconds"] = round(time.monotonic() - began, 1)
    record["notes"] = _readable_notes(record["notes"])
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
        "pictures": {},
        "cells": [],
    }


def shown(output: Any) -> tuple[str, str] | None:
    """What the feedback page shows of an output: "out" or "err" and its text, or "picture" and what
    follows "data:image/".

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
    picture = pictures.sound(data.get("image/png"))
    if picture:
        return "picture", picture
    return "out", str(data.get("text/plain", ""))


def _error_of(output: Any) -> str:
    """The name of the exception that an output tells of, "an error" if it is unknown, else ""."""
    if not isinstance(output, dict):
        return ""
    if str(output.get("text")).startswith("UsageError: "):  # how IPython tells of a lost magic
        return "UsageError"
    if output.get("output_type") != "error":
        return ""
    name = output.get("ename")
    known = isinstance(name, str) and name in EXCEPTIONS | OF_THE_BOX
    return str(name) if known else "an error"


def _readable_notes(notes: list[str]) -> list[str]:
    """As many notes as a person reads, none of them a page long."""
    kept = [note[:500] for note in notes[:MOST_NOTES]]
    if len(notes) > MOST_NOTES:
        kept.append(f"and {len(notes) - MOST_NOTES} more notes")
    return kept


def _readable(data: bytes) -> str:
    """A file as text, or how long it is."""
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode()
    return f"({len(data):,} bytes)"


def _settled(text: str) -> str:
    """Text as a screen shows it in the end: a progress bar's last state."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class _Grading:
    """The way through one notebook."""

    def __init__(self, run: GradingRun, record: GradingRecord, files: dict[str, bytes]) -> None:
        self.run, self.record = run, record
        self.session = Session(run.way, run.limits, (run.checks,), files)
        self.room = dict(SHOWN)
        self.right: set[str] = set()  # functions that were, where their tests stand
        self.deadly: set[str] = set()  # sources of cells that ended the process
        for name, data in files.items():
            self._keep(GradingStep("file", f"# {name}\n{_readable(data)}"), [])

    def go(self, steps: list[GradingStep]) -> None:
        """All cells, and then the tests, so that no cell can print what they ask.

        Hidden inputs come last: what a function says after it has seen one is not shown.
        """
        tests = self.run.assignment.tests
        try:
            with self._in_time():
                for number, step in enumerate(steps, 1):
                    self._cell(number, step)
            with self._in_time():
                for test in sorted(tests.values(), key=lambda test: test.hidden):
                    self._test(test)
                lost = self._lost()
                if lost:
                    self._test_in_place(lost, steps)
        finally:
            self.session.close()
        for name, test in tests.items():
            if name not in self.record["tests"]:
                self._note(test, _wrong("Not reached in the time for the whole notebook."))
        self._note_differences(steps)
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
            self._note_error(number, step, outputs)
        self._keep(step, [] if step.do == "test" else outputs)
        if step.do == "test":
            function = self.run.assignment.tests[step.id].function
            if function not in self.right and self._published(function):
                self.right.add(function)

    def _published(self, name: str) -> bool:
        """Is a function right for the inputs that everybody may see (and print)?"""
        return _judge(self.session.function(name), self.run.published(name), secret=True).passed

    def _test_in_place(self, lost: set[str], steps: list[GradingStep]) -> None:
        """Test in a new process, where their tests stand, functions that later cells changed."""
        self.session.renew()
        last = max(place for place, step in enumerate(steps) if step.id in lost)
        for step in steps[: last + 1]:
            if step.do in ("run", "test") and step.source not in self.deadly:
                self.session.run(step.source)
            if step.id in lost:
                self._test(self.run.assignment.tests[step.id])

    def _note_error(self, number: int, step: GradingStep, outputs: list[Any]) -> None:
        """Tell the teacher of an error that may come from the box."""
        for name in filter(None, map(_error_of, outputs)):
            if step.saved is not None:
                self.record["notes"].append(
                    f"cell {number} raised {name}, and by the saved notebook it did not before"
                )
            elif name in OF_THE_BOX:
                self.record["notes"].append(f"cell {number} raised {name}")

    def _note_differences(self, steps: list[GradingStep]) -> None:
        """Tell the teacher of failed tests that had passed by the saved notebook."""
        lost = []
        for step in steps:
            test = self.run.assignment.tests.get(step.id) if step.do == "test" else None
            found = self.record["tests"].get(step.id)
            if test is None or found is None or found["passed"]:
                continue
            if step.saved and f"{test.function}: right. Verified" in step.saved:
                lost.append(test.function)
        if lost:
            self.record["notes"].append(
                f"wrong here, right by the saved notebook: {', '.join(lost)}"
            )

    def _keep(self, step: GradingStep, outputs: list[Any]) -> None:
        """What the feedback page shows of a cell: all, or the beginning where there is no room.

        A large output takes no room from any cell, and no cell is left out.
        """
        source = step.source
        if len(source) > self.room["cells"]:
            source = source[:LEAST] + "\n... (the rest of this cell is not shown)"
            self._cut()
        self.room["cells"] -= len(source)
        kept = []
        for kind, text in filter(None, map(shown, outputs)):
            if len(text) > self.room["outputs"]:
                kept.append(("out", f"(an output of {len(text):,} characters is not shown)"))
                self._cut()
                continue
            self.room["outputs"] -= len(text)
            kept.append((kind, text))
        cell = {"do": step.do, "source": source, "id": step.id, "shown": kept}
        self.record["cells"].append(cell)

    def _cut(self) -> None:
        note = "too long to be shown and compared whole"
        self.record["cut"] = True
        if note not in self.record["notes"]:
            self.record["notes"].append(note)

    def _test(self, test: Part) -> None:
        self.session.saw_hidden |= test.hidden
        fn = self.session.function(test.function)
        self._note(test, judge(fn, test, self.run, secret=self.session.saw_hidden))

    def _note(self, test: Part, verdict: Verdict) -> None:
        self.record["tests"][test.id] = {
            "points": test.points if verdict.passed else 0.0,
            "of": test.points,
            "passed": verdict.passed,
            "says": verdict.says[:2000],
            "mistake": verdict.mistake[:500],
        }
