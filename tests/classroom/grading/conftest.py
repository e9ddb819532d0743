"""What the homework's tests share: the assignments, what judges a function, and a solved
submission.
"""

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from classroom.grading import box, score
from classroom.grading.assignment import MASTERS, Assignment, grade_id


def sampled(number: int) -> list[pytest.MarkDecorator]:
    """The marks of a slow case: the first of its kind is run by `make test-all`, the others each
    night.
    """
    return [pytest.mark.slow, pytest.mark.nightly] if number else [pytest.mark.slow]


@cache
def assignment(name: str) -> Assignment:
    return Assignment(name)


@cache
def grading(name: str) -> score.GradingRun:
    """A grading without a box, for functions that are trusted, with a seed of the tests' own."""
    return score.GradingRun(assignment(name), 7, box.Limits(), box.Sandbox("plain"), Path("none"))


def points(name: str, function: str, fn: Callable[..., Any]) -> dict[str, bool]:
    """test id -> passed, of a function in the place of one that this homework asks for."""
    tests = [t for t in assignment(name).tests.values() if t.function == function]
    assert tests
    return {test.id: score.judge(fn, test, grading(name))[0] for test in tests}


MASTER_NAMES = sorted(path.stem for path in MASTERS.glob("*.ipynb"))


@pytest.fixture(params=MASTER_NAMES)
def master(request: pytest.FixtureRequest) -> Assignment:
    """Each of the course's masters."""
    return assignment(request.param)


@pytest.fixture(scope="session")
def hw1() -> Assignment:
    return assignment("hw1")


@pytest.fixture(scope="session")
def solved(hw1: Assignment) -> NotebookNode:
    """The release with every answer filled in, as a good student hands it in."""
    notebook = copy.deepcopy(hw1.release)
    answers = {grade_id(cell): cell.source for cell in hw1.solutions().cells if grade_id(cell)}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers[grade_id(cell)]
    nbformat.validate(notebook)
    return notebook
