"""Find the submissions in a folder, read them whatever they are called and packed in, and put their
cells right.
"""

import hashlib
import json
import os
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from classroom.grading.assignment import ANSWER, KEY, Assignment, grade_id
from course_lib.errors import CourseError

LARGEST = 20 * 2**20  # bytes of a notebook
MOST = 60 * 2**20  # bytes that are read of one submission, zip files unpacked
MOST_FILES = 500  # that are looked at in one submission
LONGEST = 100_000  # characters of a cell
GradingRecord = dict[str, Any]  # all about one submission, as JSON: see `score.unread`
KINDS = ("markdown", "code", "raw")
METADATA = (KEY, "kernelspec", "language_info")
# Colours of a terminal, its other control characters, and those that turn the direction of writing.
UNSHOWN = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FOREIGN = re.compile("[\udc80-\udcff]+")  # in a file's name: bytes that are not UTF-8


class SubmittedCell(NamedTuple):
    """One cell as handed in: kind, source and nbgrader's name. Outputs are not read; cells are run
    again.
    """

    kind: str
    source: str
    id: str


@dataclass
class Submission:
    """What one student handed in."""

    student: str  # the name of the file or folder
    key: str  # the same, fit for a file's name
    status: str = ""  # "" where there is a notebook to grade, else why not
    cells: list[SubmittedCell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was unusual


def clean(value: Any) -> Any:
    """A value as every file, page and terminal can take it: plain JSON, finite numbers, text
    without half characters and control characters."""
    if isinstance(value, str):
        return UNSHOWN.sub("", _text(value))
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if value is None or (isinstance(value, int | float) and abs(value) < 2**53):  # not NaN
        return value
    return f"({type(value).__name__})"


def collect(folder: Path) -> dict[Path, tuple[str, str]]:
    """One entry a student (a folder, a notebook or a zip file) with the student's name and key;
    keys are unlike even where letter case is not told apart, and nobody can take another's by the
    choice of a name."""
    if not folder.is_dir():
        raise CourseError(
            f"{folder} is not a folder; give the one that holds a file or a folder for each"
            " student."
        )
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith((".", "__MACOSX")))
    if not entries:
        raise CourseError(
            f"There is nothing in {folder}; put a file or a folder for each student there."
        )
    named: dict[Path, tuple[str, str]] = {}
    used: set[str] = set()
    stems = [entry.stem if entry.is_file() else entry.name for entry in entries]
    for entry, stem in zip(entries, stems, strict=True):
        name = stem if stems.count(stem) == 1 else entry.name
        key = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", name)).lstrip("-")[:40]
        if key != name or key.casefold() in used or re.search(r"-[0-9a-f]{8}$", key):
            key += "-" + hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        key += f"-{len(used)}" if key.casefold() in used else ""
        used.add(key.casefold())
        student = _shown(name)
        named[entry] = (
            f"{student} ({key})" if student in {said for said, _ in named.values()} else student,
            key,
        )
    return named


def digest(entry: Path) -> str:
    """Of all that one submission holds, as far as it is read; "" where it cannot be."""
    made, room = hashlib.sha256(), 2 * MOST
    try:
        for path in [] if entry.is_symlink() else paths(entry):
            with path.open("rb") as file:
                data = file.read(max(0, min(LARGEST, room)))
            room -= len(data)
            made.update(
                f"{path.stat().st_size} ".encode()
                + hashlib.sha256(os.fsencode(path.name) + data).digest()
            )
    except (OSError, RecursionError):
        return ""
    return made.hexdigest()


def read(entry: Path, student: str, key: str, assignment: Assignment) -> Submission:
    """Read one submission. Never raises: whatever is wrong becomes its status, with the reason in
    its notes.
    """
    made = Submission(student, key)
    try:
        _read(made, list(_files(entry)), assignment)
    except Exception as error:  # noqa: BLE001  anything at all may be in there
        made.status, made.cells = "cannot be read", []
        made.notes.append(_reason(error))
    return made


class _File(NamedTuple):
    name: str
    data: bytes
    status: str = ""  # why it could not be read
    why: str = ""


def _read(made: Submission, files: list[_File], assignment: Assignment) -> None:
    notebooks = [file for file in files if file.name.lower().endswith(".ipynb")]
    if not notebooks:
        notebooks = [
            file for file in files if file.data.lstrip()[:1] == b"{" and b'"cells"' in file.data
        ]
        made.notes += [f"the file is called {file.name}, not .ipynb" for file in notebooks[:1]]
    notebooks = notebooks or [file for file in files if file.status]
    if not notebooks:
        made.status = "no notebook"
        made.notes.append("found: " + (", ".join(file.name for file in files[:5]) or "nothing"))
        return
    tried = [(file, *_parse(file, assignment)) for file in notebooks]
    good = [row for row in tried if not row[2]] or [row for row in tried if row[1]] or tried
    file, made.cells, made.status, said = good[0]
    made.notes += said
    if len(notebooks) > 1:
        made.notes.append(f"{len(notebooks)} notebooks were handed in; this is {file.name}")


def _files(entry: Path) -> Iterator[_File]:
    """The files of one entry, zip files opened. No link is followed."""
    if entry.is_symlink():
        raise OSError("it is a link, which is not followed")
    room = MOST
    for name, opened in _openers(entry):
        most = max(0, min(LARGEST, room))
        try:
            with opened() as file:
                data = file.read(most + 1)  # whatever size an archive claims
        except Exception as error:  # noqa: BLE001  a damaged archive may raise anything
            yield _File(_shown(name), b"", "cannot be read", _reason(error))
            continue
        room -= len(data)
        if len(data) <= most:
            yield _File(_shown(name), data)
        else:
            why = (
                f"{_shown(name)} is larger than {LARGEST / 2**20:g} MB, or all together than"
                f" {MOST / 2**20:g} MB"
            )
            yield _File(_shown(name), b"", "too large", why)


def _openers(entry: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    for path in paths(entry):
        if path.suffix.lower() != ".zip":
            yield path.name, partial(path.open, "rb")
            continue
        try:
            archive = zipfile.ZipFile(path)
        except Exception:  # noqa: BLE001  said when it is tried again, beside what else there is
            yield path.name, partial(zipfile.ZipFile, path)
            continue
        with archive:
            for info in archive.infolist()[:MOST_FILES]:
                name = Path(info.filename).name
                if not (
                    info.is_dir() or name.startswith(".") or info.filename.startswith("__MACOSX")
                ):
                    yield name, partial(archive.open, info)


def paths(entry: Path) -> list[Path]:
    """The files of one entry, as many as are looked at; no link is followed."""
    return [entry] if entry.is_file() else sorted(islice(_inside(entry), MOST_FILES))


def _inside(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink() or path.name.startswith((".", "__MACOSX")):
            continue
        if path.is_dir():
            yield from _inside(path)
        elif path.is_file():
            yield path


def _parse(file: _File, assignment: Assignment) -> tuple[list[SubmittedCell], str, list[str]]:
    """The cells of a notebook; why it cannot be graded, or ""; notes."""
    if file.status:
        return [], file.status, [file.why]
    if not file.data.strip():
        return [], "empty file", ["there is nothing in it"]
    try:
        notebook = json.loads(file.data)
        sheets = [notebook] if "cells" in notebook else notebook["worksheets"]  # before format 4
        cells = [_cell(cell) for sheet in sheets for cell in sheet["cells"]]
        metadata = notebook.get("metadata")
    except Exception as error:  # noqa: BLE001  anything at all may be in there
        return [], "not a notebook", [_reason(error)]
    return cells, *_belongs(metadata if isinstance(metadata, dict) else {}, cells, assignment)


def _cell(cell: Any) -> SubmittedCell:
    source, kind = cell.get("source", cell.get("input", "")), cell.get("cell_type")
    text = source if isinstance(source, str) else "".join(str(line) for line in source)
    return SubmittedCell(
        kind if kind in KINDS else "raw", _text(text[: LONGEST + 1]), _text(grade_id(cell))
    )


def _belongs(
    metadata: GradingRecord, cells: list[SubmittedCell], assignment: Assignment
) -> tuple[str, list[str]]:
    """The status "another assignment", or ""; notes."""
    said, kernel, info = (
        found if isinstance(found := metadata.get(name), dict) else {} for name in METADATA
    )
    language = str(kernel.get("language") or info.get("name") or "python")
    notes = (
        [] if "python" in language.lower() else [f"written for {_shown(language)}, not for Python"]
    )
    if isinstance(said.get("assignment"), str):
        if said["assignment"] == assignment.name:
            return "", notes
        return "another assignment", [*notes, f"it says that it is {_shown(said['assignment'])}"]
    ids = {*assignment.tests, *assignment.written}
    defines = re.compile(rf"^[ \t]*(def +)?({'|'.join(assignment.tasks)})\b *(\(|=)", re.MULTILINE)
    if any(
        cell.id in ids or (cell.kind == "code" and defines.search(cell.source)) for cell in cells
    ):
        return "", notes
    return "another assignment", [*notes, f"no cell of {assignment.name} is in it"]


def _text(text: str) -> str:
    """Text that can be written as UTF-8: halves of a character are joined or replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shown(name: str) -> str:
    """A file's name on one line, also where its bytes are of another system's encoding."""
    name = FOREIGN.sub(lambda match: os.fsencode(match[0]).decode("cp1252", "replace"), name)
    return " ".join(clean(" ".join(name.split()))[:100].split())


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error)[:200].split())}"


class GradingStep(NamedTuple):
    """What to do with one cell: show its text, run its code, or (after running it) test a function
    of it.
    """

    do: Literal["text", "run", "skip", "test"]
    source: str
    id: str = ""


def repair(
    cells: list[SubmittedCell], assignment: Assignment
) -> tuple[list[GradingStep], list[str]]:
    """The steps of grading, and what had to be mended, for the notes.

    A student's own code stays where it stands and runs, whatever its cell is called. Cells of the
    course's (set-up and tests) are taken from the master; missing ones are put back: the set-up
    first, tests at the end."""
    demos = {
        cell.source for cell in assignment.release.cells if "demo" in cell.metadata.get("tags", [])
    }
    by_source = {cell.source.strip(): name for name, cell in assignment.locked.items()}
    steps: list[GradingStep] = []
    seen: set[str] = set()
    changed: list[str] = []
    twice: list[str] = []
    long: list[str] = []
    for cell in cells:
        name = cell.id if cell.id in assignment.locked else by_source.get(cell.source.strip(), "")
        if cell.kind == "code" and len(cell.source) > LONGEST:
            steps.append(GradingStep("skip", cell.source))
            long.append(f"cell {len(steps)}")
        elif cell.kind != "code":
            steps.append(GradingStep("text", cell.source, cell.id))
        elif name:
            if cell.source.strip() != assignment.locked[name].source.strip():
                changed.append(name)
                # a copied cell keeps its name; its code may be needed
                steps.append(GradingStep("run", cell.source))
            if name in seen:
                twice.append(name)
                continue
            seen.add(name)
            steps.append(_course_step(name, assignment))
        elif cell.source in demos:
            steps.append(GradingStep("skip", cell.source))
        elif cell.source.strip():
            steps.append(GradingStep("run", cell.source, cell.id))
    missing = [name for name in assignment.locked if name not in seen]
    for step in (_course_step(name, assignment) for name in missing):
        steps.insert(len(steps) if step.do == "test" else 0, step)
    said = {
        "changed (the originals count)": changed,
        "there twice (they count once)": twice,
        "missing (put back)": missing,
    }
    notes = [f"course cells {what}: {', '.join(names)}" for what, names in said.items() if names]
    return steps, notes + [
        f"{cell} is longer than {LONGEST:,} characters and was not run" for cell in long[:9]
    ]


def _course_step(name: str, assignment: Assignment) -> GradingStep:
    return GradingStep(
        "test" if name in assignment.tests else "run", assignment.locked[name].source, name
    )


def written(cells: list[SubmittedCell], assignment: Assignment) -> tuple[dict[str, str], list[str]]:
    """The answers that a person marks, "" where there is none; notes. Where the cell of an answer
    is as it was given out, all text that the student has added stands for it."""
    given = {"", ANSWER, *(cell.source.strip() for cell in assignment.release.cells)}
    own = [
        cell.source.strip()
        for cell in cells
        if cell.kind != "code" and cell.source.strip() not in given
    ]
    texts: dict[str, str] = {}
    notes: list[str] = []
    for name, part in assignment.written.items():
        found = [cell.source.strip() for cell in cells if cell.id == name]
        texts[name] = "\n\n".join(dict.fromkeys(text for text in found if text and text != ANSWER))
        if own and not texts[name]:
            texts[name] = "\n\n".join(dict.fromkeys(own))
            notes.append(
                f"the cell for {part.question} is empty; shown is what was written into other cells"
            )
        texts[name] = texts[name][:LONGEST]
    return texts, notes
