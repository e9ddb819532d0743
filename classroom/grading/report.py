"""What comes out of grading: a table of points, a page for each student, a page of written answers,
a table of marks.

What students wrote is shown as text only: no HTML, script or picture format of theirs but PNG
reaches a browser."""

import base64
import hashlib
import json
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from classroom.grading import gradebook, overview, tables
from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord, clean
from classroom.grading.roster import Handed, Turned
from classroom.grading.score import unread
from classroom.templates import asset, environment, trusted
from course_lib.errors import CourseError
from course_lib.files import atomic_write


class Mark(NamedTuple):
    """What a person has entered for one answer."""

    points: float | None = None  # None: not marked yet
    comment: str = ""
    student: str = ""
    answer: str = ""  # `_print` of what was marked


class Result(NamedTuple):
    """The points of one student; None: not known yet. penalty: what being late costs. final: what
    counts.
    """

    earned: dict[str, float | None]
    total: float | None
    of: float
    turned: Turned
    penalty: float | None
    final: float | None


Marks = dict[tuple[str, str], Mark]  # by key and cell

GRADES, MARKS, ANSWERS, OVERVIEW = "grades.csv", "marks.csv", "answers.html", "overview.html"
MARK_COLUMNS = ["student", "key", "cell", "points", "of", "comment"]
ANSWER_COLUMN = "answer"  # the last; a table without it is read as well


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


def write(
    records: list[GradingRecord], assignment: Assignment, out: Path, handed: Handed | None = None
) -> list[str]:
    """Write or refresh everything in `out`; returns sentences about what does not fit. Marks and
    comments in marks.csv are kept; where it holds something that is no mark, nothing is written.
    handed: who handed in what, and when."""
    handed = handed or Handed()
    given = read_marks(handed.marked, assignment) if handed.marked else {}
    marks = read_marks(out / MARKS, assignment) | {
        at: mark for at, mark in given.items() if mark[:2] != (None, "")
    }
    records = [sound(record, assignment) for record in records]
    marks, said = _fitted(marks, records)
    results = {
        r["key"]: _result(r, assignment, marks, handed.turned[r["key"]], handed.percent)
        for r in records
    }
    tables.write(
        out / MARKS, [*MARK_COLUMNS, ANSWER_COLUMN], _mark_rows(records, assignment, marks)
    )
    columns = [
        "student",
        "status",
        *assignment.questions,
        "total",
        "of",
        "late",
        "penalty",
        "final",
        "notes",
    ]
    tables.write(out / GRADES, columns, (_grade_row(r, results[r["key"]]) for r in records))
    with atomic_write(out / ANSWERS) as file:
        file.write(_answers(records, assignment, marks))
    for record in records:
        with atomic_write(out / "feedback" / f"{record['key']}.html") as file:
            file.write(feedback(record, assignment, marks, results[record["key"]]))
    with atomic_write(out / OVERVIEW) as file:
        file.write(
            _page(
                "overview",
                assignment.name,
                **overview.summary(records, assignment, results, handed),
            )
        )
    if handed.gradebook:
        gradebook.write(records, assignment, results, marks, handed)
    if handed.roster:
        final = {
            row: result.final
            for result in results.values()
            if (row := result.turned.row) is not None
        }
        said += handed.roster.export(
            out, assignment.name, sum(assignment.questions.values()), final
        )
    return said


def _result(
    record: GradingRecord, assignment: Assignment, marks: Marks, turned: Turned, percent: float
) -> Result:
    earned, of = points(record, assignment, marks), sum(assignment.questions.values())
    if None in earned.values():
        return Result(earned, None, of, turned, None, None)
    total = sum(each or 0.0 for each in earned.values())
    penalty = round(min(total, of * percent / 100 * turned.days), 2)
    return Result(earned, total, of, turned, penalty, total - penalty)


def sound(record: Any, assignment: Assignment) -> GradingRecord:
    """The record, or what stands for it where nothing can be made of it."""
    try:
        cleaned: GradingRecord = clean(record)
        _grade_row(cleaned, _result(cleaned, assignment, {}, Turned(), 0))
        feedback(cleaned, assignment, {})
        _answers([cleaned], assignment, {})
        return cleaned
    except Exception as error:  # noqa: BLE001  one record must not cost the others theirs
        name, key = (
            str(record.get(each)) if isinstance(record, dict) else "" for each in ("student", "key")
        )
        return unread(
            name, key, "grader failed", [f"its result cannot be shown ({type(error).__name__})"]
        )


def _fitted(marks: Marks, records: list[GradingRecord]) -> tuple[Marks, list[str]]:
    """Marks at the keys of the records. Those of a key that is no more go to the one answer that is
    the same, or to the one student of that name; sentences about those that fit nowhere, and about
    answers that have changed since."""
    answers = {
        (r["key"], name): _print(text)
        for r in records
        for name, text in r["written"].items()
        if text
    }
    students = {record["key"]: record["student"] for record in records}
    fitted, said = {place: mark for place, mark in marks.items() if place[0] in students}, []
    for (key, name), mark in marks.items():
        now = answers.get((key, name), "")
        if key in students and mark.points is not None and mark.answer and mark.answer != now:
            said.append(
                f"{students[key]}: the answer {name} has changed since it was marked; look again,"
                f" and empty the column {ANSWER_COLUMN} of its row in {MARKS}."
            )
        if key in students or (mark.points is None and not mark.comment):
            continue
        free = [
            place for place in answers if place[1] == name and _mark(fitted, *place).points is None
        ]
        same = [place for place in free if answers[place] == mark.answer]
        called = [
            place
            for place in free
            if tables.harmless(students[place[0]]) == tables.harmless(mark.student)
        ]
        found = next((places[0] for places in (same, called) if len(places) == 1), None)
        if found is None:
            said.append(
                f"{MARKS}: the mark of {mark.student or key} for {name} fits no submission; it is"
                " kept."
            )
        fitted[found or (key, name)] = mark
    return fitted, said


def _print(text: str) -> str:
    """A word that stands for an answer; no spreadsheet takes it for a number."""
    return "a" + hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def read_marks(path: Path, assignment: Assignment) -> Marks:
    """The marks that a person has entered, as a spreadsheet may have saved them (commas or
    semicolons, 7.5 or 7,5).
    """
    if not path.exists():
        return {}
    marks: Marks = {}
    _, rows = tables.read(path)
    for number, row in enumerate(rows, 2):
        if any(row.get(column) is None for column in MARK_COLUMNS):
            raise CourseError(
                f"{path.name}, line {number}: a column is missing; there are"
                f" {', '.join(MARK_COLUMNS)}."
            )
        said = row["points"].strip().replace(",", ".")
        part = assignment.written.get(row["cell"])
        if part is None:
            raise CourseError(
                f"{path.name}, line {number}: {assignment.name} has no cell {row['cell']!r} to"
                " mark."
            )
        try:
            mark = float(said) if said else None
        except ValueError:
            mark = -1.0
        if mark is not None and not 0 <= mark <= part.points:
            raise CourseError(
                f"{path.name}, line {number}: {said!r} is not a number from 0 to {part.points:g}."
            )
        key = unicodedata.normalize("NFC", row["key"])
        student, comment = (tables.unguarded(row[column]) for column in ("student", "comment"))
        marks[key, row["cell"]] = Mark(mark, comment, student, row.get(ANSWER_COLUMN) or "")
    return marks


def feedback(
    record: GradingRecord, assignment: Assignment, marks: Marks, result: Result | None = None
) -> str:
    """The student's page: points, what the tests found, the notebook as it ran. No hidden test is
    in it.
    """
    result = result or _result(record, assignment, marks, Turned(), 0)
    rows: list[tuple[str, str, str]] = []
    if record["tests"]:
        rows = [
            (q, _number(result.earned[q], "to be marked"), f"{of:g}")
            for q, of in assignment.questions.items()
        ]
        rows.append(("total", _number(result.total), f"{result.of:g}"))
    said = [
        (part.question, _mark(marks, record["key"], part.id).comment)
        for part in assignment.written.values()
    ]
    comments = [(question, comment) for question, comment in said if comment]
    cells = [{**cell, "test": record["tests"].get(cell["id"])} for cell in record["cells"]]
    inner = {
        "record": record,
        "rows": rows,
        "comments": comments,
        "cells": cells,
        "cut": record.get("cut", False),
    }
    return _page("feedback", f"{assignment.name}: {record['student']}", result=result, **inner)


def _mark(marks: Marks, key: str, cell: str) -> Mark:
    return marks.get((key, cell), Mark())


def _answers(records: list[GradingRecord], assignment: Assignment, marks: Marks) -> str:
    """All written answers, each with its row of marks.csv; rows of other answers go along, so that
    none is lost.
    """
    rows = {
        (row[1], row[2]): [*map(tables.harmless, row)]
        for row in _mark_rows(records, assignment, marks)
    }
    questions: list[tuple[Any, ...]] = []
    for name, part in assignment.written.items():
        shown = [
            (r["student"], text, rows.pop((r["key"], name)))
            for r in records
            if (text := r["written"].get(name))
        ]
        answers = [
            (*each, tables.unguarded(each[2][5]), _print(each[1]), json.dumps(each[2]))
            for each in shown
        ]
        questions.append((part.question, part.points, answers, *assignment.rubric(name)))
    script = asset("classroom.grading", "marking.js")
    rest = {
        "columns": json.dumps([*MARK_COLUMNS, ANSWER_COLUMN]),
        "others": json.dumps([*rows.values()]),
    }
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    code = {"script": trusted(script), "digest": digest}
    return _page(
        "answers",
        f"{assignment.name}: written answers",
        marks=MARKS,
        questions=questions,
        **rest,
        **code,
    )


def _mark_rows(
    records: list[GradingRecord], assignment: Assignment, marks: Marks
) -> Iterable[list[str]]:
    students = {record["key"]: record["student"] for record in records}
    given = {
        (r["key"], name): text
        for r in records
        for name in assignment.written
        if (text := r["written"].get(name))
    }
    wanted = [
        *given,
        *(place for place, mark in marks.items() if place not in given and mark[:2] != (None, "")),
    ]
    for key, name in wanted:
        mark = _mark(marks, key, name)
        # What was marked stays known, so that a change of it can be told.
        answer = (
            mark.answer
            if mark.answer and mark.points is not None
            else _print(given.get((key, name), ""))
        )
        start = [students.get(key, mark.student), key, name, _number(mark.points)]
        yield [*start, f"{assignment.written[name].points:g}", mark.comment, answer]


def _grade_row(record: GradingRecord, result: Result) -> list[str]:
    days, notes = result.turned.days or None, [*record["notes"], *result.turned.notes]
    numbers = [*result.earned.values(), result.total, result.of, days, result.penalty, result.final]
    return [record["student"], record["status"], *map(_number, numbers), "; ".join(notes)]


def _number(value: float | None, none: str = "") -> str:
    return none if value is None else f"{value:g}"


def _page(template: str, title: str, **values: Any) -> str:
    return (
        environment("classroom.grading", clean)
        .get_template(f"{template}.html")
        .render(title=title, **values)
    )
