"""Find the submissions in a folder and read them, whatever they are called and packed in."""

import hashlib
import json
import re
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from course_lib.errors import CourseError
from course_lib.grade.assignment import KEY, Assignment, grade_id

LARGEST = 20 * 2**20  # bytes of a notebook
MOST_FILES = 500  # that are looked at in one submission
KINDS = ("markdown", "code", "raw")


@dataclass(frozen=True)
class Cell:
    """One cell as handed in: kind, source and nbgrader's name. Outputs are not read; cells are run again."""

    kind: str
    source: str
    id: str


@dataclass
class Submission:
    """What one student handed in.

    Args:
        student: the name of the file or folder. key: the same, fit for a file's name. status: "" where there is a
            notebook to grade, else why not. cells: the notebook's. notes: what was unusual. digest: of the file.
    """

    student: str
    key: str
    status: str = ""
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    digest: str = ""


def collect(folder: Path) -> list[Path]:
    """One entry a student: a folder, a notebook or a zip file.

    Raises:
        CourseError: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise CourseError(f"{folder} is not a folder; give the one that holds a file or a folder for each student.")
    found = sorted(p for p in folder.iterdir() if not p.name.startswith((".", "__MACOSX")))
    if not found:
        raise CourseError(f"There is nothing in {folder}; put a file or a folder for each student there.")
    return found


def keys(entries: list[Path]) -> dict[Path, tuple[str, str]]:
    """(student, key) of each entry; keys are unlike even where letter case is not told apart."""
    named: dict[Path, tuple[str, str]] = {}
    used: set[str] = set()
    stems = [entry.stem if entry.is_file() else entry.name for entry in entries]
    for entry, stem in zip(entries, stems, strict=True):
        student = stem if stems.count(stem) == 1 else entry.name
        key = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", student)).lstrip("-")[:40]
        if key != student or key.casefold() in used:
            key += "-" + hashlib.sha256(entry.name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        used.add(key.casefold())
        named[entry] = student.encode("utf-8", "replace").decode(), key
    return named


def read(entry: Path, student: str, key: str, assignment: Assignment) -> Submission:
    """Read one submission. Never raises: whatever is wrong becomes its status."""
    made = Submission(student, key)
    try:
        files = list(_files(entry))
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError) as error:
        made.status = "cannot be read"
        made.notes.append(str(error))
        return made
    notebooks = [(name, data) for name, data in files if name.lower().endswith(".ipynb")]
    if not notebooks:
        notebooks = [(name, data) for name, data in files if data is not None and _looks_like_one(data)]
        if notebooks:
            made.notes.append(f"the file is called {_name(notebooks[0][0])}, not .ipynb")
    if not notebooks:
        made.status = "no notebook"
        made.notes.append("found: " + (", ".join(_name(name) for name, _ in files[:5]) or "nothing"))
        return made
    tried = [(name, *_parse(data, assignment), data) for name, data in notebooks]
    good = [row for row in tried if not row[2]] or [row for row in tried if row[1]] or tried
    name, made.cells, made.status, data = good[0]
    made.digest = hashlib.sha256(data or b"").hexdigest()
    if len(notebooks) > 1:
        made.notes.append(f"{len(notebooks)} notebooks were handed in; this is {_name(name)}")
    return made


def _files(entry: Path) -> Iterator[tuple[str, bytes | None]]:
    """(name, content) of the files of one entry, zip files opened; None where one is too large. No link is followed."""
    if entry.is_symlink():
        raise OSError("it is a link, which is not followed")
    paths = [entry] if entry.is_file() else sorted(_inside(entry))[:MOST_FILES]
    for path in paths:
        if path.suffix.lower() == ".zip":
            yield from _zipped(path)
        else:
            yield path.name, path.read_bytes() if path.stat().st_size <= LARGEST else None


def _inside(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink() or path.name.startswith((".", "__MACOSX")):
            continue
        if path.is_dir():
            yield from _inside(path)
        elif path.is_file():
            yield path


def _zipped(path: Path) -> Iterator[tuple[str, bytes | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist()[:MOST_FILES]:
            name = Path(info.filename).name
            if info.is_dir() or name.startswith(".") or info.filename.startswith("__MACOSX"):
                continue
            with archive.open(info) as file:
                data = file.read(LARGEST + 1)  # whatever size the archive claims
            yield name, data if len(data) <= LARGEST else None


def _looks_like_one(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{" and b'"cells"' in data


def _parse(data: bytes | None, assignment: Assignment) -> tuple[list[Cell], str]:
    """The cells of a notebook, and why it cannot be graded, or ""."""
    if data is None:
        return [], "too large"
    if not data.strip():
        return [], "empty file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            notebook = nbformat.reads(data.decode("utf-8-sig"), as_version=4)
        cells = [_cell(cell) for cell in notebook["cells"]]
    except Exception:  # noqa: BLE001  anything at all may be in there
        return [], "not a notebook"
    return cells, "" if _belongs(notebook.get("metadata"), cells, assignment) else "another assignment"


def _cell(cell: Any) -> Cell:
    source = cell.get("source", "")
    text = source if isinstance(source, str) else "".join(str(line) for line in source)
    kind = cell.get("cell_type")
    return Cell(kind if kind in KINDS else "raw", text.encode("utf-8", "replace").decode(), grade_id(cell))


def _belongs(metadata: Any, cells: list[Cell], assignment: Assignment) -> bool:
    said = metadata.get(KEY) if isinstance(metadata, dict) else None
    if isinstance(said, dict) and isinstance(said.get("assignment"), str):
        return bool(said["assignment"] == assignment.name)
    ids = {*assignment.tests, *assignment.written}
    defines = re.compile(rf"^\s*(def +)?({'|'.join(assignment.tasks)})\b *(\(|=)", re.MULTILINE)
    return any(cell.id in ids or (cell.kind == "code" and defines.search(cell.source)) for cell in cells)


def _name(name: str) -> str:
    text = json.dumps(name, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + '..."'
