"""Every lesson has the parts that a lesson needs, and each rule finds the lesson that lacks its
part.
"""

import copy

import pytest
from nbformat import v4

from tests.notebooks import anatomy, toy
from tests.notebooks.toy import edit
from tests.slides.toy import picture
from tools.notebooks import lessons
from tools.notebooks.build import is_scrubbed, read


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_lesson(path):
    assert anatomy.problems(read(path)) == []


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_lesson_is_stored_as_the_build_writes_it(path):
    assert is_scrubbed(path), f"make build LESSON={path.stem}"


@pytest.fixture(scope="module")
def good():
    """The toy lesson as if it had been executed."""
    notebook = v4.new_notebook(cells=toy.cells())
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            seen = [v4.new_output("stream", name="stdout", text="seen")]
            cell.outputs = picture() if "plt.subplots" in cell.source else seen
    return notebook


def test_a_good_lesson_passes(good):
    assert anatomy.problems(good) == []


def printed(text, name="stdout"):
    return [v4.new_output("stream", name=name, text=text)]


def html(text):
    return [v4.new_output("display_data", data={"text/html": text})]


CELL, FIGURE = "object()", "plt.subplots"
SLIPS = [
    ("not tagged", edit("SCALE =", metadata={})),
    ("the parameters are", edit("SCALE =", '"lesson"', '"gpu"')),
    ("You need first", edit("# A lesson", "You need first", "Wanted")),
    ("What to remember", edit("## What", "## What to remember", "## Read on")),
    ("never executed", edit(CELL, execution_count=None)),
    ("out of order", edit(CELL, execution_count=99)),
    ("semicolon", edit(CELL, CELL, CELL + ";")),
    (
        "an error",
        edit(CELL, outputs=[v4.new_output("error", ename="ValueError", evalue="x", traceback=[])]),
    ),
    ("a warning", edit(CELL, outputs=printed("UserWarning: x", "stderr"))),
    ("losse", edit(CELL, metadata={"tags": ["losse"]})),
    (
        "text alternative",
        lambda n: next(c for c in n.cells if FIGURE in c.source).outputs[0].update(metadata={}),
    ),
    ("no caption", lambda n: next(c for c in n.cells if FIGURE in c.source).outputs.pop()),
    ("picture.png", edit("A picture.", "A picture.", "![x](picture.png)")),
    ("<svg>", edit(CELL, outputs=html("<svg width='3'></svg>"))),
    ("minutes", edit("### Exercise 1", " · about 1 minutes")),
    ("as the others", edit("### Exercise 1", "difficulty ●○○", "difficulty ●○○○○")),
    ("no check", edit("checks.square(square)", "checks.square(square)", "square(2)")),
    ("an answer", edit("<summary>Answer", "<summary>Answer", "<summary>More")),
    ("a quiz", edit("widgets.quiz('?')", outputs=[])),
    (
        "cdn.example.org",
        edit(CELL, outputs=html('<script src="https://cdn.example.org/x.js"></script>')),
    ),
    ("/home/anna", edit(CELL, outputs=printed("saved in /home/anna/x.txt"))),
    ("4.0 MB", edit(CELL, outputs=printed("x" * 4_000_000))),
]


@pytest.mark.parametrize(("message", "slip"), SLIPS, ids=[message for message, _ in SLIPS])
def test_each_rule_finds_its_slip(good, message, slip):
    bad = copy.deepcopy(good)
    slip(bad)
    assert any(message in line for line in anatomy.problems(bad)), anatomy.problems(bad)
