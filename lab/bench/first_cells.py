"""What a person waits for in a lesson's first cell: `python -m lab.bench --first-cells`.

The parameters and the first cell of each lesson run in a fresh interpreter. Every import is counted
for the package that is imported, without what this package imports from others in the table:

    import course_lib      0.5 s in all
      import torch         0.4 s             torch 0.4, course_lib 0.1

All figures are seconds of the processor, so that other programs on the machine hardly count.
"""

import builtins
import contextlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import COURSE, read_json

LESSONS = COURSE / "notebooks"
PACKAGES = ("torch", "course_lib", "classroom", "matplotlib", "scipy", "sklearn", "pandas")
CELLS = 2  # the parameters and the first cell


class Imports:
    """Counts the seconds of imports by package, in place of Python's own `__import__`."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PACKAGES, 0.0)
        self.real = builtins.__import__
        self.running: list[tuple[str, float]] = []  # package, when its current stretch began

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        package = name.partition(".")[0]
        is_running = bool(self.running) and self.running[-1][0] == package
        if package not in self.seconds or is_running:
            return self.real(name, *args, **options)
        self._pause()
        self.running.append((package, time.process_time()))
        try:
            return self.real(name, *args, **options)
        finally:
            self._pause()
            self.running.pop()
            if self.running:
                self.running[-1] = (self.running[-1][0], time.process_time())

    def _pause(self) -> None:
        """Count the stretch of the package that is being imported now."""
        if self.running:
            package, began = self.running[-1]
            self.seconds[package] += time.process_time() - began


def run_here(lesson: Path) -> dict[str, float]:
    """Run a lesson's first cell in this interpreter; seconds by package, and "all" of them."""
    cells = [cell for cell in read_json(lesson)["cells"] if cell["cell_type"] == "code"]
    imports = Imports()
    builtins.__import__ = imports
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in cells[:CELLS]:
            code = compile("".join(cell["source"]), lesson.name, "exec")
            exec(code, names)  # noqa: S102 - the lesson is ours
    return imports.seconds | {"all": time.process_time()}


def run_alone(lesson: Path) -> dict[str, float]:
    """The same in a fresh interpreter."""
    code = (
        "import json, sys; from pathlib import Path; from lab.bench.first_cells import run_here;"
        " print(json.dumps(run_here(Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(lesson)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=COURSE, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CourseError(f"The first cell of {lesson.stem} failed: {last}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def report(lessons: Path = LESSONS) -> str:
    """A row for each lesson, as a table in Markdown."""
    lines = [
        f"| lesson | all | {' | '.join(PACKAGES)} | models and the rest |",
        f"|---|---{'|---' * len(PACKAGES)}|---|",
    ]
    for lesson in sorted(lessons.glob("[0-9][0-9]_*.ipynb")):
        seconds = run_alone(lesson)
        rest = seconds["all"] - sum(seconds[package] for package in PACKAGES)
        cells = [seconds["all"], *(seconds[package] for package in PACKAGES), rest]
        lines.append(f"| {lesson.stem} | {' | '.join(f'{cell:.1f}' for cell in cells)} |")
    return "\n".join(lines)
