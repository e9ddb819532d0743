"""Make what students get from the masters.

`make homework`, or python -m classroom.grading.release [MASTER ...]. For hw1, in
build/homework/hw1:

    release/               the notebook with stubs, and its checks
    hw1.zip                the same, to hand out
    solutions/hw1.ipynb    the answers without hidden tests, for after the deadline
"""

import argparse
import sys
import zipfile
from pathlib import Path

import nbformat
import torch

from classroom.checks.homework import BUILT
from classroom.grading.assignment import MASTERS, Assignment
from course_lib.errors import CourseError
from course_lib.files import atomic_write


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
    with (
        atomic_write(folder / f"{assignment.name}.zip", "wb") as raw,
        zipfile.ZipFile(raw, "w") as archive,
    ):
        for name, text in release.items():
            # without a date: the same bytes each time
            entry = zipfile.ZipInfo(f"{assignment.name}/{name}")
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return folder


def main(words: list[str] | None = None) -> None:
    """Build the masters that the command line names, or all."""
    name, form = "python -m classroom.grading.release", argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(name, description=__doc__, formatter_class=form)
    parser.add_argument(
        "masters", nargs="*", metavar="MASTER", help="hw1, or a master's path; none: all of ours"
    )
    masters = parser.parse_args(words).masters
    torch.set_num_threads(1)  # the tests' tensors are small: more threads wait for one another
    for master in masters or sorted(str(path) for path in MASTERS.glob("*.ipynb")):
        assignment = Assignment(master)
        for task in assignment.tasks.values():
            task.prove()
        folder = build(assignment)
        points = sum(assignment.questions.values())
        print(f"{folder}: {len(assignment.questions)} questions, {points:g} points")  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
