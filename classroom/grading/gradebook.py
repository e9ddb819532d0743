"""nbgrader's gradebook as the store: students, submissions and what each cell earned, written by
nbgrader's own API.
"""

import os
import sysconfig
import warnings
from typing import Any

from classroom.grading import roster, tables
from classroom.grading.assignment import Assignment
from course_lib.errors import CourseError


def write(
    records: list[Any], assignment: Assignment, results: Any, marks: Any, handed: roster.Handed
) -> None:
    """Write or renew an assignment in `handed.gradebook`, made if need be. results, marks: see
    `report.write`.
    """
    try:
        from nbgrader.api import Gradebook
        from sqlalchemy.exc import SQLAlchemyError

        # nbgrader calls alembic's command
        os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")
        with warnings.catch_warnings(action="ignore"), Gradebook(handed.gradebook) as book:
            _write(book, records, assignment, results, marks, handed)
            book.db.commit()
    except ImportError as lost:
        raise CourseError(
            f"--gradebook needs {lost.name}: pip install -c requirements.lock -e '.[nbgrader]'"
        ) from None
    except SQLAlchemyError as error:
        raise CourseError(
            f"The gradebook {handed.gradebook}: {str(error).partition(chr(10))[0]}"
        ) from None


def _write(
    book: Any, records: list[Any], assignment: Assignment, results: Any, marks: Any, handed: Any
) -> None:
    name, parts, of = assignment.name, assignment.tests | assignment.written, handed.roster
    people = [
        (of.name(n, "gradebook").partition(", ")[0], of.name(n))
        for n in range(len(of.rows) if of else 0)
    ]
    book.update_or_create_assignment(
        name, **({"duedate": handed.due.astimezone()} if handed.due else {})
    )
    notebook = book.update_or_create_notebook(name, name)
    if notebook.submissions and {cell.name for cell in notebook.grade_cells} != {*parts}:
        raise CourseError(
            f"{handed.gradebook} has submissions of a {name} with other cells; take another"
            " gradebook."
        )
    for part in parts.values():
        kind = {"max_score": part.points, "cell_type": "code" if part.function else "markdown"}
        book.update_or_create_grade_cell(part.id, name, name, **kind)
    for who, called in people or [(record["key"], record["student"]) for record in records]:
        student, (last, _, first) = book.update_or_create_student(who), called.partition(", ")
        # nbgrader exports names without quotation marks, so no comma may be in them
        if not student.last_name:
            student.last_name, student.first_name = (
                tables.harmless(n.replace(",", " ")) for n in (last, first)
            )
    for record in records:
        result, key = results[record["key"]], record["key"]
        if not (
            who := (
                key if not of else "" if result.turned.row is None else people[result.turned.row][0]
            )
        ):
            continue  # not in the roster: nobody is guessed
        book.update_or_create_submission(name, who)
        book.find_submission_notebook(name, name, who).late_submission_penalty = result.penalty
        for cell in parts:
            grade, found = book.find_grade(cell, name, name, who), record["tests"].get(cell)
            to_mark = record["written"].get(cell) or not record["tests"]  # else nothing was written
            grade.auto_score = found["points"] if found else None if to_mark else 0.0
            if (mark := marks.get((key, cell))) and mark.points is not None:
                grade.manual_score = mark.points  # what Formgrader has stays where there is none
            grade.needs_manual_grade = grade.auto_score is None and grade.manual_score is None
