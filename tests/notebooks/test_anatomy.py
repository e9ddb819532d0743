"""Every lesson has the parts that a lesson needs, and each rule finds the lesson that lacks its part."""

import copy

import pytest
from nbformat import v4

from tests.notebooks import toy
from tools.notebooks import anatomy, lessons
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
            cell.outputs = [v4.new_output("stream", name="stdout", text="seen")]
            if "plt.subplots" in cell.source:
                # A real PNG header: 200 by 150 pixels.
                png = "iVBORw0KGgoAAAANSUhEUgAAAMgAAACWCAYAAACb3McZAAAAAElFTkSuQmCC"
                alt = {"image/png": {"alt": "A line that rises faster and faster"}}
                caption = "The squares of one, two and three."
                cell.outputs = [
                    v4.new_output("display_data", data={"image/png": png}, metadata=alt),
                    v4.new_output("display_data", data={"text/html": f"<p>{caption}</p>", "text/plain": caption}),
                ]
    return notebook


def test_a_good_lesson_passes(good):
    assert anatomy.problems(good) == []


def _find(notebook, piece):
    return next(cell for cell in notebook.cells if piece in cell.source)


def _no_parameters(n):
    _find(n, "SCALE =").metadata = {}


def _other_default(n):
    _find(n, "SCALE =").source = 'SCALE = "gpu"\nSEED = 0\nDEVICE = "auto"\nDATA = "world"\nOUT = ""'


def _no_objectives(n):
    n.cells[0].source = n.cells[0].source.replace("You need first", "Wanted")


def _no_takeaway(n):
    _find(n, "## What to remember").source = "## Read on"


def _long_cells(n):
    for cell in n.cells:
        if cell.cell_type == "code":
            cell.source += "\n" + "x = 1\n" * 7


def _one_in_five_very_long(n):
    for cell in [c for c in n.cells if c.cell_type == "code" and c.metadata.get("tags") != ["parameters"]][::5]:
        cell.source += "\n" + "x = 1\n" * 20


def _wordless(n):
    n.cells = [c for c in n.cells if c.cell_type == "code" or c.source.startswith(("#", "<"))]


def _unexecuted(n):
    _find(n, "object()").execution_count = None


def _semicolon(n):
    _find(n, "object()").source += ";"


def _out_of_order(n):
    _find(n, "object()").execution_count = 99


def _error(n):
    _find(n, "object()").outputs = [v4.new_output("error", ename="ValueError", evalue="x", traceback=[])]


def _warning(n):
    _find(n, "object()").outputs = [v4.new_output("stream", name="stderr", text="UserWarning: x")]


def _unknown_tag(n):
    _find(n, "object()").metadata = {"tags": ["losse"]}


def _no_alt(n):
    _find(n, "plt.subplots").outputs[0].metadata = {}


def _no_caption(n):
    del _find(n, "plt.subplots").outputs[1]


def _markdown_picture(n):
    n.cells[2].source = "![x](picture.png)"


def _svg(n):
    _find(n, "object()").outputs = [v4.new_output("display_data", data={"text/html": "<svg width='3'></svg>"})]


def _two_exercises(n):
    _find(n, "### Exercise 3").source = "### Thing 3"


def _no_minutes(n):
    _find(n, "### Exercise 1").source = "### Exercise 1\n\n`difficulty ●○○ · importance ●●○`"


def _five_circles(n):
    _find(n, "### Exercise 1").source = "### Exercise 1\n\n`difficulty ●○○○○ · importance ●●○ · about 5 minutes`"


def _no_check(n):
    for cell in n.cells:
        if "check.square(" in cell.source:
            cell.source = "square(2)"


def _no_answer(n):
    for cell in n.cells:
        cell.source = cell.source.replace("<summary>Answer", "<summary>More")


def _two_quizzes(n):
    _find(n, "view.quiz('?')").source = "1"


def _fetches(n):
    html = '<script src="https://cdn.example.org/x.js"></script>'
    _find(n, "object()").outputs = [v4.new_output("display_data", data={"text/html": html})]


def _machine_path(n):
    _find(n, "object()").outputs = [v4.new_output("stream", name="stdout", text="saved in /home/anna/x.txt")]


def _huge(n):
    _find(n, "object()").outputs = [v4.new_output("stream", name="stdout", text="x" * 4_000_000)]


SLIPS = [
    (_no_parameters, "not tagged"), (_other_default, "the parameters are"), (_no_objectives, "You need first"),
    (_no_takeaway, "What to remember"), (_long_cells, "median"), (_one_in_five_very_long, "one code cell in ten"),
    (_wordless, "in a row"), (_unexecuted, "never executed"), (_out_of_order, "out of order"),
    (_semicolon, "semicolon"), (_error, "an error"),
    (_warning, "a warning"), (_unknown_tag, "losse"), (_no_alt, "text alternative"), (_no_caption, "no caption"),
    (_markdown_picture, "picture.png"), (_svg, "<svg>"), (_two_exercises, "fewer than three"),
    (_no_minutes, "minutes"), (_five_circles, "as the others"), (_no_check, "no check"),
    (_no_answer, "an answer"), (_two_quizzes, "2 quiz"),
    (_fetches, "cdn.example.org"), (_machine_path, "/home/anna"), (_huge, "4.0 MB"),
]  # fmt: skip


@pytest.mark.parametrize(("slip", "message"), SLIPS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_rule_finds_its_slip(good, slip, message):
    bad = copy.deepcopy(good)
    slip(bad)
    assert any(message in line for line in anatomy.problems(bad)), anatomy.problems(bad)
