"""A student's copy: no outputs, nothing that gives an answer away, and no update that loses what
was written.
"""

import nbformat
import pytest

from tools import student


def cell(name, source, kind="code"):
    made = (nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell)(source)
    made.id = name
    return made


def lesson(**sources):
    return nbformat.v4.new_notebook(cells=[cell(name, source) for name, source in sources.items()])


def texts(notebook):
    return [each.source for each in notebook.cells]


@pytest.fixture
def copies(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    said = student.update(tmp_path / "student")
    assert len(said) == 22 and all(line.endswith(": new") for line in said)
    return tmp_path / "student"


def test_nothing_is_given_away_and_a_second_update_does_nothing(copies):
    assert student.update(copies) == []
    for path in copies.glob("*.ipynb"):
        made, stored = (
            nbformat.read(file, as_version=4)
            for file in (path, student.ROOT / "notebooks" / path.name)
        )
        assert texts(made) == texts(stored)
        code = [each for each in made.cells if each.cell_type == "code"]
        assert not any(
            c.outputs or c.execution_count or "outputs_hidden" in c.metadata.jupyter for c in code
        )
        folded = {
            each.source for each in code if each.metadata.get("jupyter", {}).get("source_hidden")
        }
        assert folded == {each.source for each in code if "figures.show(" in each.source}
        assert all(map(nbformat.sign.NotebookNotary().check_signature, (made, stored)))


def test_a_file_that_cannot_be_read_is_left_alone(copies):
    broken = copies / "09_bert.ipynb"
    deep = '{"nbformat": 4, "metadata": {}, "cells": ' + "[" * 100_000 + "]" * 100_000 + "}"
    other = '{"nbformat": 4, "metadata": {}, "cells": 3}'
    for content in ("{ half a notebook", "{}", other, deep):
        broken.write_text(content)
        (said,) = student.update(copies)
        assert (
            said.startswith(str(broken)) and "rename it" in said and broken.read_text() == content
        )


def test_what_a_student_wrote_stays():
    mine = student.fresh(lesson(a="1", stub="...", c="3", old="4", kept="5"))
    mine.cells[0].outputs = [nbformat.v4.new_output("stream", text="ran")]
    mine.cells[1].source = "my answer"
    mine.cells.insert(2, cell("own", "my note", "markdown"))
    mine.cells[-1].source = "5, by me"
    new = student.merged(mine, lesson(first="0", a="1", stub="...", c="3, newer"))
    assert texts(new) == ["0", "1", "my answer", "my note", "3, newer", "5, by me"]
    assert new.cells[1].outputs and not new.cells[4].outputs
    assert texts(student.merged(new, lesson(first="0", a="1", stub="...", c="3, newer"))) == texts(
        new
    )


def test_where_both_have_changed_both_stand():
    mine = student.fresh(lesson(a="1"))
    mine.cells[0].source = "mine"
    for _ in range(2):  # and only once
        mine = student.merged(mine, lesson(a="theirs"))
        assert texts(mine) == ["mine", student.NEW + "theirs"]
