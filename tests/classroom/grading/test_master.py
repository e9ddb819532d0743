"""The master and what is made of it: solved, it earns everything; released, it holds no answer; both run."""

import ast
import inspect
import json
import warnings
import zipfile

import nbformat
import pytest

from classroom.checks import base, homework
from classroom.grading import release
from classroom.grading.assignment import Assignment, grade_id
from course_lib.errors import CourseError
from course_lib.files import COURSE
from tools.notebooks.execute import execute


def test_the_points_are_those_of_the_text(hw1):
    assert hw1.questions == {"q1": 24, "q2": 16, "q3": 10, "q4": 16, "q5": 12, "q6": 12, "q7": 10}
    assert sum(hw1.questions.values()) == 100
    for name in hw1.tasks:  # each function has a visible and a hidden test
        assert sorted(t.hidden for t in hw1.tests.values() if t.function == name) == [False, True]
    lines = "\n".join(cell.source for cell in hw1.release.cells).splitlines()
    for question, points in hw1.questions.items():
        head = f"## Question {question.removeprefix('q')} "
        assert any(line.startswith(head) and line.endswith(f"({points:g} points)") for line in lines), question
    cells = {grade_id(cell): cell.source for cell in hw1.release.cells}
    assert all(cells[t.id].startswith(f"# {t.points:g} points.") for t in hw1.tests.values() if t.hidden)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_every_seed_will_do(hw1, seed):
    for task in hw1.tasks.values():
        task.prove(seed)


def test_the_release_holds_no_answer(hw1):
    text = nbformat.writes(hw1.release) + hw1.checks()
    for word in ("SOLUTION", "HIDDEN TESTS", "Task(", "For teachers", "A sum has no order"):
        assert word not in text, word
    code = "\n".join(cell.source for cell in hw1.release.cells if cell.cell_type == "code")
    for name, task in hw1.tasks.items():
        lines = ast.unparse(ast.parse(inspect.getsource(task.fn)).body[0].body[1:]).splitlines()
        assert not [line for line in lines if len(line) > 25 and line in code], name
    assert not any(cell.get("outputs") for cell in hw1.release.cells)


def test_the_build_is_the_same_twice(hw1, tmp_path):
    once, twice = (release.build(hw1, tmp_path / name) for name in "ab")
    files = sorted(p.relative_to(once) for p in once.rglob("*") if p.is_file())
    assert [str(f) for f in files] == ["hw1.zip", "release/hw1.ipynb", "release/hw1_checks.json", "solutions/hw1.ipynb"]
    assert all((once / f).read_bytes() == (twice / f).read_bytes() for f in files)
    with zipfile.ZipFile(once / "hw1.zip") as archive:
        assert archive.namelist() == ["hw1/hw1.ipynb", "hw1/hw1_checks.json"]
    answers = nbformat.read(once / "solutions" / "hw1.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in answers.cells)
    assert "masked_fill" in text and "A sum has no order" in text
    assert "HIDDEN" not in text and "SOLUTION" not in text and "Task(" not in text


def test_checks_survive_the_file(hw1, tmp_path):
    path = tmp_path / "hw1_checks.json"
    path.write_text(hw1.checks(), "utf-8")
    sheets = homework.read_sheets(path)
    for name, task in hw1.tasks.items():
        homework.compare(task.fn, sheets[name])
        for says, wrong in task.exercise.wrong:
            with pytest.raises(base.WrongError) as error:
                homework.compare(wrong, sheets[name])
            said = str(error.value)
            # Two slips may look alike on few inputs (a mask of one kind); then the first of the list is named.
            assert said == says or said in [s for s, _ in task.exercise.wrong] or "argument" in said, (name, says, said)


@pytest.mark.slow
def test_the_release_runs_as_it_is(hw1, tmp_path):
    folder = release.build(hw1, tmp_path) / "release"
    executed, _ = execute(nbformat.read(folder / "hw1.ipynb", as_version=4), folder)
    said = _said(executed)
    for name in hw1.tasks:
        assert f"{name}: not written yet. It returns nothing so far; fill it in and run both cells." in said
    assert "right." not in said


@pytest.mark.slow
def test_the_master_runs_and_is_right(hw1, tmp_path):
    folder = release.build(hw1, tmp_path) / "release"
    executed, measure = execute(hw1.master, folder)
    said = _said(executed)
    for name in hw1.tasks:
        assert f"{name}: right. Verified:" in said and f"{name}: right, and " in said
    pictures = [o for c in executed.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(pictures) == 4
    assert measure.cpu_seconds < 300


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, r"hw1_checks\.json beside this notebook"), ("{", "damaged"), ("{}", "no check 'rotate'")],
)
def test_checks_without_their_file_say_so(tmp_path, monkeypatch, content, says):
    monkeypatch.setattr(homework, "BUILT", tmp_path / "none")
    if content is not None:
        (tmp_path / "hw1_checks.json").write_text(content)
    with pytest.raises(CourseError, match=says):
        homework.Homework("hw1", tmp_path).check("rotate", None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.replace("### END SOLUTION", "", 1), "no partner"),
        (lambda s: s.replace("q5-rotate-visible", "q5-rotates-visible"), "no Task for rotates"),
        (lambda s: s.replace("q5-rotate-visible", "q5-rotate-hidden"), "stands twice"),
        (lambda s: s.replace("q5-rotate-visible", "q5-rotate-shown"), "call q5-rotate-shown"),
        (lambda s: s[:100], "not a notebook"),
    ],
)
def test_a_broken_master_is_named(hw1, tmp_path, change, says):
    path = tmp_path / "own.ipynb"
    path.write_text(change(nbformat.writes(hw1.master)), "utf-8")
    warnings.simplefilter("ignore")  # nbformat's, about cells with one name
    with pytest.raises(CourseError, match=says):
        Assignment(path)


def test_a_mistake_that_gets_through_is_named(hw1):
    task = hw1.tasks["rotate"]
    harmless = type(task)(task.fn, task.cases, [("nothing", "cos, sin = ", "cos,sin = ")], "")
    with pytest.raises(CourseError, match="no visible input shows this mistake: nothing"):
        harmless.prove()


def test_every_marker_in_the_repository_is_nbgraders(hw1):
    """The master opens in nbgrader: its schema, its fields."""
    for cell in hw1.master.cells:
        data = cell.metadata.get("nbgrader")
        if data:
            assert data["schema_version"] == 3 and {"grade", "solution", "locked", "task", "grade_id"} <= set(data)
            assert ("points" in data) == data["grade"]
    raw = json.loads(COURSE.joinpath("notebooks/homework/hw1.ipynb").read_text("utf-8"))
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in raw["cells"])


def _said(notebook):
    return "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output
    )
