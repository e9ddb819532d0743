"""A new lesson is one notebook and one folder: all lists have it, and nobody wrote it into one."""

import shutil
import sys

import nbformat
import pytest
from nbformat import v4

from classroom import checks, course, records, widgets
from classroom import lessons as packages
from classroom.figures import course_map
from classroom.records import ledger
from lab import lessons as experiments
from lab.engine import experiment
from tools import course as path_through
from tools import readme
from tools.notebooks import find, lessons, navigation

LAST = course.names()[-1]  # of the real lessons
NUMBER = f"{int(LAST[:2]) + 1:02}"
TOY = f"{NUMBER}_toy"
OPENING = f"""# {NUMBER} · A toy: nothing to learn

| | |
|---|---|
| You need first | [{LAST[:2]}]({LAST}.ipynb) |"""
FILES = {
    "lesson.toml": 'question = "What is twice two?"\nfamily = "start"\nplace = [2.5, 8]\n',
    "exercises.py": '''
from classroom.checks.exercise import exercise


@exercise([(2,), (3,)])
def twice(x):
    """Two times x."""
    return 2 * x
''',
    "exercises.toml": '[twice]\nverified = "two numbers"\n',
    "quiz.json": '{"1": {"question": "Four?", "choices": {"Yes.": "It is.", "No.": "It is."}}}',
    "glossary.json": '{"doubling": {"says": "Adding a number to itself."}}',
    "claims.yaml": """
- id: two-twos
  kind: exact
  says: twice two is four
  shows: the product
  rule: {statements: [{says: it is four, equal: [product, 4]}]}
""",
}
EXPERIMENT = """
from lab.lessons import experiment, given


@experiment("two-twos")
def two_twos(lab, seed):
    return {"product": 2.0 * given("toy")["twos"]}
"""


@pytest.fixture
def longer_course(tmp_path, monkeypatch):
    """The course with one lesson more, in a folder of its own."""
    checks.exercises()  # the other lessons' exercises are imported from where they stand
    notebooks, folders = tmp_path / "notebooks", tmp_path / "lessons"
    shutil.copytree(course.NOTEBOOKS, notebooks)
    shutil.copytree(course.FOLDERS, folders)
    cells = [v4.new_markdown_cell(OPENING), v4.new_markdown_cell("## Read on")]
    nbformat.write(v4.new_notebook(cells=cells), notebooks / f"{TOY}.ipynb")
    (folders / "toy").mkdir()
    for name, text in FILES.items():
        (folders / "toy" / name).write_text(text, "utf-8")

    measured = tmp_path / "measured"
    measured.mkdir()
    (measured / "toy.py").write_text(EXPERIMENT, "utf-8")
    (measured / "toy.yaml").write_text("twos: 2", "utf-8")

    monkeypatch.setattr(course, "NOTEBOOKS", notebooks)
    monkeypatch.setattr(course, "FOLDERS", folders)
    monkeypatch.setattr(packages, "__path__", [*packages.__path__, str(folders)])
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(measured)])
    monkeypatch.setattr(experiment, "LESSONS", measured)
    monkeypatch.setattr(experiment, "_FOUND", {})
    _forget()
    yield
    _forget()


def _forget():
    """What was read of another course, and the toy's modules."""
    checks.exercises.cache_clear()
    ledger.read.cache_clear()
    experiment.given.cache_clear()
    for name in list(sys.modules):
        if name.startswith(("classroom.lessons.toy", "lab.lessons.toy")):
            del sys.modules[name]


@pytest.mark.usefixtures("longer_course")
def test_it_is_in_every_list():
    assert course.names()[-1] == course.find(NUMBER) == course.find("toy") == TOY
    assert lessons()[-1] == find(NUMBER) == course.NOTEBOOKS / f"{TOY}.ipynb"
    assert course.lessons()[TOY].needs == (LAST,)

    row = f"| [{NUMBER} A toy](notebooks/{TOY}.ipynb) | What is twice two? |"
    assert row in readme.table()
    drawn = [text.get_text() for text in course_map.lesson_map(NUMBER).axes[0].texts]
    assert f"{NUMBER} the course" in drawn and "A toy" in drawn
    assert f"(../notebooks/{TOY}.ipynb)" in path_through.glossary()
    assert [claim.id for claim in records.of_lesson(NUMBER)] == ["two-twos"]
    assert "Four?" in widgets.quiz(f"{NUMBER}.1").html


@pytest.mark.usefixtures("longer_course")
def test_its_neighbour_leads_to_it():
    before = nbformat.read(course.NOTEBOOKS / f"{LAST}.ipynb", as_version=4)
    assert TOY not in before.cells[0].source + before.cells[-1].source
    link = f"[{NUMBER} A toy]({TOY}.ipynb)"
    for _ in range(2):  # nothing is written twice
        navigation.lead(before, LAST)
        assert before.cells[0].source.endswith(f"{link} →")
        assert before.cells[-1].source.count(f"\nNext: {link}") == 1
        assert "the last lesson" not in before.cells[-1].source
    assert f"({LAST}.ipynb)" in navigation.line(TOY, course.lessons())


@pytest.mark.usefixtures("longer_course")
def test_its_exercise_is_found_by_name(capsys):
    assert "twice" in dir(checks)
    assert checks.twice(lambda x: x + x).passed
    assert not checks.twice(lambda x: x).passed
    with pytest.raises(AttributeError, match="no exercise 'thrice'"):
        checks.thrice  # noqa: B018  asking is what is tested
    assert "two numbers" in capsys.readouterr().out


@pytest.mark.usefixtures("longer_course")
def test_its_claim_has_its_experiment():
    assert experiment.find("two-twos").measure(None, 0) == {"product": 4.0}
