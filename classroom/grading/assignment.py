"""A master notebook: its questions and points, its tasks, and the release that students get."""

import copy
import hashlib
import io
import linecache
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from classroom.checks.homework import write_sheets
from classroom.grading.task import VISIBLE_SEED, Task
from course_lib.errors import CourseError
from course_lib.files import COURSE

MASTERS = COURSE / "notebooks" / "homework"
STUB = ["# YOUR CODE HERE", "raise NotImplementedError"]
ANSWER = "*Your answer (double-click here and write).*"
KEY = "course_homework"  # of the release's metadata: which assignment it is
HIDDEN = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
SOLUTION = ("### BEGIN SOLUTION", "### END SOLUTION")


@dataclass(frozen=True)
class Part:
    """A cell that carries points.

    QUESTION-FUNCTION-visible and QUESTION-FUNCTION-hidden are tests of a function; QUESTION-written
    is an answer (without a function) that a person marks.
    """

    id: str
    question: str
    points: float
    function: str = ""
    hidden: bool = False


def grade_id(cell: Any) -> str:
    """nbgrader's name of a cell, or ""."""
    name = cell
    for key in ("metadata", "nbgrader", "grade_id"):
        name = name.get(key) if isinstance(name, dict) else None
    return name if isinstance(name, str) else ""


def find(name: str) -> Path:
    """The master called "hw1", or at a path."""
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return path
    if (MASTERS / f"{name}.ipynb").is_file():
        return MASTERS / f"{name}.ipynb"
    known = ", ".join(sorted(p.stem for p in MASTERS.glob("*.ipynb"))) or "none here"
    raise CourseError(
        f"There is no assignment {name!r}; there are: {known}. A master's path will do as well."
    )


class Assignment:
    """A master, read and its own code executed.

    The code is the teacher's; nothing of a student's comes here.

    Attributes:
        path: of the master.
        tests: the parts that tests of a function decide, by name.
        written: the parts that a person marks, by name.
        locked: the course's own code cells, by name.
        asked: the code cells that a student fills in, by name.
        release: the notebook for students.
        tasks: what each function is tested with, by its name.
    """

    def __init__(self, master: str | Path) -> None:
        path = self.path = find(str(master))
        self.name = path.stem
        try:
            self.master: NotebookNode = nbformat.reads(path.read_text("utf-8"), as_version=4)
        except Exception as error:  # noqa: BLE001  nbformat's are of many kinds
            reason = str(error).partition("\n")[0]
            raise CourseError(f"{path} is not a notebook: {reason}") from None
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.tests: dict[str, Part] = {}
        self.written: dict[str, Part] = {}
        self.locked: dict[str, NotebookNode] = {}
        self.asked: set[str] = set()
        self.release = self._release(solutions=False)
        for cell in self.release.cells:
            self._note(cell)
        if not self.questions:
            raise CourseError(f"{path} is no assignment: no cell of it carries points.")
        self.tasks = {
            task.name: task for task in self._execute().values() if isinstance(task, Task)
        }
        lost = {test.function for test in self.tests.values()} - set(self.tasks)
        if lost:
            raise CourseError(f"{self.name}: no Task for {', '.join(sorted(lost))}.")

    @property
    def questions(self) -> dict[str, float]:
        """Points of each question, in the notebook's order."""
        points: dict[str, float] = {}
        for part in [*self.tests.values(), *self.written.values()]:
            points[part.question] = points.get(part.question, 0.0) + part.points
        return points

    def solutions(self) -> NotebookNode:
        """The notebook with the answers and without hidden tests, to hand out afterwards."""
        return self._release(solutions=True)

    def checks(self) -> str:
        """The text of NAME_checks.json: visible inputs, right results, fingerprints of mistakes."""
        visible = {test.function for test in self.tests.values() if not test.hidden}
        tasks = [task for name, task in self.tasks.items() if name in visible]
        return write_sheets([task.sheet(VISIBLE_SEED, hidden=False) for task in tasks])

    def rubric(self, name: str) -> tuple[list[list[str]], str]:
        """What a written answer's points are for, and the model answer.

        The cell above the answer has the table of points.
        """
        cells = self.master.cells
        place = [grade_id(cell) for cell in cells].index(name)
        table = []
        for line in cells[place - 1].source.splitlines() if place else []:
            row = line.strip("| ").replace("**", "").split("|")
            rule = set("".join(row)) <= set("-: ")  # the line below the table's head
            if line.startswith("|") and not rule:
                table.append([cell.strip() for cell in row])
        return table, cells[place].source

    def _note(self, cell: NotebookNode) -> None:
        """Enter a cell of the release where it belongs: `locked`, `tests` or `written`."""
        data = cell.metadata.get("nbgrader", {})
        name = grade_id(cell)
        if not name:
            return
        if data.get("locked") and cell.cell_type == "code":
            self.locked[name] = cell
        if data.get("solution") and cell.cell_type == "code":
            self.asked.add(name)
        if not data.get("grade"):
            return
        question, _, rest = name.partition("-")
        if name in self.tests or name in self.written or "points" not in data:
            raise CourseError(f"{self.name}: {name} stands twice, or has no points.")
        part = Part(name, question, float(data["points"]))
        if data.get("solution"):
            self.written[name] = part
            return
        test = re.fullmatch(r"(\w+)-(visible|hidden)", rest)
        if test is None:
            raise CourseError(
                f"{self.name}: call {name} QUESTION-FUNCTION-visible or QUESTION-FUNCTION-hidden."
            )
        self.tests[name] = replace(part, function=test[1], hidden=test[2] == "hidden")

    def _execute(self) -> dict[str, Any]:
        """What the set-up, the solutions and the hidden regions define."""
        space: dict[str, Any] = {"__name__": self.name}
        for number, cell in enumerate(self.master.cells):
            data = cell.metadata.get("nbgrader", {})
            if cell.cell_type != "code" or not data:
                continue
            source = cell.source
            if data.get("grade"):
                source = "\n".join(line for line, inside in _regions(source, HIDDEN) if inside)
            file = f"<{self.name}, cell {number}>"
            # for inspect.getsource
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
            with redirect_stdout(io.StringIO()):
                exec(compile(source, file, "exec"), space)  # noqa: S102  the teacher's own notebook
        return space

    def _release(self, *, solutions: bool) -> NotebookNode:
        """The notebook without the teacher's cells and hidden tests, with or without answers."""
        notebook = copy.deepcopy(self.master)
        notebook.cells = [c for c in notebook.cells if "teacher" not in c.metadata.get("tags", [])]
        for cell in notebook.cells:
            data = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "code":
                cell.outputs = []
                cell.execution_count = None
                cell.source = _replace(cell.source, HIDDEN, [])
                cell.source = _replace(cell.source, SOLUTION, None if solutions else STUB)
            elif data.get("solution") and not solutions:
                cell.source = ANSWER
            if data.get("locked"):
                cell.metadata |= {"editable": False, "deletable": False}
        notebook.metadata[KEY] = {"assignment": self.name}
        return notebook


def _replace(source: str, marks: tuple[str, str], by: list[str] | None) -> str:
    """The source with other lines in place of each region between two markers.

    Args:
        source: of a cell.
        marks: the markers, which go.
        by: the new lines, which are indented alike; None: the region stays.
    """
    lines: list[str] = []
    for line, inside in _regions(source, marks):
        word = line.strip()
        if word == marks[0]:
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + new for new in by or []]
        elif word != marks[1] and (not inside or by is None):
            lines.append(line)
    return "\n".join(lines).rstrip()


def _regions(source: str, marks: tuple[str, str]) -> Iterator[tuple[str, bool]]:
    """The lines, and whether each stands between two markers (the markers themselves do not)."""
    begin, end = marks
    inside = False
    for line in source.splitlines():
        word = line.strip()
        if (word == begin and inside) or (word == end and not inside):
            raise _alone(word, source)
        yield line, inside and word not in marks
        if word == begin:
            inside = True
        if word == end:
            inside = False
    if inside:
        raise _alone(begin, source)


def _alone(mark: str, source: str) -> CourseError:
    return CourseError(f"A marker {mark!r} has no partner in the cell that begins {source[:40]!r}.")
