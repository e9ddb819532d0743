"""Build, check and run the lessons: `python -m tools.notebooks build | check | run | site`."""

from __future__ import annotations

from pathlib import Path

from course_lib.errors import CourseError

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "notebooks"


def lessons() -> list[Path]:
    """All lessons, in the order of the course."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))


def find(name: str) -> Path:
    """The lesson called "09_bert", "09", "09_bert.ipynb" or by its path; CourseError names the lessons there are."""
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return path.resolve()
    stem = path.name.removesuffix(".ipynb")
    found = [lesson for lesson in lessons() if stem and (lesson.stem == stem or lesson.stem.startswith(stem + "_"))]
    if len(found) == 1:
        return found[0]
    names = ", ".join(lesson.stem for lesson in lessons()) or "none yet"
    raise CourseError(f"There is no lesson {name!r}. Say LESSON=<one of: {names}>.")
