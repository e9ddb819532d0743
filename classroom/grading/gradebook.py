"""nbgrader's gradebook as the store: students, submissions and what each cell earned.

nbgrader's own API writes it.
"""

import os
import sysconfig
import warnings
from collections.abc import Iterator
from typing import Any

from classroom.grading import tables
from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from classroom.grading.hand_ins import HandIns
from classroom.grading.marks import Mark, Marks
from classroom.grading.points import Result
from classroom.grading.roster import Roster
from course_lib.errors import CourseError


def write(
    records: list[GradingRecord],
    assignment: Assignment,
    results: dict[str, Result],
    marks: Marks,
    hand_ins: HandIns,
) -> None:
    """Write or renew an assignment in the gradebook, which is made if need be.

    Args:
        records: of all submissions that count.
        assignment: which they answer.
        results: points, by a record's key.
        marks: what a person has entered, by key and cell.
        hand_ins: who handed in what; `hand_ins.gradebook` is the address.

    Raises:
        CourseError: nbgrader is missing, or the gradebook cannot be written.
    """
    try:
        from nbgrader.api import Gradebook
        from sqlalchemy.exc import SQLAlchemyError

        # nbgrader calls alembic's command
        os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")
        with warnings.catch_warnings(action="ignore"), Gradebook(hand_ins.gradebook) as book:
            _write_assignment(book, assignment, hand_ins)
            _write_students(book, records, hand_ins.roster)
            for student, record in _known_students(records, results, hand_ins.roster):
                result = results[record["key"]]
                _write_submission(book, student, record, assignment, result, marks)
            book.db.commit()
    except ImportError as lost:
        raise CourseError(
            f"--gradebook needs {lost.name}: pip install -c requirements.lock -e '.[nbgrader]'"
        ) from None
    except SQLAlchemyError as error:
        reason = str(error).partition("\n")[0]
        raise CourseError(f"The gradebook {hand_ins.gradebook}: {reason}") from None


def _write_assignment(book: Any, assignment: Assignment, hand_ins: HandIns) -> None:
    """The assignment, its notebook, and a grade cell for each part that carries points."""
    name, parts = assignment.name, assignment.tests | assignment.written
    due = {"duedate": hand_ins.due.astimezone()} if hand_ins.due else {}
    book.update_or_create_assignment(name, **due)
    notebook = book.update_or_create_notebook(name, name)
    cells = {cell.name for cell in notebook.grade_cells}
    if notebook.submissions and cells != set(parts):
        raise CourseError(
            f"{hand_ins.gradebook} has submissions of a {name} with other cells; take another"
            " gradebook."
        )
    for part in parts.values():
        cell_type = "code" if part.function else "markdown"
        book.update_or_create_grade_cell(
            part.id, name, name, max_score=part.points, cell_type=cell_type
        )


def _write_students(book: Any, records: list[GradingRecord], roster: Roster | None) -> None:
    """Everybody in the roster, or whoever handed in; a name that is there already stays."""
    people = [(record["key"], record["student"]) for record in records]
    if roster and roster.rows:
        people = [(_student_id(roster, row), roster.name(row)) for row in range(len(roster.rows))]
    for student_id, name in people:
        student = book.update_or_create_student(student_id)
        if not student.last_name:
            last, _, first = name.partition(", ")
            student.last_name, student.first_name = _without_commas(last), _without_commas(first)


def _without_commas(name: str) -> str:
    """A name as nbgrader can export it, which puts no quotation marks around it."""
    return tables.harmless(name.replace(",", " "))


def _known_students(
    records: list[GradingRecord], results: dict[str, Result], roster: Roster | None
) -> Iterator[tuple[str, GradingRecord]]:
    """The gradebook's id of each record's student; nobody is guessed who is not in the roster."""
    for record in records:
        row = results[record["key"]].arrival.row
        if roster is None:
            yield record["key"], record
        elif row is not None:
            yield _student_id(roster, row), record


def _student_id(roster: Roster, row: int) -> str:
    return roster.name(row, "gradebook").partition(", ")[0]


def _write_submission(
    book: Any,
    student: str,
    record: GradingRecord,
    assignment: Assignment,
    result: Result,
    marks: Marks,
) -> None:
    """What the tests and the teacher gave for each cell, and what being late costs."""
    name = assignment.name
    book.update_or_create_submission(name, student)
    book.find_submission_notebook(name, name, student).late_submission_penalty = result.penalty
    for cell in assignment.tests | assignment.written:
        grade = book.find_grade(cell, name, name, student)
        grade.auto_score = _automatic_points(record, cell)
        mark = marks.get((record["key"], cell), Mark())
        if mark.points is not None:  # else what was entered in Formgrader stays
            grade.manual_score = mark.points
        grade.needs_manual_grade = grade.auto_score is None and grade.manual_score is None


def _automatic_points(record: GradingRecord, cell: str) -> float | None:
    """What a cell earns without a person; None where one has to mark it."""
    test = record["tests"].get(cell)
    if test:
        return float(test["points"])
    to_mark = record["written"].get(cell) or not record["tests"]
    return None if to_mark else 0.0  # nothing was written
