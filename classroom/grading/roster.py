"""Who handed in what, and when: names of files that Canvas (NAME_(LATE_)USER_FILE_ITS-OWN-NAME) and
Moodle (NAME_PARTICIPANT_assignsubmission_file) pack, beside the list that they export."""

import contextlib
import math
import re
import tomllib
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from classroom.grading import collect, tables
from classroom.templates import asset
from course_lib.errors import CourseError

PLATFORMS, SAYS = tomllib.loads(asset("classroom.grading", "platforms.toml")).values()
CANVAS = re.compile(r"(?=(_LATE)?_(\d+)_(\d+)_)")  # a name may hold several such places
MOODLE = re.compile(r"^(.*?)_(\d+)_assignsubmission_(\w+?)(?:_|$)", re.DOTALL)
AGAIN = re.compile(r"-(\d+)$")


class Roster:
    """The list of a course's students: which platform's, all its columns, and a row a student."""

    def __init__(self, path: Path) -> None:
        self.file = path.name
        self.columns, rows = tables.read(path)
        fits = [
            name
            for name, of in PLATFORMS.items()
            if all({*each} & {*self.columns} for each in of["needs"])
        ]
        if not fits:
            raise CourseError(
                f"{path.name} is no list of students as Canvas or Moodle exports it in English."
            )
        self.platform, self.known = fits[0], PLATFORMS[fits[0]]
        self.possible = next(
            (row for row in rows if "Points Possible" in row.get(self.columns[0], "")), {}
        )
        self.rows = [row for row in rows if _cells(row, self.known["must"])]
        self.index: dict[str, set[int]] = defaultdict(set)
        for number, row in enumerate(self.rows):
            name = self.name(number).split(", ", 1)
            words = [_plain("".join(name)), _plain("".join(name[::-1]))]
            words += [f"id {cell.casefold()}" for cell in _cells(row, self.known["ids"])]
            for word in [
                *words,
                *(f"number {cell.split()[-1]}" for cell in _cells(row, self.known["number"])),
            ]:
                self.index[word].add(number)

    def name(self, number: int, by: str = "names") -> str:
        """A student's name, as the list has it; or what else of `known` tells who it is."""
        return ", ".join(_cells(self.rows[number], self.known[by])) or f"row {number + 1}"

    def find(self, stem: str) -> set[int]:
        """The students whom a file or folder of this name can belong to: by the platform's number
        (Canvas's with the name before it), else by id, login, e-mail address or name."""
        packed, places = MOODLE.match(stem), [*CANVAS.finditer(stem)]
        if packed and "Identifier" in self.columns:
            return self.index.get(f"number {packed[2]}", set())
        if places and self.platform == "canvas":
            named = [(f"number {place[2]}", _plain(stem[: place.start()])) for place in places]
            return {
                row
                for at, name in named
                for row in self.index.get(at, ())
                if _plain(self.name(row)) == name
            }
        names = {packed[1]} if packed else {stem, AGAIN.sub("", stem)}
        words = {word for name in names for word in (f"id {name.casefold()}", _plain(name)) if word}
        return {row for word in words for row in self.index.get(word, ())}

    def export(
        self, out: Path, title: str, of: float, points: dict[int, float | None]
    ) -> list[str]:
        """Write the file that the platform imports, with the rows that have points; sentences about
        what is not so.
        """
        called = {
            name: re.sub(r"^Assignment: | \((Real|\d+)\)$", "", name).strip().casefold()
            for name in self.columns
        }
        fits = [name for name, short in called.items() if short == title.casefold()]
        sheet = {"Identifier", "Grade"} <= {*self.columns}
        column = "Grade" if sheet else fits[0] if len(fits) == 1 else title
        people = [
            name
            for name in self.columns
            if name in self.known["people"] + self.known.get("sheet", []) * sheet
        ]
        known = {n: f"{each:g}" for n, each in sorted(points.items()) if each is not None}
        rows = [
            [*(self.rows[n].get(name, "") for name in people), each] for n, each in known.items()
        ]
        where = self.rows[0] if sheet and self.rows else self.possible
        full = where.get("Maximum Grade" if sheet else column, "").strip() or f"{of:g}"
        if self.platform == "canvas":  # what stands here becomes the assignment's
            rows.insert(0, ["Points Possible", *[""] * (len(people) - 1), full])
        tables.write(out / f"{self.platform}.csv", [*people, column], rows, mark=False)
        said = [f"{self.file} gives {column} {full} points, the homework has {of:g}."]
        said *= not re.fullmatch(rf"{of:g}([.,]0+)?", full)
        left = (
            f"{len(points) - len(known)} of {len(points)} students have no total yet: not in"
            f" {self.platform}.csv."
        )
        return said + [left] * (len(known) < len(points))


class Turned(NamedTuple):
    """How a submission that counts came in. row: the student's, of the roster. days: begun since it
    was due.
    """

    row: int | None = None
    days: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class Handed:
    """What counts of a folder: entries as `collect.collect` names them, `Turned` by key. said: for
    the teacher. absent: of whom there is nothing. percent: of all points, a day late. marked: a
    marks.csv to take over. gradebook: where."""

    entries: dict[Path, tuple[str, str]] = field(default_factory=dict)
    turned: dict[str, Turned] = field(default_factory=lambda: defaultdict(Turned))
    said: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    roster: Roster | None = None
    due: datetime | None = None
    percent: float = 0.0
    marked: Path | None = None
    gradebook: str = ""


def gather(
    folder: Path, roster: Roster | None = None, due: datetime | None = None, **more: Any
) -> Handed:
    """The submissions of a folder that count: of several of one student the last. Nobody is
    guessed: who is not in the roster, or could be several, keeps the file's name, and a sentence
    says so. more: see `Handed`."""
    made, named = Handed(roster=roster, due=due, **more), collect.collect(folder)
    groups: dict[int | Path, list[Path]] = defaultdict(list)
    for entry, (shown, _) in named.items():
        fits = roster.find(_stem(entry)) if roster else set()
        groups[next(iter(fits)) if len(fits) == 1 else entry].append(entry)
        if roster and len(fits) != 1:
            why = (
                f"{len(fits)} students could be meant"
                if fits
                else "nobody has this id, login, e-mail or name"
            )
            made.said.append(f"{shown}: in {roster.file} {why}.")
    for who, entries in groups.items():
        *earlier, last = sorted(entries, key=_order)
        (student, key), row, then = named[last], None, None
        if roster and isinstance(who, int):
            student, row = collect.clean(roster.name(who))[:100], who
            with contextlib.suppress(ValueError):
                when = roster.rows[who].get("Last modified (submission)", "")
                then = datetime.strptime(when, "%A, %d %B %Y, %I:%M %p")
        days, note = _days(last, then, due)
        again = "also handed in, not counted: " + ", ".join(named[entry][0] for entry in earlier)
        made.turned[key] = Turned(row, days, tuple([note] * bool(note) + [again] * bool(earlier)))
        made.entries[last] = student, key
    names = [student for student, _ in made.entries.values()]
    made.absent = (
        [roster.name(row) for row in range(len(roster.rows)) if row not in groups] if roster else []
    )
    made.entries = {
        e: (f"{s} ({k})" if names.count(s) > 1 else s, k) for e, (s, k) in made.entries.items()
    }
    return made


def _days(entry: Path, said: datetime | None, due: datetime | None) -> tuple[int, str]:
    """Days begun since it was due, and a note where they are not known for sure."""
    if packed := next(CANVAS.finditer(_stem(entry)), None):
        return (1, SAYS["late"]) if packed[1] else (0, "")
    if due is None or (said is None and MOODLE.match(_stem(entry))):
        return 0, SAYS["unknown"] * bool(due)
    return (
        max(
            0,
            math.ceil(
                ((said.timestamp() if said else _order(entry)[-1]) - due.timestamp()) / 86_400
            ),
        ),
        "",
    )


def _order(entry: Path) -> tuple[bool, int, int, float]:
    """The last is largest; what can hold no notebook (a picture beside it) never is. Its end: when
    it was written.
    """
    canvas, packed, again = (
        found(_stem(entry)) for found in (CANVAS.search, MOODLE.match, AGAIN.search)
    )
    can = (
        entry.suffix.lower() in (".ipynb", ".zip")
        if entry.is_file()
        else not packed or packed[3] == "file"
    )
    time = 0.0
    # a link, or nothing in it, or not ours to read
    with contextlib.suppress(OSError, RecursionError, ValueError):
        time = max(
            path.lstat().st_mtime for path in ([] if entry.is_symlink() else collect.paths(entry))
        )
    return can, int(canvas[3]) if canvas else 0, int(again[1]) if again else 0, time


def _stem(entry: Path) -> str:
    return unicodedata.normalize("NFC", entry.stem if entry.is_file() else entry.name)


def _cells(row: dict[str, str], names: list[str]) -> list[str]:
    return [cell for name in names if (cell := row.get(name, "").strip())]


def _plain(name: str) -> str:
    """A name's letters and digits, since platforms drop the others."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", name)).casefold()
