"""Make what students get from the masters: `make homework`, or python -m course_lib.grade.release [MASTER ...].

For hw1, in build/homework/hw1: release/ (the notebook with stubs, and its checks), hw1.zip (the same, to hand out), and
solutions/hw1.ipynb (the answers without hidden tests, for after the deadline).
"""

import sys
import zipfile
from pathlib import Path

import nbformat

from course_lib.check.homework import BUILT
from course_lib.errors import CourseError
from course_lib.files import atomic_write
from course_lib.grade.assignment import MASTERS, Assignment


def build(assignment: Assignment, out: Path = BUILT) -> Path:
    """Write the release of one assignment; returns its folder."""
    folder = out / assignment.name
    release = {
        f"{assignment.name}.ipynb": nbformat.writes(assignment.release) + "\n",
        f"{assignment.name}_checks.json": assignment.checks() + "\n",
    }
    for name, text in release.items():
        with atomic_write(folder / "release" / name) as file:
            file.write(text)
    with atomic_write(folder / "solutions" / f"{assignment.name}.ipynb") as file:
        file.write(nbformat.writes(assignment.solutions()) + "\n")
    with atomic_write(folder / f"{assignment.name}.zip", "wb") as raw, zipfile.ZipFile(raw, "w") as archive:
        for name, text in release.items():
            entry = zipfile.ZipInfo(f"{assignment.name}/{name}")  # without a date: the same bytes each time
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return folder


def main(masters: list[str]) -> None:
    """Build the named masters, or all."""
    for master in masters or sorted(str(p) for p in MASTERS.glob("*.ipynb")):
        assignment = Assignment(master)
        for task in assignment.tasks.values():
            task.prove()
        folder = build(assignment)
        points = sum(assignment.questions.values())
        print(f"{folder}: {len(assignment.questions)} questions, {points:g} points")  # noqa: T201


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
