"""The points of one student: what tests and marks give, and what being late takes."""

from typing import NamedTuple

from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from classroom.grading.hand_ins import Arrival
from classroom.grading.marks import Marks, mark_of


class Result(NamedTuple):
    """The points of one student; None: not known yet.

    Attributes:
        earned: points of each question.
        total: their sum.
        of: what there was to earn.
        arrival: when and how it was handed in.
        penalty: what being late costs.
        final: what counts.
    """

    earned: dict[str, float | None]
    total: float | None
    of: float
    arrival: Arrival
    penalty: float | None
    final: float | None


def result_of(
    record: GradingRecord,
    assignment: Assignment,
    marks: Marks,
    arrival: Arrival,
    late_percent: float,
) -> Result:
    """The points of one submission.

    Args:
        record: what grading found.
        assignment: which it answers.
        marks: what a person has entered.
        arrival: how many days late it is.
        late_percent: percent of all points that a day late costs.
    """
    earned = earned_points(record, assignment, marks)
    of = sum(assignment.questions.values())
    if None in earned.values():
        return Result(earned, None, of, arrival, None, None)
    total = sum(points or 0.0 for points in earned.values())
    # nobody falls below 0
    penalty = round(min(total, of * late_percent / 100 * arrival.days), 2)
    return Result(earned, total, of, arrival, penalty, total - penalty)


def earned_points(
    record: GradingRecord, assignment: Assignment, marks: Marks
) -> dict[str, float | None]:
    """Points of each question; None: still to be marked by hand, or nothing could be graded."""
    earned: dict[str, float | None] = dict.fromkeys(assignment.questions)
    if not record["tests"]:
        return earned
    for name, test in assignment.tests.items():
        earned[test.question] = (earned[test.question] or 0.0) + record["tests"][name]["points"]
    for name, part in assignment.written.items():
        points = mark_of(marks, record["key"], name).points
        if points is None and not record["written"].get(name):
            points = 0.0  # nothing was written
        if points is not None:
            points += earned[part.question] or 0.0
        earned[part.question] = points
    return earned
