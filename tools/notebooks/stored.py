"""A pytest plugin on top of nbval: each stored cell of a lesson is a test, and so is the notebook rebuilt from them.

nbval collects the cells, runs them one by one in a kernel and reports. Three things are done in our way: the kernel has
no network; what a cell displays is what a reader sees in the end (a live curve that is drawn anew counts once); and
stored and fresh outputs are compared by `compare.cells`, numbers within a tolerance. One execution of the lesson so
gives the comparison of its outputs, the proof that it needs no network, and the rebuilt file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile

from tools.notebooks import compare, scrub
from tools.notebooks.build import is_scrubbed, read
from tools.notebooks.execute import CELL_TIMEOUT, OfflineKernelManager, environment

DISPLAYS = ("display_data", "execute_result")


class Kernel(RunningKernel):  # type: ignore[misc]
    """nbval's kernel, offline, with the messages of a cell settled before nbval sees them."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.km = OfflineKernelManager(kernel_name="python3")
        self.km.start_kernel(cwd=str(folder), env=env)
        self.kc = self.km.client()
        self.kc.start_channels()
        self.kc.wait_for_ready(timeout=120)
        self.waiting: list[dict[str, Any]] = []
        self.shown: dict[str, dict[str, Any]] = {}

    def get_message(self, stream: str, timeout: float | None = None) -> Any:
        """The next message; those of iopub once the whole cell has spoken."""
        if stream != "iopub":
            return super().get_message(stream, timeout)
        if not self.waiting:
            heard: list[dict[str, Any]] = []
            while not heard or heard[-1]["content"].get("execution_state") != "idle":
                heard.append(super().get_message("iopub", timeout))
            self.waiting = self._settle(heard)
        return self.waiting.pop(0)

    def _settle(self, heard: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Apply updates and clearings of the display, as a notebook's page does."""
        settled: list[dict[str, Any]] = []
        clear = False
        for message in heard:
            kind, content = message["msg_type"], message["content"]
            name = content.get("transient", {}).get("display_id")
            if kind == "clear_output":
                clear = True
                if content.get("wait"):
                    continue
            elif kind == "update_display_data":
                self.shown.get(name, {}).update(data=content["data"], metadata=content["metadata"])
                continue
            if clear and kind in (*DISPLAYS, "stream", "error", "clear_output"):
                settled = [m for m in settled if m["msg_type"] not in (*DISPLAYS, "stream")]
                clear = False
            if kind in DISPLAYS and name is not None:
                self.shown[name] = content
            if kind != "clear_output":
                settled.append(message)
        return settled


class Cell(IPyNbCell):  # type: ignore[misc]
    """One stored code cell: it must have been executed, and executing it again must give the stored outputs."""

    def runtest(self) -> None:
        """Execute and compare."""
        if self.cell.execution_count is None:
            self.raise_cell_error("The cell was never executed: build the notebook again.", "")
        super().runtest()

    def compare_outputs(self, test: Any, ref: Any, skip_compare: Any = None) -> bool:
        """True where the fresh outputs agree with the stored ones; called by nbval."""
        problems = compare.cells(self.cell, scrub.outputs(test))
        self.comparison_traceback = problems
        return not problems


class Rebuilt(pytest.Item):
    """The notebook put together from the fresh outputs is the stored one, in the form that the build writes."""

    def runtest(self) -> None:
        """Compare the whole file."""
        assert isinstance(self.parent, Lesson)
        assert is_scrubbed(self.path), "the file is not as the build writes it; `make build` writes it anew"
        problems = compare.notebooks(scrub.scrub(read(self.path)), self.parent.rebuilt())
        assert not problems, "\n".join(problems)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """The differences, without a traceback through pytest."""
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where a failure is reported."""
        return self.path, None, f"{self.path.name}: rebuilt"


class Lesson(IPyNbFile):  # type: ignore[misc]
    """A notebook; its items are its code cells and, at the end, the rebuilt file."""

    def collect(self) -> Iterator[pytest.Item]:
        """The cells as nbval finds them, as ours."""
        self.items = []
        for found in super().collect():
            options = found.options
            options["check"] = True  # what is not compared, and how closely the rest is, `compare` decides by tags
            item = Cell.from_parent(self, name=found.name, cell_num=found.cell_num, cell=found.cell, options=options)
            item.output_timeout = 60  # seconds between messages; nbval's five are too few on a busy machine
            self.items.append(item)
        yield from self.items
        yield Rebuilt.from_parent(self, name="rebuilt")

    def setup(self) -> None:
        """Start the kernel."""
        self.config.option.nbval_cell_timeout = CELL_TIMEOUT
        self.surroundings = environment()
        self.kernel = Kernel(self.path.parent, self.surroundings.__enter__())

    def teardown(self) -> None:
        """Stop it."""
        super().teardown()
        self.surroundings.__exit__(None, None, None)

    def rebuilt(self) -> NotebookNode:
        """The stored notebook with the outputs of this run."""
        fresh = nbformat.from_dict(self.nb)
        items = iter(self.items)
        for cell in fresh.cells:
            if cell.cell_type == "code":
                outputs = next(items).test_outputs
                cell.outputs = [nbformat.v4.new_output(**_as_output(output)) for output in outputs or []]
        return scrub.scrub(fresh)


def _as_output(output: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in output.items() if key != "execution_count"}


def collect(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """For `pytest_collect_file`: the lessons in notebooks/, each as a collector of its cells."""
    if file_path.suffix != ".ipynb" or parent.config.option.nbval or parent.config.option.nbval_lax:
        return None
    lesson: pytest.Collector = Lesson.from_parent(parent, path=file_path)
    lesson.add_marker("notebooks")
    return lesson
