"""marks.csv, where a person enters points and comments for written answers.

A row belongs to one cell of one student. It follows the student when a file gets another name,
and it is told when the answer has changed since it was marked.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from classroom.grading import tables
from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from course_lib.errors import CourseError

MARKS = "marks.csv"
NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
MARK_COLUMNS = ["student", "key", "cell", "points", "of", "comment"]
ANSWER_COLUMN = "answer"  # the last; a table without it is read as well


class Mark(NamedTuple):
    """What a person has entered for one answer.

    Attributes:
        points: None where it is not marked yet.
        comment: for the student.
        student: the name that stands in the row.
        answer: `fingerprint` of what was marked.
    """

    points: float | None = None
    comment: str = ""
    student: str = ""
    answer: str = ""

    @property
    def empty(self) -> bool:
        """Neither points nor a comment."""
        return self.points is None and not self.comment


Place = tuple[str, str]  # a student's key, and the cell
Marks = dict[Place, Mark]


def mark_of(marks: Marks, key: str, cell: str) -> Mark:
    """The mark of a student's cell; an empty one where there is none."""
    return marks.get((key, cell), Mark())


def fingerprint(answer: str) -> str:
    """A word that stands for an answer; no spreadsheet takes it for a number."""
    return "a" + hashlib.sha256(" ".join(answer.split()).encode()).hexdigest()[:12]


def read_marks(path: Path, assignment: Assignment) -> Marks:
    """The marks that a person has entered.

    A spreadsheet may have saved them its own way: with commas or semicolons, 7.5 or 7,5.

    Raises:
        CourseError: a row has a column too few, a cell that is none, or points that are none, or it
            is there twice.
    """
    if not path.exists():
        return {}
    marks: Marks = {}
    _, rows = tables.read(path)
    for number, row in enumerate(rows, start=2):  # the head is line 1
        line = f"{path.name}, line {number}"
        if any(row.get(column) is None for column in MARK_COLUMNS):
            raise CourseError(f"{line}: a column is missing; there are {', '.join(MARK_COLUMNS)}.")
        part = assignment.written.get(row["cell"])
        if part is None:
            raise CourseError(f"{line}: {assignment.name} has no cell {row['cell']!r} to mark.")
        key = unicodedata.normalize("NFC", row["key"])
        if (key, row["cell"]) in marks:
            raise CourseError(
                f"{line}: {row['student']} has two rows for {row['cell']}; leave one of them."
            )
        marks[key, row["cell"]] = Mark(
            _points(row["points"], part.points, line),
            tables.unguarded(row["comment"]),
            tables.unguarded(row["student"]),
            row.get(ANSWER_COLUMN) or "",
        )
    return marks


def _points(cell: str, most: float, line: str) -> float | None:
    """The points of a cell, None where it is empty."""
    text = cell.strip().replace(",", ".")
    if not text:
        return None
    points = float(text) if NUMBER.fullmatch(text) else -1.0
    if not 0 <= points <= most:  # NaN is not, either
        raise CourseError(f"{line}: {text!r} is not a number from 0 to {most:g}.")
    return points


def fitted(marks: Marks, records: list[GradingRecord]) -> tuple[Marks, list[str]]:
    """Marks at the keys of the records, and sentences for the teacher.

    Marks of a key that is no more go to the one answer that is the same, or to the one student of
    that name. The sentences tell which fit nowhere, and which answers have changed since.
    """
    students = {record["key"]: record["student"] for record in records}
    answers = {place: fingerprint(text) for place, text in _answers(records).items()}
    placed = {place: mark for place, mark in marks.items() if place[0] in students}
    warnings = []
    for place, mark in marks.items():
        key, cell = place
        if key in students:
            if _has_changed(mark, answers.get(place, "")):
                warnings.append(
                    f"{students[key]}: the answer {cell} has changed since it was marked; look"
                    f" again, and empty the column {ANSWER_COLUMN} of its row in {MARKS}."
                )
            continue
        if mark.empty:
            continue
        new_key = _new_key(mark, cell, placed, answers, students)
        if new_key is None:
            warnings.append(
                f"{MARKS}: the mark of {mark.student or key} for {cell} fits no submission; it is"
                " kept."
            )
        placed[new_key or key, cell] = mark
    return placed, warnings


def _answers(records: list[GradingRecord]) -> dict[Place, str]:
    """All answers that are not empty."""
    answers = {}
    for record in records:
        for cell, text in record["written"].items():
            if text:
                answers[record["key"], cell] = text
    return answers


def _has_changed(mark: Mark, answer: str) -> bool:
    """Whether points were given for another answer than this one."""
    return mark.points is not None and bool(mark.answer) and mark.answer != answer


def _new_key(
    mark: Mark,
    cell: str,
    placed: Marks,
    answers: dict[Place, str],
    students: dict[str, str],
) -> str | None:
    """To whom the mark of a lost key belongs: to the same answer, else to the same name."""
    keys = [
        key for key, other in answers if other == cell and mark_of(placed, key, cell).points is None
    ]
    same_answer = [key for key in keys if answers[key, cell] == mark.answer]
    name = tables.harmless(mark.student)
    same_name = [key for key in keys if tables.harmless(students[key]) == name]
    for fits in (same_answer, same_name):
        if len(fits) == 1:
            return fits[0]
    return None


def mark_rows(
    records: list[GradingRecord], assignment: Assignment, marks: Marks
) -> Iterator[list[str]]:
    """The rows of marks.csv: one for each answer, and those of marks that fit no answer."""
    students = {record["key"]: record["student"] for record in records}
    answers = {}
    for record in records:
        for cell in assignment.written:
            text = record["written"].get(cell)
            if text:
                answers[record["key"], cell] = text
    others = [place for place, mark in marks.items() if place not in answers and not mark.empty]
    for key, cell in [*answers, *others]:
        mark = mark_of(marks, key, cell)
        answer = fingerprint(answers.get((key, cell), ""))
        if mark.answer and mark.points is not None:
            answer = mark.answer  # what was marked stays known, so that a change of it can be told
        yield [
            students.get(key, mark.student),
            key,
            cell,
            "" if mark.points is None else f"{mark.points:g}",
            f"{assignment.written[cell].points:g}",
            mark.comment,
            answer,
        ]
