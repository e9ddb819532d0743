"""Build and run the lessons: `python -m tools.notebooks build | run | site`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from classroom import course
from course_lib.errors import CourseError

ROOT = Path(__file__).resolve().parent.parent.parent


def lessons() -> list[Path]:
    """All lessons, in the order of the course."""
    return course.notebooks()


def find(name: str, books: Callable[[], list[Path]] = lessons, kind: str = "lesson") -> Path:
    """The lesson or deck called "09_bert", "09", "09_bert.ipynb" or by its path; CourseError names
    those there are.
    """
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return path.resolve()
    stem = path.name.removesuffix(".ipynb")
    found = [
        book for book in books() if stem and (book.stem == stem or book.stem.startswith(stem + "_"))
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(book.stem for book in books()) or "none yet"
    raise CourseError(f"There is no {kind} {name!r}. Say {kind.upper()}=<one of: {names}>.")
