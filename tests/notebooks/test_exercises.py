"""Every exercise of every lesson: its stub runs and is not written yet, its folded answer passes its check."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import torch.nn.functional as F

from course_lib import check

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
ANSWER = re.compile(r"<summary>Answer</summary>.*?```python\n(.*?)```", re.DOTALL)
CHECK = re.compile(r"^check\.(\w+)\((\w+)\)", re.MULTILINE)


def exercises() -> Iterator[Any]:
    """(stub, folded answers, check, name of the student's function) of every check that a lesson calls."""
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        answers = [a for cell in cells if cell.cell_type == "markdown" for a in ANSWER.findall(cell.source)]
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        for source in code:
            for checked, name in CHECK.findall(source):
                stub = next(s for s in code if f"def {name}(" in s)
                yield pytest.param(stub, answers, checked, name, id=f"{path.stem}-{checked}")


def student(source: str) -> dict[str, Any]:
    """What a student's cell defines, without the check that may stand below it."""
    space: dict[str, Any] = {"torch": torch, "F": F, "math": math, "Counter": Counter, "pairwise": pairwise}
    exec(CHECK.sub("", source), space)
    return space


@pytest.mark.parametrize(("stub", "answers", "checked", "name"), list(exercises()))
def test_the_stub_is_not_written_yet(stub, answers, checked, name):
    verdict = getattr(check, checked)(student(stub)[name])
    assert not verdict.passed and "not written yet" in verdict.message


@pytest.mark.parametrize(("stub", "answers", "checked", "name"), list(exercises()))
def test_the_folded_answer_passes(stub, answers, checked, name):
    space = student("\n\n".join(answers))
    assert name in space, "no folded answer defines it"
    assert getattr(check, checked)(space[name]).passed


def test_every_lesson_has_exercises():
    found = {param.id.split("-")[0] for param in exercises()}
    assert found == {path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb")}
