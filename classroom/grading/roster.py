"""The list of a course's students, as Canvas or Moodle exports it, and the table that it imports.

Which columns each platform has stands in assets/platforms.toml. Those that one platform alone has,
in a grading worksheet of Moodle ("Identifier", "Grade", "Maximum Grade") and in Canvas's row of
points ("Points Possible"), are named here and in hand_ins.py, where they are read.
"""

import re
import tomllib
import unicodedata
from collections import defaultdict
from pathlib import Path

from classroom.grading import tables
from classroom.templates import asset
from course_lib.errors import CourseError

_TABLE = tomllib.loads(asset("classroom.grading", "platforms.toml"))
PLATFORMS, SENTENCES = _TABLE["platforms"], _TABLE["says"]

# Names of the files that the platforms pack: NAME_(LATE_)USER_FILE_ITS-OWN-NAME of Canvas, where a
# name may hold several such places, and NAME_PARTICIPANT_assignsubmission_file of Moodle.
CANVAS = re.compile(r"(?=(_LATE)?_(\d+)_(\d+)_)")
MOODLE = re.compile(r"^(.*?)_(\d+)_assignsubmission_(\w+?)(?:_|$)", re.DOTALL)
# What a browser or Canvas appends to the name of a file that was handed in again.
AGAIN = re.compile(r"-(\d+)$")


class Roster:
    """The list of a course's students: which platform's, all its columns, and a row a student."""

    def __init__(self, path: Path) -> None:
        self.file = path.name
        self.columns, rows = tables.read(path)
        self.platform = _platform(self.file, self.columns)
        self.known = PLATFORMS[self.platform]
        self.possible = _possible(rows, self.columns)
        self.rows = [row for row in rows if _filled(row, self.known["must"])]
        self.index = self._index()

    def _index(self) -> dict[str, set[int]]:
        """Each word that can name a student -> the rows of all whom it names."""
        index: dict[str, set[int]] = defaultdict(set)
        for number, row in enumerate(self.rows):
            last_and_first = self.name(number).split(", ", 1)
            words = [_plain("".join(last_and_first)), _plain("".join(last_and_first[::-1]))]
            words += [f"id {cell.casefold()}" for cell in _filled(row, self.known["ids"])]
            words += [f"number {cell.split()[-1]}" for cell in _filled(row, self.known["number"])]
            for word in words:
                index[word].add(number)
        return index

    def name(self, number: int, by: str = "names") -> str:
        """A student's name, as the list has it; or what else of `known` names them."""
        return ", ".join(_filled(self.rows[number], self.known[by])) or f"row {number + 1}"

    def find(self, stem: str) -> set[int]:
        """The rows of the students to whom a file or folder of this name can belong.

        The platform's number decides (Canvas's with the name before it), else the id, login,
        e-mail address or name.
        """
        moodle = MOODLE.match(stem)
        if moodle and "Identifier" in self.columns:
            return self.index.get(f"number {moodle[2]}", set())

        places = list(CANVAS.finditer(stem))
        if places and self.platform == "canvas":
            return self._find_by_number(stem, places)

        names = {moodle[1]} if moodle else {stem, AGAIN.sub("", stem)}
        words = {f"id {name.casefold()}" for name in names} | {_plain(name) for name in names}
        words.discard("")  # a name without letters or digits names nobody
        rows: set[int] = set()
        for word in words:
            rows |= self.index.get(word, set())
        return rows

    def _find_by_number(self, stem: str, places: list[re.Match[str]]) -> set[int]:
        """The rows whose Canvas number stands in the file's name, with their own name before it."""
        rows = set()
        for place in places:
            name = _plain(stem[: place.start()])
            for row in self.index.get(f"number {place[2]}", ()):
                if _plain(self.name(row)) == name:
                    rows.add(row)
        return rows

    def export(
        self, out: Path, title: str, of: float, points: dict[int, float | None]
    ) -> list[str]:
        """Write the table that the platform imports, with the rows that have points.

        Args:
            out: the folder of the table.
            title: the assignment's name on the platform.
            of: points of the whole assignment.
            points: row -> final points; None: not known yet.

        Returns:
            Sentences about what does not fit.
        """
        column = self._points_column(title)
        full = self._full_points(column) or f"{of:g}"
        people = self._people_columns()
        marked = {row: f"{value:g}" for row, value in sorted(points.items()) if value is not None}

        rows = []
        if self.platform == "canvas":  # what stands in this row becomes the assignment's
            rows.append(["Points Possible", *[""] * (len(people) - 1), full])
        for row, value in marked.items():
            rows.append([*(self.rows[row].get(name, "") for name in people), value])
        tables.write(out / f"{self.platform}.csv", [*people, column], rows, mark=False)

        warnings = []
        if not re.fullmatch(rf"{of:g}([.,]0+)?", full):
            warnings.append(f"{self.file} gives {column} {full} points, the homework has {of:g}.")
        if len(marked) < len(points):
            warnings.append(
                f"{len(points) - len(marked)} of {len(points)} students have no total yet: not in"
                f" {self.platform}.csv."
            )
        return warnings

    @property
    def _is_worksheet(self) -> bool:
        """Whether the list is a grading worksheet of Moodle."""
        return {"Identifier", "Grade"} <= set(self.columns)

    def _points_column(self, title: str) -> str:
        """The column for the points: the platform's own of this title, else a new one."""
        if self._is_worksheet:
            return "Grade"
        own = {name for name in self.columns if _plain_title(name) == title.casefold()}
        return own.pop() if len(own) == 1 else title

    def _full_points(self, column: str) -> str:
        """What the platform's list says that the assignment has; "" where it says nothing."""
        if not self._is_worksheet:
            return self.possible.get(column, "").strip()
        first = self.rows[0] if self.rows else self.possible
        return first.get("Maximum Grade", "").strip()

    def _people_columns(self) -> list[str]:
        """The columns beside the points that the platform asks for."""
        wanted = list(self.known["people"])
        if self._is_worksheet:
            wanted += self.known.get("sheet", [])
        return [name for name in self.columns if name in wanted]


def _platform(file: str, columns: list[str]) -> str:
    """The first platform whose lists have such columns."""
    for name, known in PLATFORMS.items():
        if all(set(one_of) & set(columns) for one_of in known["needs"]):
            return str(name)
    raise CourseError(f"{file} is no list of students as Canvas or Moodle exports it in English.")


def _possible(rows: list[dict[str, str]], columns: list[str]) -> dict[str, str]:
    """Canvas's row with the points of each assignment, if the list has one."""
    for row in rows:
        if "Points Possible" in row.get(columns[0], ""):
            return row
    return {}


def _filled(row: dict[str, str], names: list[str]) -> list[str]:
    """The cells of these columns that are not empty."""
    cells = [row.get(name, "").strip() for name in names]
    return [cell for cell in cells if cell]


def _plain(name: str) -> str:
    """A name's letters and digits, since platforms drop the others."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", name)).casefold()


def _plain_title(column: str) -> str:
    """An assignment's title without what the platforms put around it ("hw1 (77)")."""
    return re.sub(r"^Assignment: | \((Real|\d+)\)$", "", column).strip().casefold()
