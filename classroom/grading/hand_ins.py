"""Who handed in what, and when: which submission of a student counts, and how late it was."""

import contextlib
import math
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from classroom.grading import collect
from classroom.grading.roster import AGAIN, CANVAS, MOODLE, SENTENCES, Roster
from course_lib.errors import CourseError

DAY = 86_400  # seconds


class Arrival(NamedTuple):
    """How a submission that counts came in.

    Attributes:
        row: the student's row in the roster.
        days: days late; one that has begun counts.
        notes: what the teacher should know of it.
    """

    row: int | None = None
    days: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class HandIns:
    """What counts of a folder.

    Attributes:
        entries: the submissions that count, each with student and key (`collect.collect`).
        arrivals: how each came in, by its key.
        warnings: sentences for the teacher.
        absent: students of whom there is nothing.
        roster: the list of students, if there is one.
        due: the deadline.
        late_percent: percent of all points that a day late costs.
        marks_file: a marks.csv to take over.
        gradebook: the address of nbgrader's gradebook to fill.
    """

    entries: dict[Path, tuple[str, str]] = field(default_factory=dict)
    arrivals: dict[str, Arrival] = field(default_factory=lambda: defaultdict(Arrival))
    warnings: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    roster: Roster | None = None
    due: datetime | None = None
    late_percent: float = 0.0
    marks_file: Path | None = None
    gradebook: str = ""


def gather(
    folder: Path, roster: Roster | None = None, due: datetime | None = None, **more: Any
) -> HandIns:
    """The submissions of a folder that count: of several of one student the last.

    Nobody is guessed: who is not in the roster, or could be several, keeps the file's name, and a
    sentence says so.

    Args:
        folder: holds a file or a folder for each submission.
        roster: the list of students.
        due: the deadline.
        more: further fields of `HandIns`.
    """
    hand_ins = HandIns(roster=roster, due=due, **more)
    named = collect.collect(folder)
    groups = _by_student(named, hand_ins)
    for owner, entries in groups.items():
        *earlier, last = sorted(entries, key=_order)
        student, key = named[last]
        row = None
        if roster and isinstance(owner, int):
            row = owner
            student = collect.clean(roster.name(row))[:100]
        days, note = _days_late(last, _submitted(roster, row), due)
        notes = [note] if note else []
        if earlier:
            names = ", ".join(named[entry][0] for entry in earlier)
            notes.append(f"also handed in, not counted: {names}")
        hand_ins.arrivals[key] = Arrival(row, days, tuple(notes))
        hand_ins.entries[last] = student, key
    hand_ins.entries = _told_apart(hand_ins.entries)
    if roster:
        rows = range(len(roster.rows))
        hand_ins.absent = [roster.name(row) for row in rows if row not in groups]
    return hand_ins


def _by_student(
    named: dict[Path, tuple[str, str]], hand_ins: HandIns
) -> dict[int | Path, list[Path]]:
    """Entries by the row of their student, or alone where the student is not known."""
    roster = hand_ins.roster
    groups: dict[int | Path, list[Path]] = defaultdict(list)
    for entry, (name, _) in named.items():
        rows = roster.find(_stem(entry)) if roster else set()
        if len(rows) == 1:
            groups[next(iter(rows))].append(entry)
            continue
        groups[entry].append(entry)
        if roster:
            why = "nobody has this id, login, e-mail or name"
            if rows:
                why = f"{len(rows)} students could be meant"
            hand_ins.warnings.append(f"{name}: in {roster.file} {why}.")
    return groups


def _told_apart(entries: dict[Path, tuple[str, str]]) -> dict[Path, tuple[str, str]]:
    """The entries with the key behind each name that several students have."""
    names = [student for student, _ in entries.values()]
    apart = {}
    for entry, (student, key) in entries.items():
        shown = f"{student} ({key})" if names.count(student) > 1 else student
        apart[entry] = shown, key
    return apart


def _submitted(roster: Roster | None, row: int | None) -> datetime | None:
    """When Moodle's grading worksheet says that a student handed in."""
    if roster is None or row is None:
        return None
    text = roster.rows[row].get("Last modified (submission)", "")
    try:
        return datetime.strptime(text, "%A, %d %B %Y, %I:%M %p")
    except ValueError:
        return None


def _days_late(entry: Path, submitted: datetime | None, due: datetime | None) -> tuple[int, str]:
    """Days begun since the deadline, and a note where they are not known for sure.

    Args:
        entry: the submission.
        submitted: when the roster says that it was handed in.
        due: the deadline.
    """
    stem = _stem(entry)
    canvas = CANVAS.search(stem)
    if canvas:  # Canvas itself knows who was late
        return (1, SENTENCES["late"]) if canvas[1] else (0, "")
    if due is None:
        return 0, ""
    if submitted is None and MOODLE.match(stem):
        return 0, SENTENCES["unknown"]
    time = submitted.timestamp() if submitted else _written(entry)
    return max(0, math.ceil((time - _seconds(due)) / DAY)), ""


def _seconds(due: datetime) -> float:
    """The deadline as a file's time.

    Raises:
        CourseError: no clock of a computer has been there.
    """
    try:
        return due.timestamp()
    except (ValueError, OverflowError, OSError):
        raise CourseError(f"--due {due:%Y-%m-%dT%H:%M} is no date of our time.") from None


def _order(entry: Path) -> tuple[bool, int, int, float]:
    """A student's last submission has the largest.

    What can hold no notebook (a picture beside it) is never the last. Then Canvas's number of the
    file decides, then how often it was handed in, then when it was written.
    """
    stem = _stem(entry)
    canvas, again = CANVAS.search(stem), AGAIN.search(stem)
    return (
        _can_hold_a_notebook(entry),
        int(canvas[3]) if canvas else 0,
        int(again[1]) if again else 0,
        _written(entry),
    )


def _can_hold_a_notebook(entry: Path) -> bool:
    if entry.is_file():
        return entry.suffix.lower() in (".ipynb", ".zip")
    moodle = MOODLE.match(_stem(entry))  # beside its files Moodle packs texts and comments
    return moodle is None or moodle[3] == "file"


def _written(entry: Path) -> float:
    """When the newest file of an entry was written; 0 for a link, for nothing, or if not ours."""
    with contextlib.suppress(OSError, RecursionError, ValueError):
        if not entry.is_symlink():
            return max(path.lstat().st_mtime for path in collect.paths(entry))
    return 0.0


def _stem(entry: Path) -> str:
    return unicodedata.normalize("NFC", entry.stem if entry.is_file() else entry.name)
