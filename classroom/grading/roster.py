"""Who handed in what, and when: the names of files that Canvas and Moodle pack, beside the list that they export.

Canvas calls a file NAME_(LATE_)USER_FILE_its-own-name, Moodle a folder NAME_PARTICIPANT_assignsubmission_file. What a
student can choose of it stands last in the one and has no underscore in the other.
"""

import math
import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from classroom.grading import collect, tables
from course_lib.errors import CourseError

CANVAS = re.compile(r"(?=(_LATE)?_(\d+)_(\d+)_)")  # a name may hold several such places
MOODLE = re.compile(r"^(.*?)_(\d+)_assignsubmission_(\w+?)(?:_|$)", re.DOTALL)
AGAIN = re.compile(r"-(\d+)$")
PEOPLE = {  # in the order that the platform's import asks for
    "canvas": ("Student", "LastName", "FirstName", "ID", "SIS User ID", "SIS Login ID", "Integration ID",
               "Root Account", "Section"),
    "moodle": ("Identifier", "First name", "Last name", "Surname", "Full name", "Username", "ID number",
               "Email address"),
}  # fmt: skip
NAMES = {"Student", "LastName", "FirstName", "First name", "Last name", "Surname", "Full name"}
NO_ID = {"Section", "Root Account", "Identifier", *NAMES}
SHEET = ("Grade", "Maximum Grade", "Last modified (grade)")  # of Moodle's grading worksheet
WHEN = "Last modified (submission)"


class Turned(NamedTuple):
    """How the submission of a student that counts came in. row: the student's, of the roster. days: begun since it
    was due. notes: what was unusual."""

    row: int | None = None
    days: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class Handed:
    """What counts of a folder: entries as `collect.collect` names them, `Turned` by key. said: for the teacher."""

    entries: dict[Path, tuple[str, str]] = field(default_factory=dict)
    turned: dict[str, Turned] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    roster: "Roster | None" = None

    def of(self, key: str) -> Turned:
        """How it came in; nothing is known of a key that is not there."""
        return self.turned.get(key, Turned())


class Roster:
    """The list of a course's students: `platform`'s, with all its columns, and a row a student."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise CourseError(f"{path} is not a file; give the list that Canvas or Moodle exports.")
        self.file = path.name
        self.columns, rows = tables.read(path)
        has = set(self.columns)
        if {"ID", "Section"} <= has and has & {"Student", "LastName"}:
            self.platform = "canvas"
        elif has & {"Identifier", "Email address"} and has & {"Full name", "First name"}:
            self.platform = "moodle"
        else:
            raise CourseError(
                f"{path.name} is no list of students: neither Canvas's columns (Student, ID, Section) nor Moodle's "
                "(Identifier or Email address, Full name or First name). Export it in English."
            )
        self.possible = next((row for row in rows if "Points Possible" in row.get(self.columns[0], "")), {})
        people = [name for name in PEOPLE[self.platform] if name in has and name != "Section"]
        must = ["ID"] if self.platform == "canvas" else people  # Canvas has rows that are no student's
        self.rows = [row for row in rows if any(row.get(name, "").strip() for name in must)]
        self._ids: dict[str, set[int]] = defaultdict(set)
        self._words: dict[str, set[int]] = defaultdict(set)
        for number, row in enumerate(self.rows):
            called = self.name(number).split(", ", 1)
            own = {f"id {row.get(name, '').strip().casefold()}" for name in people if name not in NO_ID}
            for word in (own | {_plain("".join(called)), _plain("".join(called[::-1]))}) - {"id ", ""}:
                self._words[word].add(number)
            if found := re.search(r"\d+$", row.get("ID" if self.platform == "canvas" else "Identifier", "").strip()):
                self._ids[found[0]].add(number)

    def name(self, number: int) -> str:
        """A student's name, as the list has it."""
        row = self.rows[number]
        found = [row.get(name, "").strip() for name in ("Student", "Full name", "LastName", "Surname", "Last name")]
        first = row.get("FirstName", row.get("First name", "")).strip()
        return ", ".join(filter(None, [next(filter(None, found), ""), first])) or f"line {number + 2}"

    def find(self, stem: str) -> set[int]:
        """The students whom a file or folder of this name can belong to: by the platform's number (Canvas's with the
        name before it), else by id, login, e-mail address or name."""
        packed = MOODLE.match(stem)
        if packed and self.platform == "moodle" and self._ids:
            return self._ids.get(packed[2], set())
        if self.platform == "canvas" and (places := [*CANVAS.finditer(stem)]):
            found = {(row, _plain(stem[: place.start()])) for place in places for row in self._ids.get(place[2], ())}
            return {row for row, name in found if _plain(self.name(row)) == name}
        names = {packed[1]} if packed else {stem, AGAIN.sub("", stem)}
        words = {word for name in names for word in (f"id {name.casefold()}", _plain(name))}
        return {row for word in words for row in self._words.get(word, ())}

    def time(self, number: int) -> datetime | None:
        """When this student handed in, where the list says so (in English)."""
        try:
            return datetime.strptime(self.rows[number].get(WHEN, "").strip(), "%A, %d %B %Y, %I:%M %p")
        except ValueError:
            return None

    def export(self, title: str, of: float, points: dict[int, str]) -> tuple[list[str], list[list[str]], str]:
        """Columns and rows (those with points) to import; a sentence where the platform reckons with other points."""
        called = {name: re.sub(r"^Assignment: | \((Real|\d+)\)$", "", name).strip().casefold() for name in self.columns}
        fits = [name for name, short in called.items() if short == title.casefold()]
        sheet = self.platform == "moodle" and {"Identifier", "Grade"} <= set(self.columns)
        column = "Grade" if sheet else fits[0] if len(fits) == 1 else title
        people = [name for name in self.columns if name in PEOPLE[self.platform] or (sheet and name in SHEET[1:])]
        rows = [[*(self.rows[n].get(name, "") for name in people), points[n]] for n in sorted(points)]
        said = {row.get("Maximum Grade", "") for row in self.rows} if sheet else {self.possible.get(column, "")}
        if self.platform == "canvas":  # what stands there becomes the assignment's; a new one gets ours
            rows.insert(0, ["Points Possible", *[""] * (len(people) - 1), self.possible.get(column, "") or f"{of:g}"])
        others = [each for each in said if each.strip() and not re.fullmatch(rf"\s*{of:g}([.,]0+)?\s*", each)]
        why = [f"{self.file} gives {column} {each.strip()} points, the homework has {of:g}." for each in others]
        return [*people, column], rows, "".join(why[:1])


def _plain(name: str) -> str:
    """A name's letters and digits, since platforms drop the others."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", name)).casefold()


def gather(folder: Path, roster: Roster | None = None, due: datetime | None = None) -> Handed:
    """The submissions of a folder that count: of several of one student the last. Nobody is guessed: who is not in the
    roster, or could be several, keeps the own file's name, and a sentence says so."""
    made = Handed(roster=roster)
    groups: dict[int | Path, list[Path]] = defaultdict(list)
    named = collect.collect(folder)
    for entry, (shown, _) in named.items():
        fits = roster.find(_stem(entry)) if roster else set()
        groups[next(iter(fits)) if len(fits) == 1 else entry].append(entry)
        if roster and len(fits) > 1:
            made.said.append(f"{shown}: {len(fits)} students of {roster.file} could be meant; name the file by an id.")
        elif roster and not fits:
            made.said.append(f"{shown}: nobody in {roster.file} has this id, login, e-mail address or name.")
    unknown = False
    for who, entries in groups.items():
        *earlier, last = sorted(entries, key=_order)
        student, key = named[last]
        row = who if isinstance(who, int) else None
        if roster and row is not None:
            student = " ".join(collect.clean(roster.name(row)).split())[:100]
        days, note = _days(last, roster.time(row) if roster and row is not None else None, due)
        notes = [note] if note and days else []
        unknown = unknown or bool(note and not days)
        if earlier:
            notes.append("also handed in, not counted: " + ", ".join(named[entry][0] for entry in earlier))
        made.entries[last] = student, key
        made.turned[key] = Turned(row, days, tuple(notes))
    names = [student for student, _ in made.entries.values()]
    made.entries = {e: (f"{s} ({k})" if names.count(s) > 1 else s, k) for e, (s, k) in made.entries.items()}
    if unknown:
        made.said.append(
            "Moodle's files bear the time of the download, so whether they came late is not known; give the "
            f"assignment's grading worksheet (in English) as --roster, its column {WHEN!r} says when."
        )
    return made


def _stem(entry: Path) -> str:
    return unicodedata.normalize("NFC", entry.stem if entry.is_file() else entry.name)


def _order(entry: Path) -> tuple[bool, int, int, float]:
    """What came last is largest; what can hold no notebook (a picture beside it) is never the last."""
    stem = _stem(entry)
    canvas, packed, again = next(CANVAS.finditer(stem), None), MOODLE.match(stem), AGAIN.search(stem)
    can = entry.suffix.lower() in (".ipynb", ".zip") if entry.is_file() else not packed or packed[3] == "file"
    return can, int(canvas[3]) if canvas else 0, int(again[1][:9]) if again else 0, _time(entry)


def _time(entry: Path) -> float:
    """When an entry, or the newest file in it, was written."""
    return max((path.lstat().st_mtime for path in ([] if entry.is_symlink() else collect.paths(entry))), default=0.0)


def _days(entry: Path, said: datetime | None, due: datetime | None) -> tuple[int, str]:
    """Days begun since it was due, and a note where they are not known for sure."""
    stem = _stem(entry)
    if packed := next(CANVAS.finditer(stem), None):  # its files bear the time of the download
        return (1, "late by its name, which does not say by how much: one day is counted") if packed[1] else (0, "")
    if due is None:
        return 0, ""
    if said is None and MOODLE.match(stem):
        return 0, "not known"
    then = said.timestamp() if said else _time(entry)
    return max(0, math.ceil((then - due.timestamp()) / 86_400)), ""
