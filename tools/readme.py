"""Write the README's table of lessons, and its picture from a lesson's stored output.

python -m tools.readme
"""

from __future__ import annotations

import base64
import re

from classroom import course
from course_lib.errors import CourseError
from course_lib.files import atomic_write
from tools.notebooks import ROOT, lessons
from tools.notebooks.build import read

README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "picture.png"
# the lesson and the cell whose figure stands in the README
SHOWN = ("00_start_here", "labels-curve")
BEGIN, END = "<!-- lessons: written by python -m tools.readme -->", "<!-- end of lessons -->"


def table() -> str:
    """The table of lessons in Markdown: each with the question that it answers."""
    rows = ["| lesson | question |", "|---|---|"]
    for lesson in course.lessons().values():
        link = f"[{lesson.number} {lesson.title}](notebooks/{lesson.name}.ipynb)"
        rows.append(f"| {link} | {lesson.question} |")
    return "\n".join(rows)


def update(text: str) -> str:
    """The README with a fresh table between its two marks; CourseError where the marks are gone."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise CourseError(
            f"README.md has lost the marks {BEGIN} and {END}; the table stands between them."
        )
    return pattern.sub(lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", text)


def picture() -> bytes:
    """The figure that the README shows, as a lesson has it stored."""
    lesson, cell_id = SHOWN
    path = next((p for p in lessons() if p.stem == lesson), None)
    for cell in read(path).cells if path else []:
        for output in cell.get("outputs", []) if cell.id == cell_id else []:
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output.data["image/png"])
    raise CourseError(
        f"There is no figure in {lesson}, cell {cell_id}; choose another in tools/readme.py."
    )


def main() -> None:
    """Write both."""
    with atomic_write(PICTURE, "wb") as file:
        file.write(picture())
    text = update(README.read_text("utf-8"))
    with atomic_write(README) as file:
        file.write(text)


if __name__ == "__main__":
    main()
