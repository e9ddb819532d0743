"""A lesson 22 is one notebook and one folder: all lists have it, and nobody wrote it into one."""

import shutil
import sys

import nbformat
import pytest
from nbformat import v4

from classroom import checks, course, records, widgets
from classroom import lessons as packages
from classroom.figures import course_map
from classroom.records import ledger
from tools import course as path_through
from tools import readme
from tools.notebooks import find, lessons, navigation

OPENING = """# 22 · A toy: nothing to learn

| | |
|---|---|
| You need first | [21](21_choosing.ipynb) |"""
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


@pytest.fixture
def course_of_23(tmp_path, monkeypatch):
    """The course with a lesson 22 more, in a folder of its own."""
    checks.exercises()  # the other lessons' exercises are imported from where they stand
    notebooks, folders = tmp_path / "notebooks", tmp_path / "lessons"
    shutil.copytree(course.NOTEBOOKS, notebooks)
    shutil.copytree(course.FOLDERS, folders)
    cells = [v4.new_markdown_cell(OPENING), v4.new_markdown_cell("## Read on")]
    nbformat.write(v4.new_notebook(cells=cells), notebooks / "22_toy.ipynb")
    (folders / "toy").mkdir()
    for name, text in FILES.items():
        (folders / "toy" / name).write_text(text, "utf-8")

    monkeypatch.setattr(course, "NOTEBOOKS", notebooks)
    monkeypatch.setattr(course, "FOLDERS", folders)
    monkeypatch.setattr(packages, "__path__", [*packages.__path__, str(folders)])
    _forget()
    yield
    _forget()


def _forget():
    """What was read of another course, and the toy's modules."""
    checks.exercises.cache_clear()
    ledger.read.cache_clear()
    for name in [name for name in sys.modules if name.startswith("classroom.lessons.toy")]:
        del sys.modules[name]


@pytest.mark.usefixtures("course_of_23")
def test_lesson_22_is_in_every_list():
    assert course.names()[-1] == course.find("22") == course.find("toy") == "22_toy"
    assert lessons()[-1] == find("22") == course.NOTEBOOKS / "22_toy.ipynb"
    assert course.lessons()["22_toy"].needs == ("21_choosing",)

    assert "| [22 A toy](notebooks/22_toy.ipynb) | What is twice two? |" in readme.table()
    drawn = [text.get_text() for text in course_map.lesson_map("22").axes[0].texts]
    assert "22 the course" in drawn and "A toy" in drawn
    assert "(../notebooks/22_toy.ipynb)" in path_through.glossary()
    assert [claim.id for claim in records.of_lesson("22")] == ["two-twos"]
    assert "Four?" in widgets.quiz("22.1").html


@pytest.mark.usefixtures("course_of_23")
def test_its_neighbour_leads_to_it():
    before = nbformat.read(course.NOTEBOOKS / "21_choosing.ipynb", as_version=4)
    assert "22_toy" not in before.cells[0].source
    navigation.lead(before, "21_choosing")
    assert before.cells[0].source.endswith("[22 A toy](22_toy.ipynb) →")
    assert "← [21 Choosing a model](21_choosing.ipynb)" in navigation.line(
        "22_toy", course.lessons()
    )


@pytest.mark.usefixtures("course_of_23")
def test_its_exercise_is_found_by_name(capsys):
    assert "twice" in dir(checks)
    assert checks.twice(lambda x: x + x).passed
    assert not checks.twice(lambda x: x).passed
    with pytest.raises(AttributeError, match="no exercise 'thrice'"):
        checks.thrice  # noqa: B018  asking is what is tested
    assert "two numbers" in capsys.readouterr().out
