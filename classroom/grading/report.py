"""What comes out of grading: a table of points, a page for each student, a page of written answers, a table of marks.

What students wrote is shown as text only: no HTML, script or picture format of theirs but PNG reaches a browser.
"""

import base64
import contextlib
import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from classroom.templates import environment
from course_lib.errors import CourseError
from course_lib.files import atomic_write

Marks = dict[tuple[str, str], tuple[float | None, str]]  # (key, cell) -> points (None: not marked yet), comment

GRADES, MARKS, ANSWERS = "grades.csv", "marks.csv", "answers.html"
MARK_COLUMNS = ["student", "key", "cell", "points", "of", "comment"]
SHOWN = 400_000  # characters of one feedback page's cells


def points(record: GradingRecord, assignment: Assignment, marks: Marks) -> dict[str, float | None]:
    """Points of each question; None: still to be marked by hand, or nothing could be graded."""
    result: dict[str, float | None] = dict.fromkeys(assignment.questions)
    if not record["tests"]:
        return result
    for name, test in assignment.tests.items():
        result[test.question] = (result[test.question] or 0.0) + record["tests"][name]["points"]
    for name, part in assignment.written.items():
        mark, _ = _mark(marks, record["key"], name)
        if mark is None and not record["written"].get(name):
            mark = 0.0  # nothing was written
        result[part.question] = None if mark is None else (result[part.question] or 0.0) + mark
    return result


def write(records: list[GradingRecord], assignment: Assignment, out: Path) -> None:
    """Write or refresh everything in `out`. Marks and comments in marks.csv are kept; where it holds something that is
    no mark, nothing is written."""
    marks = read_marks(out / MARKS, assignment)
    _write_csv(out / MARKS, MARK_COLUMNS, _mark_rows(records, assignment, marks))
    columns = ["student", "status", *assignment.questions, "total", "of", "notes"]
    _write_csv(out / GRADES, columns, (_grade_row(record, assignment, marks) for record in records))
    with atomic_write(out / ANSWERS) as file:
        file.write(_answers(records, assignment))
    for record in records:
        with atomic_write(out / "feedback" / f"{record['key']}.html") as file:
            file.write(feedback(record, assignment, marks))


def read_marks(path: Path, assignment: Assignment) -> Marks:
    """The marks that a person has entered, as a spreadsheet may have saved them (commas or semicolons, 7.5 or 7,5)."""
    if not path.exists():
        return {}
    text = path.read_text("utf-8-sig", errors="replace")
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=";" if first.count(";") > first.count(",") else ",")
    marks: Marks = {}
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
        marks[row["key"], row["cell"]] = mark, row["comment"]
    return marks


def feedback(record: GradingRecord, assignment: Assignment, marks: Marks) -> str:
    """The student's page: points, what the tests found, the notebook as it ran. No hidden test is in it."""
    rows: list[tuple[str, str, str]] = []
    if record["tests"]:
        earned = points(record, assignment, marks)
        rows = [(q, _number(earned[q], "to be marked"), f"{of:g}") for q, of in assignment.questions.items()]
        rows.append(("total", _total(earned), f"{sum(assignment.questions.values()):g}"))
    said = [(part.question, *_mark(marks, record["key"], part.id)) for part in assignment.written.values()]
    comments, cells = [(question, comment) for question, _, comment in said if comment], list(_cells(record))
    inner = {"record": record, "rows": rows, "comments": comments, "cells": cells}
    return _page("feedback", f"{assignment.name}: {record['student']}", cut=len(cells) < len(record["cells"]), **inner)


def _mark(marks: Marks, key: str, cell: str) -> tuple[float | None, str]:
    return marks.get((key, cell), (None, ""))


def _cells(record: GradingRecord) -> Iterable[GradingRecord]:
    """The cells that a page has room for, with what their outputs show and what their test found."""
    room = SHOWN
    for cell in record["cells"]:
        shown = [found for output in cell["outputs"] if (found := _shown(output))]
        room -= len(cell["source"]) + sum(len(text) for _, text in shown)
        if room < 0:
            return
        yield {**cell, "shown": shown, "test": record["tests"].get(cell["id"])}


def _shown(output: Any) -> tuple[str, str] | None:
    """An output's kind ("out", "err" or "png") and text; anything that is not as it should be becomes nothing."""
    if not isinstance(output, dict):
        return None
    if output.get("output_type") == "error":
        lines = output.get("traceback")
        return "err", str(lines[0]) if isinstance(lines, list) and lines else ""
    if output.get("output_type") == "stream":
        return "out", _settled(str(output.get("text", "")))
    data = output.get("data")
    if not isinstance(data, dict):
        return None
    if isinstance(picture := data.get("image/png"), str):
        with contextlib.suppress(ValueError):
            raw = base64.b64decode("".join(picture.split()), validate=True)
            if raw.startswith(b"\x89PNG"):
                return "png", base64.b64encode(raw).decode()
    return "out", str(data.get("text/plain", ""))


def _settled(text: str) -> str:
    """Text as a screen shows it in the end: a progress bar's last state."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _answers(records: list[GradingRecord], assignment: Assignment) -> str:
    questions = [
        (part.question, part.points, [(r["student"], text) for r in records if (text := r["written"].get(name))])
        for name, part in assignment.written.items()
    ]
    return _page("answers", f"{assignment.name}: written answers", marks=MARKS, questions=questions)


def _mark_rows(records: list[GradingRecord], assignment: Assignment, marks: Marks) -> Iterable[list[str]]:
    names = {record["key"]: record["student"] for record in records}
    wanted = [(r["key"], name) for r in records for name in assignment.written if r["written"].get(name)]
    wanted += [place for place, said in marks.items() if place not in wanted and said != (None, "")]
    for key, name in wanted:
        mark, comment = _mark(marks, key, name)
        yield [names.get(key, ""), key, name, _number(mark), f"{assignment.written[name].points:g}", comment]


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
    return "'" + cell if cell.startswith(("=", "+", "-", "@")) else cell


def _number(value: float | None, none: str = "") -> str:
    return none if value is None else f"{value:g}"


def _page(template: str, title: str, **values: Any) -> str:
    return environment("classroom.grading", _printable).get_template(f"{template}.html").render(title=title, **values)


def _printable(value: str) -> str:
    """Text without control characters."""
    return re.sub(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f]", "", value)
