"""The lessons of the course, found by a scan.

A lesson is a notebook and a folder of one name: `notebooks/09_bert.ipynb` and
`classroom/lessons/bert/`. In the folder stand

    lesson.toml    the question that the lesson answers, its family, its place on the map
    exercises.py   its exercises; exercises.toml has what students read of them
    quiz.json      its quizzes by their numbers
    papers.json    the figures of its papers, by claim
    claims.yaml    the claims that it tests (see `classroom.records.ledger`)
    numbers.json   where the numbers in its prose come from
    glossary.json  the terms that it is the first to explain

Only lesson.toml must be there. What all lessons share stands in data/. Titles, and what a lesson
builds on, are read from the opening of its notebook."""

import json
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import COURSE, read_json

NOTEBOOKS = COURSE / "notebooks"
FOLDERS = Path(__file__).parent / "lessons"
FAMILIES = {
    "start": "the course",
    "attention": "attention",
    "words": "words",
    "decoders": "decoder",
    "encoders": "encoder",
    "encoder-decoders": "encoder-decoder",
}
_NEED = re.compile(r"^\| *\**You need first\**.*$", re.MULTILINE)
_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb[^)]*\)")


@dataclass(frozen=True)
class Outline:
    """What the course knows of a lesson without running it.

    name: of its notebook, "09_bert". title: without number, and without what follows a colon.
    question: what it answers. family: one of FAMILIES. needs: the lessons that it builds on.
    place: column and row on the map. label: on the map. wide: its box is as wide as the map.
    """

    name: str
    title: str
    question: str
    family: str
    needs: tuple[str, ...]
    place: tuple[float, float]
    label: str
    wide: bool = False

    @property
    def number(self) -> str:
        """Its two digits."""
        return self.name[:2]


def notebooks() -> list[Path]:
    """The notebooks of all lessons, in the order of the course."""
    found = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    if not found:
        raise CourseError(f"There are no lessons in {NOTEBOOKS}; the course needs its checkout.")
    return found


def names() -> list[str]:
    """The names of all lessons, "00_start_here" first."""
    return [path.stem for path in notebooks()]


def find(lesson: str) -> str:
    """The full name of a lesson called "09_bert", "09" or "bert"."""
    for name in names():
        if lesson in (name, name[:2], name[3:]):
            return name
    raise CourseError(f"There is no lesson {lesson!r}; there are {', '.join(names())}.")


def folder(lesson: str) -> Path:
    """The folder of a lesson, which has its name without the number."""
    path = FOLDERS / find(lesson)[3:]
    if not path.is_dir():
        raise CourseError(
            f"The lesson {find(lesson)} has no folder classroom/lessons/{path.name}; make one with"
            " a lesson.toml in it (classroom/course.py says what it holds)."
        )
    return path


def contents(lesson: str, file: str) -> dict[str, Any]:
    """What a JSON file of a lesson's folder holds; {} where the lesson has no such file."""
    path = folder(lesson) / file
    return dict(read_json(path)) if path.exists() else {}


def papers(lesson: str) -> dict[str, Any]:
    """The figures of a lesson's papers, by claim or topic."""
    return contents(lesson, "papers.json")


def lessons() -> dict[str, Outline]:
    """All lessons by their names, in the order of the course."""
    return {path.stem: _outline(path) for path in notebooks()}


def title(opening: str) -> str:
    """A lesson's title, of its first cell: without number, and without what follows a colon."""
    heading = opening.splitlines()[0]
    return heading.partition("·")[2].partition(":")[0].strip()


def needs(opening: str) -> tuple[str, ...]:
    """The lessons that the row `You need first` of the first cell links to."""
    row = _NEED.search(opening)
    return tuple(sorted(set(_LINK.findall(row[0])))) if row else ()


def _outline(notebook: Path) -> Outline:
    path = folder(notebook.stem) / "lesson.toml"
    if not path.exists():
        raise CourseError(f"{path} is missing; write question, family and place into it.")
    values = tomllib.loads(path.read_text("utf-8"))
    for key in ("question", "family", "place"):
        if key not in values:
            raise CourseError(f"{path} does not say the lesson's {key}.")
    if values["family"] not in FAMILIES:
        raise CourseError(f"{path}: family must be one of {', '.join(FAMILIES)}.")

    opening = _opening(notebook, notebook.stat().st_mtime_ns)
    column, row = values["place"]
    return Outline(
        name=notebook.stem,
        title=title(opening),
        question=values["question"],
        family=values["family"],
        needs=needs(opening),
        place=(column, row),
        label=values.get("label", title(opening)),
        wide=values.get("wide", False),
    )


@cache
def _opening(notebook: Path, changed: int) -> str:
    """A notebook's first cell. changed: when the file was, so that an edited one is read again."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "".join(cells[0]["source"])
