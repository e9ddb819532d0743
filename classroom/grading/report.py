"""What comes out of grading: a table of points, a page for each student, a page of written answers,
a table of marks.

What students wrote is shown as text only: no HTML, script or picture format of theirs but PNG
reaches a browser."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from classroom.grading import gradebook, overview, tables
from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord, clean
from classroom.grading.hand_ins import Arrival, HandIns
from classroom.grading.marks import (
    ANSWER_COLUMN,
    MARK_COLUMNS,
    MARKS,
    Marks,
    fingerprint,
    fitted,
    mark_of,
    mark_rows,
    read_marks,
)
from classroom.grading.points import Result, result_of
from classroom.grading.score import unread
from classroom.templates import asset, environment, trusted
from course_lib.files import atomic_write

GRADES, ANSWERS, OVERVIEW = "grades.csv", "answers.html", "overview.html"
GRADE_COLUMNS = ("total", "of", "late", "penalty", "final", "notes")  # behind the questions


def write(
    records: list[GradingRecord], assignment: Assignment, out: Path, hand_ins: HandIns | None = None
) -> list[str]:
    """Write or refresh everything in `out`.

    Marks and comments in marks.csv are kept; where it holds something that is no mark, nothing is
    written.

    Args:
        records: of all submissions that count.
        assignment: which they answer.
        out: the folder of results.
        hand_ins: who handed in what, and when.

    Returns:
        Sentences about what does not fit.
    """
    hand_ins = hand_ins or HandIns()
    marks = _all_marks(out, assignment, hand_ins)
    records = [sound(record, assignment) for record in records]
    marks, warnings = fitted(marks, records)
    results: dict[str, Result] = {}
    for record in records:
        key = record["key"]
        results[key] = result_of(
            record, assignment, marks, hand_ins.arrivals[key], hand_ins.late_percent
        )

    rows = mark_rows(records, assignment, marks)
    tables.write(out / MARKS, [*MARK_COLUMNS, ANSWER_COLUMN], rows)
    columns = ["student", "status", *assignment.questions, *GRADE_COLUMNS]
    tables.write(out / GRADES, columns, [_grade_row(r, results[r["key"]]) for r in records])
    _save(out / ANSWERS, _answers(records, assignment, marks))
    for record in records:
        page = feedback(record, assignment, marks, results[record["key"]])
        _save(out / "feedback" / f"{record['key']}.html", page)
    summary = overview.summary(records, assignment, results, hand_ins)
    _save(out / OVERVIEW, _page("overview", assignment.name, **summary))

    if hand_ins.gradebook:
        gradebook.write(records, assignment, results, marks, hand_ins)
    if hand_ins.roster:
        of = sum(assignment.questions.values())
        warnings += hand_ins.roster.export(out, assignment.name, of, _final_points(results))
    return warnings


def _all_marks(out: Path, assignment: Assignment, hand_ins: HandIns) -> Marks:
    """The marks in `out`, and over them those of a file to take over; its empty rows take nothing
    back.
    """
    taken_over: Marks = {}
    if hand_ins.marks_file:
        taken_over = read_marks(hand_ins.marks_file, assignment)
    marks = read_marks(out / MARKS, assignment)
    for place, mark in taken_over.items():
        if not mark.empty:
            marks[place] = mark
    return marks


def _final_points(results: dict[str, Result]) -> dict[int, float | None]:
    """What counts, by the rows of the roster."""
    final = {}
    for result in results.values():
        if result.arrival.row is not None:
            final[result.arrival.row] = result.final
    return final


def sound(record: Any, assignment: Assignment) -> GradingRecord:
    """The record, or what stands for it where nothing can be made of it."""
    try:
        cleaned: GradingRecord = clean(record)
        _grade_row(cleaned, result_of(cleaned, assignment, {}, Arrival(), 0))
        feedback(cleaned, assignment, {})
        _answers([cleaned], assignment, {})
        return cleaned
    except Exception as error:  # noqa: BLE001  one record must not cost the others theirs
        note = f"its result cannot be shown ({type(error).__name__})"
        student = key = ""
        if isinstance(record, dict):
            student, key = str(record.get("student")), str(record.get("key"))
        return unread(student, key, "grader failed", [note])


def feedback(
    record: GradingRecord, assignment: Assignment, marks: Marks, result: Result | None = None
) -> str:
    """The student's page: points, what the tests found, the notebook as it ran.

    No hidden test is in it.
    """
    result = result or result_of(record, assignment, marks, Arrival(), 0)
    comments = []
    for part in assignment.written.values():
        comment = mark_of(marks, record["key"], part.id).comment
        if comment:
            comments.append((part.question, comment))
    return _page(
        "feedback",
        f"{assignment.name}: {record['student']}",
        result=result,
        record=record,
        rows=_point_rows(result, assignment) if record["tests"] else [],
        comments=comments,
        cells=[{**cell, "test": record["tests"].get(cell["id"])} for cell in record["cells"]],
        cut=record.get("cut", False),
    )


def _point_rows(result: Result, assignment: Assignment) -> list[tuple[str, str, str]]:
    """Question, points, and what there was to earn; the total last."""
    rows = []
    for question, of in assignment.questions.items():
        earned = result.earned[question]
        rows.append((question, "to be marked" if earned is None else f"{earned:g}", f"{of:g}"))
    rows.append(("total", _number(result.total), f"{result.of:g}"))
    return rows


def _answers(records: list[GradingRecord], assignment: Assignment, marks: Marks) -> str:
    """All written answers, each with its row of marks.csv; rows of other answers go along, so that
    none is lost.
    """
    rows = {}
    for row in mark_rows(records, assignment, marks):
        _, key, cell, *_ = row
        rows[key, cell] = [tables.harmless(each) for each in row]
    comment = MARK_COLUMNS.index("comment")
    questions: list[tuple[Any, ...]] = []
    for name, part in assignment.written.items():
        answers = []
        for record in records:
            text = record["written"].get(name)
            if not text:
                continue
            row = rows.pop((record["key"], name))
            answers.append(
                (
                    record["student"],
                    text,
                    record["pictures"].get(name, ()),
                    row,
                    tables.unguarded(row[comment]),
                    fingerprint(text),
                    json.dumps(row),
                )
            )
        questions.append((part.question, part.points, answers, *assignment.rubric(name)))
    script = asset("classroom.grading", "marking.js")
    return _page(
        "answers",
        f"{assignment.name}: written answers",
        marks=MARKS,
        questions=questions,
        columns=json.dumps([*MARK_COLUMNS, ANSWER_COLUMN]),
        others=json.dumps(list(rows.values())),
        script=trusted(script),
        # the page's security policy allows this script only
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _grade_row(record: GradingRecord, result: Result) -> list[str]:
    arrival = result.arrival
    numbers = [
        *result.earned.values(),
        result.total,
        result.of,
        arrival.days or None,
        result.penalty,
        result.final,
    ]
    notes = "; ".join([*record["notes"], *arrival.notes])
    return [record["student"], record["status"], *map(_number, numbers), notes]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _page(template: str, title: str, **values: Any) -> str:
    page = environment("classroom.grading", clean).get_template(f"{template}.html")
    return page.render(title=title, **values)


def _save(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text)
