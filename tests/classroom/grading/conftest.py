"""What the homework's tests share: the assignment, a solved submission, and the seed of the tests' inputs."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from classroom.grading import box, score
from classroom.grading.assignment import Assignment, grade_id


@pytest.fixture(scope="session")
def hw1() -> Assignment:
    return Assignment("hw1")


@pytest.fixture(scope="session")
def run(hw1: Assignment) -> score.GradingRun:
    """A grading without a box, for functions that are trusted."""
    return score.GradingRun(hw1, 7, box.Limits(), box.Sandbox("plain"), Path("none"))


@pytest.fixture(scope="session")
def points(hw1: Assignment, run: score.GradingRun) -> Callable[[Callable[..., Any]], dict[str, bool]]:
    """test id -> passed, of a function that bears the name of one that the homework asks for."""

    def judge(fn: Callable[..., Any], name: str = "") -> dict[str, bool]:
        tests = [t for t in hw1.tests.values() if t.function == (name or fn.__name__)]
        assert tests
        return {test.id: score.judge(fn, test, run)[0] for test in tests}

    return judge


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
