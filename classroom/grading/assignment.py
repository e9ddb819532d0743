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
    """A cell that carries points: QUESTION-FUNCTION-visible or QUESTION-FUNCTION-hidden, a test of
    a function; or QUESTION-written, an answer (without a function) that a person marks."""

    id: str
    question: str
    points: float
    function: str = ""
    hidden: bool = False


def grade_id(cell: Any) -> str:
    """nbgrader's name of a cell, or ""."""
    data = cell.get("metadata")
    found = data.get("nbgrader") if isinstance(data, dict) else None
    name = found.get("grade_id") if isinstance(found, dict) else None
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
    """A master, read and its own code executed (it is the teacher's; nothing of a student's comes
    here).

    tests and written: its parts. locked: the course's own code cells. release: the notebook for
    students."""

    def __init__(self, master: str | Path) -> None:
        path = find(str(master))
        self.name = path.stem
        try:
            self.master: NotebookNode = nbformat.reads(path.read_text("utf-8"), as_version=4)
        except Exception as error:  # noqa: BLE001  nbformat's are of many kinds
            raise CourseError(
                f"{path} is not a notebook: {str(error).partition(chr(10))[0]}"
            ) from None
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.tests: dict[str, Part] = {}
        self.written: dict[str, Part] = {}
        self.locked: dict[str, NotebookNode] = {}
        self.release = self._release(solutions=False)
        for cell in self.release.cells:
            self._note(cell)
        if not self.questions:
            raise CourseError(f"{path} is no assignment: no cell of it carries points.")
        self.tasks = {
            task.name: task for task in self._execute().values() if isinstance(task, Task)
        }
        if lost := {test.function for test in self.tests.values()} - set(self.tasks):
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
        """The text of NAME_checks.json: the visible inputs, right results, and the mistakes'
        fingerprints.
        """
        visible = {test.function for test in self.tests.values() if not test.hidden}
        return write_sheets(
            [
                task.sheet(VISIBLE_SEED, hidden=False)
                for n, task in self.tasks.items()
                if n in visible
            ]
        )

    def rubric(self, name: str) -> tuple[list[list[str]], str]:
        """What a written answer's points are for (the table in the cell above it), and the model
        answer.
        """
        cells, place = self.master.cells, [grade_id(cell) for cell in self.master.cells].index(name)
        lines = cells[place - 1].source.splitlines() if place else []
        table = [
            line.strip("| ").replace("**", "").split("|") for line in lines if line.startswith("|")
        ]
        return [
            [cell.strip() for cell in row] for row in table if set("".join(row)) - set("-: ")
        ], cells[place].source

    def _note(self, cell: NotebookNode) -> None:
        data, name = cell.metadata.get("nbgrader", {}), grade_id(cell)
        if not name:
            return
        if data.get("locked") and cell.cell_type == "code":
            self.locked[name] = cell
        if not data.get("grade"):
            return
        question, _, rest = name.partition("-")
        if name in self.tests or name in self.written or "points" not in data:
            raise CourseError(f"{self.name}: {name} stands twice, or has no points.")
        part = Part(name, question, float(data["points"]))
        if data.get("solution"):
            self.written[name] = part
        elif match := re.fullmatch(r"(\w+)-(visible|hidden)", rest):
            self.tests[name] = replace(part, function=match[1], hidden=match[2] == "hidden")
        else:
            raise CourseError(
                f"{self.name}: call {name} QUESTION-FUNCTION-visible or QUESTION-FUNCTION-hidden."
            )

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
        notebook = copy.deepcopy(self.master)
        notebook.cells = [c for c in notebook.cells if "teacher" not in c.metadata.get("tags", [])]
        for cell in notebook.cells:
            data = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                cell.source = _replace(cell.source, HIDDEN, [])
                cell.source = _replace(cell.source, SOLUTION, None if solutions else STUB)
            elif data.get("solution") and not solutions:
                cell.source = ANSWER
            if data.get("locked"):
                cell.metadata |= {"editable": False, "deletable": False}
        notebook.metadata[KEY] = {"assignment": self.name}
        return notebook


def _replace(source: str, marks: tuple[str, str], by: list[str] | None) -> str:
    """Each region between two markers replaced by these lines, indented alike; None: only the
    markers go.
    """
    lines: list[str] = []
    for line, inside in _regions(source, marks):
        if line.strip() == marks[0]:
            lines += [line[: len(line) - len(line.lstrip())] + each for each in by or []]
        elif line.strip() != marks[1] and (not inside or by is None):
            lines.append(line)
    return "\n".join(lines).rstrip()


def _regions(source: str, marks: tuple[str, str]) -> Iterator[tuple[str, bool]]:
    """The lines, and whether each stands between two markers (the markers themselves do not)."""
    inside = False
    for line in source.splitlines():
        word = line.strip()
        if word in marks and (word == marks[0]) == inside:
            raise CourseError(
                f"A marker {word!r} has no partner in the cell that begins {source[:40]!r}."
            )
        yield line, inside and word not in marks
        inside = word == marks[0] if word in marks else inside
    if inside:
        raise CourseError(
            f"A marker {marks[0]!r} has no partner in the cell that begins {source[:40]!r}."
        )
