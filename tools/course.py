"""Bring the path through the course up to date with the lessons that stand.

python -m tools.course [LESSON ...]

Writes the two lines that lead from lesson to lesson (of the lessons named; of all without a name),
docs/glossary.md, docs/papers.md and docs/evidence.md. What needs a hand is said."""

from __future__ import annotations

import sys
from pathlib import Path

from nbformat import NotebookNode

from classroom import course
from classroom.records import evidence
from course_lib.errors import CourseError
from course_lib.files import atomic_write
from tools import papers
from tools.notebooks import ROOT, find, navigation, scrub
from tools.notebooks.build import read


def terms() -> dict[str, dict[str, str]]:
    """Every lesson's glossary.json in one, by term: what it says, its lesson, and as `word` how the
    lesson has it where that is not the term itself.
    """
    found: dict[str, dict[str, str]] = {}
    for lesson in course.names():
        for term, entry in course.contents(lesson, "glossary.json").items():
            if term in found:
                raise CourseError(
                    f"{found[term]['lesson']} and {lesson} both explain {term!r}; leave it to one."
                )
            found[term] = {**entry, "lesson": lesson}
    return found


def glossary() -> str:
    """docs/glossary.md."""
    lessons = course.lessons()
    lines = [
        "# Glossary",
        "",
        (
            "The terms of the field that the lessons use, each in a sentence, with the first lesson"
            " that explains it. Written by `python -m tools.course` from the lessons' folders; a"
            " new term is a line in a lesson's `glossary.json`."
        ),
    ]
    letter = ""
    for term, entry in sorted(terms().items(), key=lambda item: item[0].casefold()):
        if term[0].upper() != letter:
            letter = term[0].upper()
            lines += ["", f"## {letter}", ""]
        lesson = lessons[entry["lesson"]]
        place = f"[{lesson.number} {lesson.title}](../notebooks/{lesson.name}.ipynb)"
        lines.append(f'* <a id="{anchor(term)}"></a>**{term}**: {entry["says"]} ({place})')
    return "\n".join(lines) + "\n"


def anchor(term: str) -> str:
    """The name by which a term can be linked to: docs/glossary.md#layer-norm."""
    return "-".join("".join(c if c.isalnum() else " " for c in term.casefold()).split())


def written(notebooks: dict[str, NotebookNode]) -> dict[Path, str]:
    """Every file that this program writes, besides the notebooks, as it should be."""
    return {
        ROOT / "docs" / "glossary.md": glossary(),
        papers.PAGE: papers.markdown(notebooks),
        ROOT / "docs" / "evidence.md": evidence.markdown(),
    }


def main(names: list[str]) -> None:
    """Write what is out of date; say what was written and what needs a hand."""
    notebooks = {path.stem: read(path) for path in course.notebooks()}
    for paper in papers.add(
        [paper for notebook in notebooks.values() for paper in papers.read_on(notebook)]
    ):
        print(
            f"data/bibliography.json: say in a line what this is: {paper.title}"
            f" ({paper.says or 'nothing yet'})"
        )
    for path in [find(name) for name in names] if names else course.notebooks():
        before, notebook = path.read_text("utf-8"), scrub.scrub(notebooks[path.stem])
        navigation.lead(notebook, path.stem)
        if scrub.text(notebook) != before:
            _write(path, scrub.text(notebook))
    for path, text in written(notebooks).items():
        _write(path, text)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        with atomic_write(path) as file:
            file.write(text)
        print(f"{path.relative_to(ROOT)}: written")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except CourseError as error:
        sys.exit(str(error))
