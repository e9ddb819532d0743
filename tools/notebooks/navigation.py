"""The two lines that lead through the course: under a lesson's opening table, and at its end.

Both are written by `python -m tools.course` (and the first by every build), so that a new lesson is
linked from its neighbours and has the course's links by itself. What a lesson builds on stays its
author's: the row `You need first`."""

from __future__ import annotations

import re
from pathlib import Path

from nbformat import NotebookNode, read

from classroom import course
from classroom.course import Outline

GLOSSARY, PAPERS = "../docs/glossary.md", "../docs/papers.md"
MAP = "00_start_here.ipynb#map"
_LINE = re.compile(r"^(?:←|Before:|next:|.*\]\(\.\./docs/glossary\.md\)).*$", re.MULTILINE)
_NEXT = re.compile(
    r"^Next(?: in the course)?: (?:\[\d\d[^\]]*\]\([^)]*\)|\d\d,? ?[^,.:\n]*)"
    r"|^This was the last lesson.*$",
    re.MULTILINE,
)


def link(lesson: Outline) -> str:
    """A link to a lesson."""
    return f"[{lesson.number} {lesson.title}]({lesson.name}.ipynb)"


def line(name: str, lessons: dict[str, Outline]) -> str:
    """The line under the opening table: the lesson before, map, glossary, papers, the lesson
    after.
    """
    names = list(lessons)
    place = names.index(name)
    parts = [f"← {link(lessons[names[place - 1]])}"] if place else []
    parts += [f"[map]({MAP})"] if place else []
    parts += [f"[glossary]({GLOSSARY})", f"[papers]({PAPERS})"]
    parts += [f"{link(lessons[names[place + 1]])} →"] if place + 1 < len(names) else []
    return " · ".join(parts)


def lead(notebook: NotebookNode, name: str) -> None:
    """Bring both lines of a lesson of the course up to date; other notebooks stay as they are."""
    lessons = course.lessons()
    if name not in lessons:
        return
    first = notebook.cells[0]
    first.source = _LINE.sub("", first.source).rstrip() + "\n\n" + line(name, lessons)
    names = list(lessons)
    after = names[names.index(name) + 1 : names.index(name) + 2]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "## Read on" in cell.source and after:
            head, mark, tail = cell.source.partition("## Read on")
            next_line = f"Next: {link(lessons[after[0]])}"
            tail, replaced = _NEXT.subn(next_line, tail)
            if not replaced:
                tail = f"{tail.rstrip()}\n\n{next_line}"
            cell.source = head + mark + tail


def opening(path: Path) -> tuple[str, str]:
    """A lesson's title and first paragraph."""
    first, _, rest = read(path, as_version=4).cells[0].source.partition("\n")
    return first.lstrip("# ").strip(), rest.strip().partition("\n\n")[0].replace("\n", " ").replace(
        "|", "\\|"
    )
