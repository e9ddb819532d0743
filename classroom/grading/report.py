"""What comes out of grading: a table of points, a page for each student, a page of written answers, a table of marks.

What students wrote is shown as text only: no HTML, script or picture format of theirs but PNG reaches a browser.
"""

import csv
import hashlib
import io
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord, clean
from classroom.grading.score import unread
from classroom.templates import environment
from course_lib.errors import CourseError
from course_lib.files import atomic_write


class Mark(NamedTuple):
    """What a person has entered for one answer."""

    points: float | None = None  # None: not marked yet
    comment: str = ""
    student: str = ""
    answer: str = ""  # `_print` of what was marked


Marks = dict[tuple[str, str], Mark]  # by key and cell

GRADES, MARKS, ANSWERS = "grades.csv", "marks.csv", "answers.html"
MARK_COLUMNS = ["student", "key", "cell", "points", "of", "comment"]
ANSWER_COLUMN = "answer"  # the last; a table without it is read as well
FORMULA = ("=", "+", "-", "@")


def points(record: GradingRecord, assignment: Assignment, marks: Marks) -> dict[str, float | None]:
    """Points of each question; None: still to be marked by hand, or nothing could be graded."""
    result: dict[str, float | None] = dict.fromkeys(assignment.questions)
    if not record["tests"]:
        return result
    for name, test in assignment.tests.items():
        result[test.question] = (result[test.question] or 0.0) + record["tests"][name]["points"]
    for name, part in assignment.written.items():
        mark = _mark(marks, record["key"], name).points
        if mark is None and not record["written"].get(name):
            mark = 0.0  # nothing was written
        result[part.question] = None if mark is None else (result[part.question] or 0.0) + mark
    return result


def write(records: list[GradingRecord], assignment: Assignment, out: Path) -> list[str]:
    """Write or refresh everything in `out`; returns sentences about marks that do not fit. Marks and comments in
    marks.csv are kept; where it holds something that is no mark, nothing is written."""
    marks = read_marks(out / MARKS, assignment)
    records = [sound(record, assignment) for record in records]
    marks, said = _fitted(marks, records)
    _write_csv(out / MARKS, [*MARK_COLUMNS, ANSWER_COLUMN], _mark_rows(records, assignment, marks))
    columns = ["student", "status", *assignment.questions, "total", "of", "notes"]
    _write_csv(out / GRADES, columns, (_grade_row(record, assignment, marks) for record in records))
    with atomic_write(out / ANSWERS) as file:
        file.write(_answers(records, assignment))
    for record in records:
        with atomic_write(out / "feedback" / f"{record['key']}.html") as file:
            file.write(feedback(record, assignment, marks))
    return said


def sound(record: Any, assignment: Assignment) -> GradingRecord:
    """The record, or what stands for it where nothing can be made of it."""
    try:
        cleaned: GradingRecord = clean(record)
        _grade_row(cleaned, assignment, {})
        feedback(cleaned, assignment, {})
        _answers([cleaned], assignment)
        return cleaned
    except Exception as error:  # noqa: BLE001  one record must not cost the others theirs
        name, key = (str(record.get(each)) if isinstance(record, dict) else "" for each in ("student", "key"))
        return unread(name, key, "grader failed", [f"its result cannot be shown ({type(error).__name__})"])


def _fitted(marks: Marks, records: list[GradingRecord]) -> tuple[Marks, list[str]]:
    """Marks at the keys of the records. Those of a key that is no more go to the one answer that is the same, or to the
    one student of that name; sentences about those that fit nowhere, and about answers that have changed since."""
    answers = {(r["key"], name): _print(text) for r in records for name, text in r["written"].items() if text}
    students = {record["key"]: record["student"] for record in records}
    fitted, said = {place: mark for place, mark in marks.items() if place[0] in students}, []
    for (key, name), mark in marks.items():
        now = answers.get((key, name), "")
        if key in students and mark.points is not None and mark.answer and mark.answer != now:
            said.append(
                f"{students[key]}: the answer {name} has changed since it was marked; look again, and empty the column "
                f"{ANSWER_COLUMN} of its row in {MARKS}."
            )
        if key in students or (mark.points is None and not mark.comment):
            continue
        free = [place for place in answers if place[1] == name and _mark(fitted, *place).points is None]
        same = [place for place in free if answers[place] == mark.answer]
        called = [place for place in free if _harmless(students[place[0]]) == _harmless(mark.student)]
        found = next((places[0] for places in (same, called) if len(places) == 1), None)
        if found is None:
            said.append(f"{MARKS}: the mark of {mark.student or key} for {name} fits no submission; it is kept.")
        fitted[found or (key, name)] = mark
    return fitted, said


def _print(text: str) -> str:
    """A word that stands for an answer; no spreadsheet takes it for a number."""
    return "a" + hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def read_marks(path: Path, assignment: Assignment) -> Marks:
    """The marks that a person has entered, as a spreadsheet may have saved them (commas or semicolons, 7.5 or 7,5)."""
    if not path.exists():
        return {}
    text = _decoded(path.read_bytes())
    first = text.partition("\n")[0]
    marks: Marks = {}
    try:
        rows = list(csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=first.count)))
    except csv.Error as error:
        raise CourseError(f"{path.name} cannot be read as a table: {error}.") from None
    for number, row in enumerate(rows, 2):
        if any(row.get(column) is None for column in MARK_COLUMNS):
            raise CourseError(f"{path.name}, line {number}: a column is missing; there are {', '.join(MARK_COLUMNS)}.")
        said = row["points"].strip().replace(",", ".")
        part = assignment.written.get(row["cell"])
        if part is None:
            raise CourseError(f"{path.name}, line {number}: {assignment.name} has no cell {row['cell']!r} to mark.")
        try:
            mark = float(said) if said else None
        except ValueError:
            mark = -1.0
        if mark is not None and not 0 <= mark <= part.points:
            raise CourseError(f"{path.name}, line {number}: {said!r} is not a number from 0 to {part.points:g}.")
        key = unicodedata.normalize("NFC", row["key"])
        student, comment = (_unguarded(row[column]) for column in ("student", "comment"))
        marks[key, row["cell"]] = Mark(mark, comment, student, row.get(ANSWER_COLUMN) or "")
    return marks


def _decoded(raw: bytes) -> str:
    """The text of a table, as spreadsheets save it: UTF-8, UTF-16 or Windows' own."""
    for encoding in ("utf-16",) if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("cp1252", "replace")


def feedback(record: GradingRecord, assignment: Assignment, marks: Marks) -> str:
    """The student's page: points, what the tests found, the notebook as it ran. No hidden test is in it."""
    rows: list[tuple[str, str, str]] = []
    if record["tests"]:
        earned = points(record, assignment, marks)
        rows = [(q, _number(earned[q], "to be marked"), f"{of:g}") for q, of in assignment.questions.items()]
        rows.append(("total", _total(earned), f"{sum(assignment.questions.values()):g}"))
    said = [(part.question, _mark(marks, record["key"], part.id).comment) for part in assignment.written.values()]
    comments = [(question, comment) for question, comment in said if comment]
    cells = [{**cell, "test": record["tests"].get(cell["id"])} for cell in record["cells"]]
    inner = {"record": record, "rows": rows, "comments": comments, "cells": cells, "cut": record.get("cut", False)}
    return _page("feedback", f"{assignment.name}: {record['student']}", **inner)


def _mark(marks: Marks, key: str, cell: str) -> Mark:
    return marks.get((key, cell), Mark())


def _answers(records: list[GradingRecord], assignment: Assignment) -> str:
    questions = [
        (part.question, part.points, [(r["student"], text) for r in records if (text := r["written"].get(name))])
        for name, part in assignment.written.items()
    ]
    return _page("answers", f"{assignment.name}: written answers", marks=MARKS, questions=questions)


def _mark_rows(records: list[GradingRecord], assignment: Assignment, marks: Marks) -> Iterable[list[str]]:
    students = {record["key"]: record["student"] for record in records}
    given = {(r["key"], name): text for r in records for name in assignment.written if (text := r["written"].get(name))}
    wanted = [*given, *(place for place, mark in marks.items() if place not in given and mark[:2] != (None, ""))]
    for key, name in wanted:
        mark = _mark(marks, key, name)
        # What was marked stays known, so that a change of it can be told.
        answer = mark.answer if mark.answer and mark.points is not None else _print(given.get((key, name), ""))
        start = [students.get(key, mark.student), key, name, _number(mark.points)]
        yield [*start, f"{assignment.written[name].points:g}", mark.comment, answer]


def _grade_row(record: GradingRecord, assignment: Assignment, marks: Marks) -> list[str]:
    earned = points(record, assignment, marks)
    numbers = [*map(_number, earned.values()), _total(earned), f"{sum(assignment.questions.values()):g}"]
    return [record["student"], record["status"], *numbers, "; ".join(record["notes"])]


def _total(earned: dict[str, float | None]) -> str:
    """All points together; "" while something is still to be marked."""
    return "" if None in earned.values() else f"{sum(p or 0.0 for p in earned.values()):g}"


def _write_csv(path: Path, columns: list[str], rows: Iterable[list[str]]) -> None:
    """A table that spreadsheets open rightly: with a byte-order mark, and no cell that looks like a formula to them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_harmless(cell) for cell in row] for row in rows])
    with atomic_write(path) as file:
        file.write("\ufeff" + text.getvalue())


def _harmless(cell: str) -> str:
    cell = " ".join(cell.split())
    return "'" + cell if cell.startswith(FORMULA) else cell


def _unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _number(value: float | None, none: str = "") -> str:
    return none if value is None else f"{value:g}"


def _page(template: str, title: str, **values: Any) -> str:
    return environment("classroom.grading", clean).get_template(f"{template}.html").render(title=title, **values)
