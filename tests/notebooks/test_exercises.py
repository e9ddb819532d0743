"""The exercises of every lesson: the stub is not written yet, the answer folded away below it
passes its check.
"""

import ast
import math
import re
from collections import Counter
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from classroom import checks
from tools.notebooks import lessons
from tools.notebooks.build import read

ANSWER = re.compile(r"<summary>Answer</summary>.*?```python\n(.*?)```", re.DOTALL)
CHECK = re.compile(r"^checks\.(\w+)\((\w+)\)", re.MULTILINE)
NAMES = {"torch": torch, "F": F, "math": math, "Counter": Counter, "pairwise": pairwise}


def exercises(path):
    """(check, student's function, the stub's cell, all answers of the lesson) for every check that
    a lesson calls.
    """
    cells = read(path).cells
    answers = [
        a for cell in cells if cell.cell_type == "markdown" for a in ANSWER.findall(cell.source)
    ]
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    answers = [*given(code, "\n".join(answers)), *answers]
    for check, name in (found for source in code for found in CHECK.findall(source)):
        stub = next(source for source in code if f"def {name}(" in source)
        yield pytest.param(check, name, stub, "\n\n".join(answers), id=f"{path.stem}-{check}")


def given(code, answers):
    """The functions that the lesson gives and that an answer calls: cells without a check."""
    for source in code:
        if source.startswith("def ") and "checks." not in source:
            for node in ast.parse(source).body:
                if isinstance(node, ast.FunctionDef) and f"{node.name}(" in answers:
                    yield ast.unparse(node)


def verdict(check, name, source):
    """On what a student's cell defines, without the check that may stand below it."""
    space = dict(NAMES)
    exec(CHECK.sub("", source), space)
    return checks.exercises()[check](space[name])


FOUND = [exercise for path in lessons() for exercise in exercises(path)]


@pytest.mark.parametrize(("check", "name", "stub", "answers"), FOUND)
def test_an_exercise(check, name, stub, answers):
    empty = verdict(check, name, stub)
    assert (
        not empty.passed
        and "not written yet" in empty.message
        and verdict(check, name, answers).passed
    )
