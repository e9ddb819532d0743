"""The lessons as a student works in them: `python -m tools.student` makes or updates the copies in
student/.

No outputs, the code of pictures folded with its captions, nothing under version control. An update
takes over what is new in the course and keeps what the student wrote: cells that were changed, and
cells that were added."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from nbformat.validator import ValidationError

from course_lib.files import atomic_write
from tools import home

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "student"
# What a broken notebook raises: half a file, other JSON, JSON in a hundred thousand brackets.
UNREADABLE = (ValueError, OSError, AttributeError, TypeError, RecursionError, ValidationError)
NEW = "# The course's new version of the cell above, which you have changed.\n"


def digest(cell: NotebookNode) -> str:
    """What tells two texts of a cell apart."""
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


def fresh(lesson: NotebookNode) -> NotebookNode:
    """A lesson without outputs, the cells that draw pictures folded; each cell remembers the
    course's text of it.
    """
    lesson = copy.deepcopy(lesson)
    for cell in lesson.cells:
        cell.metadata["course"] = digest(cell)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            # A caption says what the picture shows, before one has looked.
            cell.metadata["jupyter"] = {"source_hidden": "figures.show(" in cell.source}
    return lesson


def merged(mine: NotebookNode, lesson: NotebookNode) -> NotebookNode:
    """The newest course in a student's copy: changed and added cells stay, unchanged ones follow
    the course.

    Where both have changed a cell, the student's stays and the course's comes below it. A cell that
    the course has dropped stays if it was changed. Outputs stay where the code is the same."""
    new = fresh(lesson)
    known = {cell.id for cell in new.cells}
    copies = {cell.id: cell for cell in mine.cells}
    # the student's own cells, behind which cell of the course
    own: dict[str, list[NotebookNode]] = {}
    place = ""
    for cell in mine.cells:
        if cell.id in known:
            place = cell.id
        elif cell.metadata.get("course") != digest(cell):
            own.setdefault(place, []).append(cell)
    cells = own.pop("", [])
    for cell in new.cells:
        cells += _joined(copies.get(cell.id), cell) + own.pop(cell.id, [])
    return NotebookNode({**new, "cells": cells, "metadata": {**new.metadata, **mine.metadata}})


def _joined(mine: NotebookNode | None, course: NotebookNode) -> list[NotebookNode]:
    if mine is None:
        return [course]
    before, now = mine.metadata.get("course"), digest(course)
    if mine.source == course.source:
        mine.metadata["course"] = now
        return [mine]
    if before == digest(mine):
        return [course]
    mine.metadata["course"] = now
    if before == now:
        return [mine]
    below = {"id": now[:8], "source": NEW + course.source, "metadata": {}}
    return [mine, NotebookNode({**course, **below})]


def update(folder: Path = FOLDER) -> list[str]:
    """Make or update every lesson's copy; one sentence for each that was made, changed or cannot be
    read.
    """
    said = []
    notary = NotebookNotary()
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        lesson = nbformat.read(path, as_version=4)
        target = folder / path.name
        notary.sign(lesson)  # JupyterLab shows the tables and widgets of signed notebooks only
        try:
            before = target.read_text("utf-8") if target.exists() else ""
            made = merged(nbformat.reads(before, as_version=4), lesson) if before else fresh(lesson)
        except UNREADABLE as error:
            said.append(
                f"{target} is left as it is, since it cannot be read ({error}); rename it to get a"
                " fresh copy."
            )
            continue
        text = nbformat.writes(made) + "\n"
        if text != before:
            with atomic_write(target) as file:
                file.write(text)
            said.append(f"{target.name}: {'updated, with what you wrote' if before else 'new'}")
        notary.sign(made)
    return said


if __name__ == "__main__":
    print(*filter(None, [home.ensure()]), *update() or ["Every copy is up to date."], sep="\n")
