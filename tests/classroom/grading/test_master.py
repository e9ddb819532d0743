"""The masters and what is made of them: solved, one earns everything; released, it holds no answer;
both run.
"""

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
from tests.classroom.grading.conftest import MASTER_NAMES, sampled
from tests.classroom.grading.test_mutants import ANSWERS
from tools.notebooks.execute import execute


def test_the_points_are_those_of_the_text(master):
    assert (
        4 <= len(master.questions) <= 8 and sum(master.questions.values()) == 100 and master.written
    )
    for name in master.tasks:  # each function has a visible and a hidden test
        assert sorted(t.hidden for t in master.tests.values() if t.function == name) == [
            False,
            True,
        ]
    lines = "\n".join(cell.source for cell in master.release.cells).splitlines()
    table = COURSE.joinpath("docs/teaching.md").read_text("utf-8").splitlines()
    for question, points in master.questions.items():
        head = f"## Question {question.removeprefix('q')} "
        assert any(
            line.startswith(head) and line.endswith(f"({points:g} points)") for line in lines
        ), question
        row = f"| {master.name} | {question.removeprefix('q')} |"
        assert any(line.startswith(row) and f"| {points:g} |" in line for line in table), row
    cells = {grade_id(cell): cell.source for cell in master.release.cells}
    assert all(
        cells[t.id].startswith(f"# {t.points:g} points.") for t in master.tests.values() if t.hidden
    )


@pytest.mark.parametrize("seed", [1, *(pytest.param(2 + n, marks=sampled(n)) for n in range(3))])
def test_every_seed_will_do(master, seed):
    for task in master.tasks.values():
        if seed > 1 or task.name not in ANSWERS[master.name].get("slow", ()):
            task.prove(seed)


def test_the_release_holds_no_answer(master):
    text = nbformat.writes(master.release) + master.checks()
    for word in ("SOLUTION", "HIDDEN TESTS", "Task(", "For teachers", *model_answers(master)):
        assert word not in text, word
    code = "\n".join(cell.source for cell in master.release.cells if cell.cell_type == "code")
    hints = "".join(
        cell.source for cell in master.release.cells if "<details>" in cell.source
    ).replace('"', "'")
    for name, task in master.tasks.items():
        tree = ast.parse(inspect.getsource(task.fn))
        calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not [call for call in calls if len(call) > 30 and call in hints], name
        lines = ast.unparse(tree.body[0].body[1:]).splitlines()
        assert not [line for line in lines if len(line) > 25 and line.strip() in code], name
        last = lines[-1].strip().removeprefix("return ").strip("()")  # a hint does not hand it over
        assert len(last) < 8 or last not in hints, name
    assert not any(cell.get("outputs") for cell in master.release.cells)


def test_the_build_is_the_same_twice(master, tmp_path):
    name = master.name
    once, twice = (release.build(master, tmp_path / folder) for folder in "ab")
    files = sorted(str(p.relative_to(once)) for p in once.rglob("*") if p.is_file())
    assert files == [
        f"{name}.zip",
        f"release/{name}.ipynb",
        f"release/{name}_checks.json",
        f"solutions/{name}.ipynb",
    ]
    assert all((once / f).read_bytes() == (twice / f).read_bytes() for f in files)
    with zipfile.ZipFile(once / f"{name}.zip") as archive:
        assert archive.namelist() == [f"{name}/{name}.ipynb", f"{name}/{name}_checks.json"]
    answers = nbformat.read(once / "solutions" / f"{name}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in answers.cells)
    assert (
        all(word in text for word in model_answers(master))
        and "raise NotImplementedError" not in text
    )
    assert "HIDDEN" not in text and "SOLUTION" not in text and "Task(" not in text


def test_checks_survive_the_file(master, tmp_path):
    path = tmp_path / "checks.json"
    path.write_text(master.checks(), "utf-8")
    sheets = homework.read_sheets(path)
    for name, task in master.tasks.items():
        homework.compare(task.fn, sheets[name])
        for says, wrong in task.exercise.wrong:
            with pytest.raises(base.WrongError) as error:
                homework.compare(wrong, sheets[name])
            said = str(error.value)
            # Two slips may look alike on few inputs (a mask of one kind); then the first of the
            # list is named.
            assert (
                said == says or said in [s for s, _ in task.exercise.wrong] or "argument" in said
            ), (name, says, said)


@pytest.mark.parametrize(
    "master",
    [pytest.param(name, marks=sampled(n)) for n, name in enumerate(MASTER_NAMES)],
    indirect=True,
)
def test_the_release_runs_as_it_is(master, tmp_path):
    folder = release.build(master, tmp_path) / "release"
    stubs = nbformat.read(folder / f"{master.name}.ipynb", as_version=4)
    executed, _ = execute(stubs, folder, threads=1)
    said = _said(executed)
    for name in master.tasks:
        assert (
            f"{name}: not written yet. It returns nothing so far; fill it in and run both cells."
            in said
        )
    assert "right." not in said


@pytest.mark.slow
def test_the_master_runs_and_is_right(master, tmp_path):
    folder = release.build(master, tmp_path) / "release"
    executed, measure = execute(master.master, folder, threads=1)
    said = _said(executed)
    for name in master.tasks:
        assert f"{name}: right. Verified:" in said and f"{name}: right, and " in said
    pictures = [
        o for c in executed.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})
    ]
    assert len(pictures) >= sum("figures.show(" in cell.source for cell in executed.cells) > 0
    assert measure.cpu_seconds < 300


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"hw1_checks\.json beside this notebook"),
        ("{", "damaged"),
        ("{}", "no check 'rotate'"),
    ],
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


def test_every_marker_in_the_repository_is_nbgraders(master):
    """The master opens in nbgrader: its schema, its fields."""
    for cell in master.master.cells:
        data = cell.metadata.get("nbgrader")
        if data:
            assert data["schema_version"] == 3 and {
                "grade",
                "solution",
                "locked",
                "task",
                "grade_id",
            } <= set(data)
            assert ("points" in data) == data["grade"]
    raw = json.loads(COURSE.joinpath(f"notebooks/homework/{master.name}.ipynb").read_text("utf-8"))
    assert all(
        not cell.get("outputs") and cell.get("execution_count") is None for cell in raw["cells"]
    )


def model_answers(master):
    """How the answers begin that students do not get."""
    return [cell.source[:60] for cell in master.master.cells if grade_id(cell) in master.written]


def _said(notebook):
    return "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text" in output
    )
