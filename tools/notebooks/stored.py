"""A pytest plugin on top of nbval: each stored cell of a lesson is a test, held against one
execution by papermill.

nbval collects the cells and reports. The lessons are executed in two other processes, without a
network, a thread each, beside the other tests and giving way to them, so that two cores are always
busy and the tests are not slowed. Stored and fresh outputs are compared by `compare.cells`, numbers
within a tolerance."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode
from nbval.plugin import IPyNbCell, IPyNbFile

from course_lib import public_models
from course_lib.errors import CourseError
from tools.notebooks import compare, scrub
from tools.notebooks.build import read
from tools.notebooks.execute import Measure, execute
from tools.notebooks.run import declared

BACKGROUND = pytest.StashKey[ProcessPoolExecutor]()
TOOK = pytest.StashKey[dict[str, Measure]]()


def give_way() -> None:
    """Let this process wait for others where the cores are too few (Linux, macOS)."""
    with suppress(AttributeError, OSError):
        os.nice(5)


def execution(path: Path) -> tuple[list[NotebookNode], Measure]:
    """A lesson's code cells as one execution leaves them, in the stored form, and what it took."""
    notebook, measure = execute(path, path.parent, threads=1)
    return [cell for cell in scrub.scrub(notebook).cells if cell.cell_type == "code"], measure


class Cell(IPyNbCell):  # type: ignore[misc]
    """One stored code cell: it must have been executed, and executing it again must give the stored
    outputs.
    """

    def runtest(self) -> None:
        """Compare."""
        if self.cell.execution_count is None:
            self.raise_cell_error("The cell was never executed: build the notebook again.", "")
        try:
            cells = self.parent.fresh()
        except CourseError as error:
            if self.parent.failed:
                pytest.skip("the lesson failed, see its first cell")
            self.parent.failed = True
            self.raise_cell_error(str(error), "")
        if self.parent.missing:
            pytest.skip(f"executed, but not compared: {self.parent.missing} was not fetched")
        if not self.compare_outputs(cells[self.cell_num].outputs, self.cell.outputs):
            self.raise_cell_error("Cell outputs differ", "\n".join(self.comparison_traceback))

    def compare_outputs(self, test: Any, ref: Any, skip_compare: Any = None) -> bool:
        """True where the fresh outputs agree with the stored ones."""
        self.comparison_traceback = compare.cells(self.cell, test)
        return not self.comparison_traceback


class Lesson(IPyNbFile):  # type: ignore[misc]
    """A notebook; its items are its code cells. A lesson that fails fails once, with its first
    cell.
    """

    future: Future[Any]
    failed = False
    missing = ""  # the public model that the stored outputs come from, if it is not on this machine

    def collect(self) -> Iterator[pytest.Item]:
        """The cells as nbval finds them, as ours."""
        model = declared(read(self.path)).get("MODEL", "")
        if model in public_models.MODELS and not public_models.is_here(model):
            self.missing = model
        for it in super().collect():
            yield Cell.from_parent(
                self, name=it.name, cell_num=it.cell_num, cell=it.cell, options=it.options
            )

    def setup(self) -> None:
        """No kernel: another process has it."""

    def start(self) -> None:
        """Execute the lesson in the background."""
        self.future = self.config.stash[BACKGROUND].submit(execution, self.path)

    def fresh(self) -> list[NotebookNode]:
        """The code cells, executed; waits for them."""
        cells, self.config.stash[TOOK][self.path.stem] = self.future.result()
        return list(cells)


@pytest.fixture(scope="session")
def background(pytestconfig: pytest.Config) -> ProcessPoolExecutor:
    """Where tests execute whole lessons, two at a time."""
    return pytestconfig.stash[BACKGROUND]


def pytest_configure(config: pytest.Config) -> None:
    """The processes start with their first job."""
    config.stash[BACKGROUND] = ProcessPoolExecutor(
        2, multiprocessing.get_context("spawn"), give_way
    )
    config.stash[TOOK] = {}


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what a broken-off run left."""
    config.stash[BACKGROUND].shutdown(wait=False, cancel_futures=True)
    for process in multiprocessing.active_children():
        process.terminate()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Notebooks, as collectors of their cells; pytest's `timeout` is not for them."""
    if file_path.suffix != ".ipynb":
        return None
    lesson: pytest.Collector = Lesson.from_parent(parent, path=file_path)
    lesson.add_marker("notebooks")
    lesson.add_marker(pytest.mark.timeout(0))
    return lesson


def pytest_collection_finish(session: pytest.Session) -> None:
    """The lessons that were chosen start beside the first tests; the last first, for the first are
    the short ones, and none is left running alone for long."""
    if not session.config.option.collectonly:
        for lesson in reversed(
            dict.fromkeys(item.parent for item in session.items if isinstance(item, Cell))
        ):
            lesson.start()
        for item in session.items:
            # other tests' lessons
            if begin := getattr(getattr(item, "module", None), "in_background", None):
                begin(item)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """What the lessons took; their tests only waited."""
    took = config.stash[TOOK]
    if len(took) > 1:
        terminalreporter.section(
            f"lessons: {sum(m.cpu_seconds for m in took.values()):.0f} seconds of processor time"
        )
        for name, measure in took.items():
            terminalreporter.write_line(
                f"{measure.cpu_seconds:7.0f} {measure.peak_mb:7.0f} MB  {name}"
            )
