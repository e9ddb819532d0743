"""The exercises of a lesson: stubs, checks, and the answers folded away below them."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nbformat import NotebookNode

ANSWER = re.compile(r"<summary>Answer</summary>.*?```python\n(.*?)```", re.DOTALL)
CHECK = re.compile(r"^check\.(\w+)\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One call of a check: the stub's cell, all folded answers of the lesson, the check, the student's function."""

    stub: str
    answers: tuple[str, ...]
    check: str
    function: str

    def written(self) -> Any:
        """The verdict on the stub as it stands."""
        return self._verdict(self.stub)

    def answered(self) -> Any:
        """The verdict on the folded answer."""
        return self._verdict("\n\n".join(self.answers))

    def _verdict(self, source: str) -> Any:
        from course_lib import check

        return getattr(check, self.check)(student(source)[self.function])


def exercises(notebook: NotebookNode) -> Iterator[Exercise]:
    """Every check that a lesson calls, in order."""
    answers = tuple(a for cell in notebook.cells if cell.cell_type == "markdown" for a in ANSWER.findall(cell.source))
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for source in code:
        for checked, name in CHECK.findall(source):
            stub = next(s for s in code if f"def {name}(" in s)
            yield Exercise(stub, answers, checked, name)


def student(source: str) -> dict[str, Any]:
    """What a student's cell defines, without the check that may stand below it."""
    import torch
    import torch.nn.functional as F

    space: dict[str, Any] = {"torch": torch, "F": F, "math": math, "Counter": Counter, "pairwise": pairwise}
    exec(CHECK.sub("", source), space)  # noqa: S102  the course's own answers
    return space


def passed(notebook: NotebookNode) -> tuple[int, int]:
    """How many of a lesson's checks accept its folded answers, and how many checks there are."""
    found = list(exercises(notebook))
    count = 0
    for exercise in found:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
            count += bool(exercise.answered())
    return count, len(found)
