"""Find the submissions in a folder, and read them whatever they are called and packed in."""

import hashlib
import json
import os
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from classroom.grading import pictures
from classroom.grading.assignment import KEY, Assignment, grade_id
from course_lib.errors import CourseError

LARGEST = 20 * 2**20  # bytes of a notebook
MOST = 60 * 2**20  # bytes that are read of one submission, zip files unpacked
MOST_FILES = 500  # that are looked at in one submission
LONGEST = 100_000  # characters of a cell
LARGEST_FILE = 2**20  # bytes of a file beside the notebook
FILE = re.compile(r"(\w[\w .()-]{0,60}/){0,3}\w[\w .()-]{0,60}")  # its path
SAVED = 20_000  # characters below a cell that are looked at
GradingRecord = dict[str, Any]  # all about one submission, as JSON: see `score.unread`
KINDS = ("markdown", "code", "raw")
# Colours of a terminal, its other control characters, and those that turn the direction of writing.
UNSHOWN = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FOREIGN = re.compile("[\udc80-\udcff]+")  # in a file's name: bytes that are not UTF-8


# What an error in reading a file means; the first kind that fits
MEANINGS: tuple[tuple[type[Exception], str], ...] = (
    (UnicodeDecodeError, "it holds no text: it is another kind of file, or damaged"),
    (json.JSONDecodeError, "it is cut short, damaged, or no notebook (its JSON cannot be read)"),
    (RecursionError, "its JSON is nested too deep"),
    (zipfile.BadZipFile, "it is no zip file, or a damaged one"),
    (PermissionError, "it may not be opened: look at the file's permissions"),
)


class SubmittedCell(NamedTuple):
    """One cell as handed in. Cells are run again; what was saved below them counts for nothing.

    Attributes:
        kind: "markdown", "code" or "raw".
        source: its text, without the pictures in it.
        id: nbgrader's name.
        pictures: in its text, in base64, whatever they hold.
        saved: what the cell printed when the student ran it; None where that is not known, or it
            raised an error. It only serves to tell the teacher of a difference.
    """

    kind: str
    source: str
    id: str
    pictures: tuple[str, ...] = ()
    saved: str | None = None


@dataclass
class Submission:
    """What one student handed in."""

    student: str  # the name of the file or folder
    key: str  # the same, fit for a file's name
    status: str = ""  # "" where there is a notebook to grade, else why not
    cells: list[SubmittedCell] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)  # beside the notebook, by path
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
    if value is None:
        return None
    if isinstance(value, int | float) and abs(value) < 2**53:  # NaN is not smaller
        return value
    return f"({type(value).__name__})"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in a sentence.

    >>> listed(["a.py", "b.py", "c.py"], most=2)
    'a.py, b.py and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def collect(folder: Path) -> dict[Path, tuple[str, str]]:
    """The entries of a folder, each with the student's name and key.

    An entry is a folder, a notebook or a zip file. Keys are unlike even where letter case is not
    told apart, and nobody can take another's by the choice of a name.

    Raises:
        CourseError: there is no such folder, or nothing in it.
    """
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
    keys: set[str] = set()
    students: set[str] = set()
    stems = [entry.stem if entry.is_file() else entry.name for entry in entries]
    for entry, stem in zip(entries, stems, strict=True):
        name = stem if stems.count(stem) == 1 else entry.name
        key = _key(name, keys)
        keys.add(key.casefold())
        student = _shown(name)
        if student in students:
            student = f"{student} ({key})"
        students.add(student)
        named[entry] = student, key
    return named


def _key(name: str, taken: set[str]) -> str:
    """A name made fit for a file; with a hash behind it where that loses something.

    A name that itself ends in such a hash gets one, too, so that nobody can take another's key.
    """
    key = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", name)).lstrip("-")[:40]
    if key != name or key.casefold() in taken or re.search(r"-[0-9a-f]{8}$", key):
        key += "-" + hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    if key.casefold() in taken:
        key += f"-{len(taken)}"
    return key


def digest(entry: Path) -> str:
    """A hash of all that one submission holds, as far as it is read; "" where it cannot be."""
    whole = hashlib.sha256()
    room = 2 * MOST
    try:
        for path in [] if entry.is_symlink() else paths(entry):
            with path.open("rb") as file:
                data = file.read(max(0, min(LARGEST, room)))
            room -= len(data)
            whole.update(f"{path.stat().st_size} ".encode())
            whole.update(hashlib.sha256(os.fsencode(path.name) + data).digest())
    except (OSError, RecursionError):
        return ""
    return whole.hexdigest()


def read(entry: Path, student: str, key: str, assignment: Assignment) -> Submission:
    """Read one submission.

    Never raises: whatever is wrong becomes its status, with the reason in its notes.
    """
    submission = Submission(student, key)
    try:
        _read(submission, list(_files(entry)), assignment)
    except Exception as error:  # noqa: BLE001  anything at all may be in there
        submission.status = "cannot be read"
        submission.cells = []
        submission.notes.append(_reason(error))
    return submission


class _File(NamedTuple):
    """One file of a submission; `path` is from the top of its folder or zip file."""

    name: str
    path: PurePosixPath
    data: bytes
    status: str = ""  # why it could not be read
    why: str = ""


class _Parsed(NamedTuple):
    """A file read as a notebook: why it cannot be graded, or "", and notes."""

    cells: list[SubmittedCell]
    status: str = ""
    notes: Sequence[str] = ()


def _read(submission: Submission, files: list[_File], assignment: Assignment) -> None:
    """Fill a submission from the best of its notebooks."""
    if len(files) > MOST_FILES:
        files = files[:MOST_FILES]
        submission.notes.append(f"only the first {MOST_FILES} files were looked at")
    notebooks = _notebooks(submission, files)
    if not notebooks:
        submission.status = "no notebook"
        submission.notes.append(f"found: {listed([file.name for file in files]) or 'nothing'}")
        return
    tried = [(file, _parse(file, assignment)) for file in notebooks]
    can_be_graded = [row for row in tried if not row[1].status]
    with_cells = [row for row in tried if row[1].cells]
    # an editor's copy stands beside it as "hw1-Copy1.ipynb"
    best = sorted(
        can_be_graded or with_cells or tried,
        key=lambda row: row[0].name.lower() != f"{assignment.name}.ipynb",
    )
    file, parsed = best[0]
    submission.cells = parsed.cells
    submission.status = parsed.status
    submission.notes += parsed.notes
    if len(notebooks) > 1:
        submission.notes.append(f"{len(notebooks)} notebooks were handed in; this is {file.name}")
    _give_files(submission, [other for other in files if other is not file], file, assignment)


def _give_files(
    submission: Submission, others: list[_File], notebook: _File, assignment: Assignment
) -> None:
    """Put what lies beside the notebook where its cells look for it, and say so."""
    left_out = []
    for file in others:
        path = file.path
        if path.is_relative_to(notebook.path.parent):
            path = path.relative_to(notebook.path.parent)
        if file.name == f"{assignment.name}_checks.json":  # the course's own counts
            continue
        if not file.status and FILE.fullmatch(str(path)) and len(file.data) <= LARGEST_FILE:
            submission.files[str(path)] = file.data
        else:
            left_out.append(file.name)
    for what, names in (
        ("files beside the notebook, which its cells can read", list(submission.files)),
        ("files that its cells cannot read", left_out),
    ):
        if names:
            submission.notes.append(f"{what}: {listed(names)}")


def _notebooks(submission: Submission, files: list[_File]) -> list[_File]:
    """The files that are notebooks, by their name or else by what is in them.

    Where there is none, those that could not be read: one of them may be one.
    """
    by_name = [file for file in files if file.name.lower().endswith(".ipynb")]
    if by_name:
        return by_name
    by_content = [file for file in files if _looks_like_a_notebook(file.data)]
    if by_content:
        submission.notes.append(f"the file is called {by_content[0].name}, not .ipynb")
        return by_content
    return [file for file in files if file.status]


def _looks_like_a_notebook(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{" and b'"cells"' in data


def _files(entry: Path) -> Iterator[_File]:
    """The files of one entry, zip files opened. No link is followed."""
    if entry.is_symlink():
        raise OSError("it is a link, which is not followed")
    room = MOST
    # One more than is looked at, so that `_read` can say that there are more.
    for path, opened in islice(_openers(entry), MOST_FILES + 1):
        name = path.name
        most = max(0, min(LARGEST, room))
        try:
            with opened() as file:
                data = file.read(most + 1)  # whatever size an archive claims
        except Exception as error:  # noqa: BLE001  a damaged archive may raise anything
            yield _File(_shown(name), path, b"", "cannot be read", _reason(error))
            continue
        room -= len(data)
        if len(data) <= most:
            yield _File(_shown(name), path, data)
        else:
            why = (
                f"{_shown(name)} is larger than {LARGEST / 2**20:g} MB, or all together than"
                f" {MOST / 2**20:g} MB"
            )
            yield _File(_shown(name), path, b"", "too large", why)


def _openers(entry: Path) -> Iterator[tuple[PurePosixPath, Callable[[], Any]]]:
    """The path of each file, also of those in zip files, and what opens it."""
    for path in paths(entry):
        place = PurePosixPath(path.name)
        if not entry.is_file():
            place = PurePosixPath(path.relative_to(entry).as_posix())
        if path.suffix.lower() != ".zip":
            yield place, partial(path.open, "rb")
            continue
        try:
            archive = zipfile.ZipFile(path)
        except Exception:  # noqa: BLE001  said when it is tried again, beside what else there is
            yield place, partial(zipfile.ZipFile, path)
            continue
        with archive:
            for info in sorted(archive.infolist(), key=_notebooks_first):
                inside = PurePosixPath(info.filename)
                hidden = any(part.startswith((".", "__MACOSX")) for part in inside.parts)
                if not info.is_dir() and not hidden:
                    yield inside, partial(archive.open, info)


def _notebooks_first(info: zipfile.ZipInfo) -> bool:
    return not info.filename.lower().endswith(".ipynb")


def paths(entry: Path) -> list[Path]:
    """The files of one entry, notebooks first; no link is followed.

    There is at most one more than is looked at.
    """
    if entry.is_file():
        return [entry]
    inside = sorted(islice(_inside(entry), 20 * MOST_FILES))
    return sorted(inside, key=lambda path: path.suffix.lower() != ".ipynb")[: MOST_FILES + 1]


def _inside(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink() or path.name.startswith((".", "__MACOSX")):
            continue
        if path.is_dir():
            yield from _inside(path)
        elif path.is_file():
            yield path


def _parse(file: _File, assignment: Assignment) -> _Parsed:
    """Read a file as a notebook."""
    if file.status:
        return _Parsed([], file.status, [file.why])
    if not file.data.strip():
        return _Parsed([], "empty file", ["there is nothing in it"])
    try:
        notebook = json.loads(file.data)
        sheets = [notebook] if "cells" in notebook else notebook["worksheets"]  # before format 4
        cells = [_cell(cell) for sheet in sheets for cell in sheet["cells"]]
        metadata = notebook.get("metadata")
    except (KeyError, TypeError, AttributeError):
        return _Parsed([], "not a notebook", ["it is JSON, but not laid out as a notebook"])
    except Exception as error:  # noqa: BLE001  anything at all may be in there
        return _Parsed([], "not a notebook", [_reason(error)])
    status, notes = _belongs(metadata, cells, assignment)
    return _Parsed(cells, status, notes)


def _cell(cell: Any) -> SubmittedCell:
    source = cell.get("source", cell.get("input", ""))  # input: before format 4
    if not isinstance(source, str):
        source = "".join(str(line) for line in source)
    kind = cell.get("cell_type")
    found: list[str] = []
    if kind != "code":
        source, found = pictures.taken_out(source)
        found += pictures.attached(cell)
    return SubmittedCell(
        kind if kind in KINDS else "raw",
        _text(source[: LONGEST + 1]),
        _text(grade_id(cell)),
        tuple(found),
        _saved(cell),
    )


def _saved(cell: dict[str, Any]) -> str | None:
    """What stands below a cell as text; None where it has not run, or raised an error."""
    outputs = cell.get("outputs")
    if type(cell.get("execution_count")) is not int or not isinstance(outputs, list):
        return None
    text = ""
    for output in outputs:
        if not isinstance(output, dict) or output.get("output_type") == "error":
            return None
        part = output.get("text", "")
        lines = part if isinstance(part, list) else [part]
        text += "".join(str(line)[:SAVED] for line in lines[:SAVED])
    return text[:SAVED]


def _belongs(
    metadata: Any, cells: list[SubmittedCell], assignment: Assignment
) -> tuple[str, list[str]]:
    """The status "another assignment", or ""; notes."""
    notes = []
    kernel, info = _entry(metadata, "kernelspec"), _entry(metadata, "language_info")
    language = str(kernel.get("language") or info.get("name") or "python")
    if "python" not in language.lower():
        notes.append(f'written for "{_shown(language)}", not for Python')
    name = _entry(metadata, KEY).get("assignment")
    if name == assignment.name:
        return "", notes
    if isinstance(name, str):
        return "another assignment", [*notes, f'it says that it is "{_shown(name)}"']
    if _has_a_cell_of(assignment, cells):  # the notebook lost its metadata
        return "", notes
    return "another assignment", [*notes, f"no cell of {assignment.name} is in it"]


def _entry(metadata: Any, name: str) -> dict[str, Any]:
    """One entry of a notebook's metadata, whatever that is."""
    entry = metadata.get(name) if isinstance(metadata, dict) else None
    return entry if isinstance(entry, dict) else {}


def _has_a_cell_of(assignment: Assignment, cells: list[SubmittedCell]) -> bool:
    """Whether a cell has a name of the assignment's, or defines one of its functions."""
    ids = {*assignment.tests, *assignment.written}
    functions = "|".join(assignment.tasks)
    defines = re.compile(rf"^[ \t]*(def +)?({functions})\b *(\(|=)", re.MULTILINE)
    for cell in cells:
        if cell.id in ids or (cell.kind == "code" and defines.search(cell.source)):
            return True
    return False


def _text(text: str) -> str:
    """Text that can be written as UTF-8: halves of a character are joined or replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shown(name: str) -> str:
    """A file's name on one line, also where its bytes are of another system's encoding."""
    name = FOREIGN.sub(lambda match: os.fsencode(match[0]).decode("cp1252", "replace"), name)
    return " ".join(clean(" ".join(name.split()))[:100].split())


def _reason(error: Exception) -> str:
    """Why a file could not be read, in the teacher's words where the error is a usual one."""
    for kind, meaning in MEANINGS:
        if isinstance(error, kind):
            return meaning
    return f"{type(error).__name__}: {' '.join(clean(str(error)[:200]).split())}"
