"""Find the submissions in a folder, read them whatever they are called and packed in, and put their cells right."""

import hashlib
import json
import re
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import nbformat

from classroom.grading.assignment import ANSWER, KEY, Assignment, grade_id
from course_lib.errors import CourseError

LARGEST = 20 * 2**20  # bytes of a notebook
MOST_FILES = 500  # that are looked at in one submission
GradingRecord = dict[str, Any]  # all about one submission, as JSON: see `score.unread`
KINDS = ("markdown", "code", "raw")


class SubmittedCell(NamedTuple):
    """One cell as handed in: kind, source and nbgrader's name. Outputs are not read; cells are run again."""

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
    digest: str = ""  # of the file


def collect(folder: Path) -> dict[Path, tuple[str, str]]:
    """One entry a student (a folder, a notebook or a zip file) with the student's name and key; keys are unlike even
    where letter case is not told apart."""
    if not folder.is_dir():
        raise CourseError(f"{folder} is not a folder; give the one that holds a file or a folder for each student.")
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith((".", "__MACOSX")))
    if not entries:
        raise CourseError(f"There is nothing in {folder}; put a file or a folder for each student there.")
    named: dict[Path, tuple[str, str]] = {}
    used: set[str] = set()
    stems = [entry.stem if entry.is_file() else entry.name for entry in entries]
    for entry, stem in zip(entries, stems, strict=True):
        student = stem if stems.count(stem) == 1 else entry.name
        key = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", student)).lstrip("-")[:40]
        if key != student or key.casefold() in used:
            key += "-" + hashlib.sha256(entry.name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        used.add(key.casefold())
        named[entry] = _text(student), key
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
        notebooks = [(name, data) for name, data in files if data and data.lstrip()[:1] == b"{" and b'"cells"' in data]
        made.notes += [f"the file is called {_name(name)}, not .ipynb" for name, _ in notebooks[:1]]
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


def _parse(data: bytes | None, assignment: Assignment) -> tuple[list[SubmittedCell], str]:
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


def _cell(cell: Any) -> SubmittedCell:
    source, kind = cell.get("source", ""), cell.get("cell_type")
    text = source if isinstance(source, str) else "".join(str(line) for line in source)
    return SubmittedCell(kind if kind in KINDS else "raw", _text(text), grade_id(cell))


def _belongs(metadata: Any, cells: list[SubmittedCell], assignment: Assignment) -> bool:
    said = metadata.get(KEY) if isinstance(metadata, dict) else None
    if isinstance(said, dict) and isinstance(said.get("assignment"), str):
        return bool(said["assignment"] == assignment.name)
    ids = {*assignment.tests, *assignment.written}
    defines = re.compile(rf"^\s*(def +)?({'|'.join(assignment.tasks)})\b *(\(|=)", re.MULTILINE)
    return any(cell.id in ids or (cell.kind == "code" and defines.search(cell.source)) for cell in cells)


def _name(name: str) -> str:
    text = json.dumps(name, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + '..."'


def _text(text: str) -> str:
    """Text that can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()


class GradingStep(NamedTuple):
    """What to do with one cell: show its text, run its code, or (after running it) test a function of it."""

    do: Literal["text", "run", "skip", "test"]
    source: str
    id: str = ""


def repair(cells: list[SubmittedCell], assignment: Assignment) -> tuple[list[GradingStep], list[str]]:
    """The steps of grading, and what had to be mended, for the notes.

    A student's own code stays where it stands and runs, whatever its cell is called. Cells of the course's (set-up and
    tests) are taken from the master; missing ones are put back: the set-up first, tests at the end.
    """
    demos = {cell.source for cell in assignment.release.cells if "demo" in cell.metadata.get("tags", [])}
    by_source = {cell.source.strip(): name for name, cell in assignment.locked.items()}
    steps: list[GradingStep] = []
    seen: set[str] = set()
    changed: list[str] = []
    twice: list[str] = []
    for cell in cells:
        name = cell.id if cell.id in assignment.locked else by_source.get(cell.source.strip(), "")
        if cell.kind != "code":
            steps.append(GradingStep("text", cell.source, cell.id))
        elif name:
            if cell.source.strip() != assignment.locked[name].source.strip():
                changed.append(name)
                steps.append(GradingStep("run", cell.source))  # a copied cell keeps its name; its code may be needed
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
    return steps, [f"course cells {what}: {', '.join(names)}" for what, names in said.items() if names]


def _course_step(name: str, assignment: Assignment) -> GradingStep:
    return GradingStep("test" if name in assignment.tests else "run", assignment.locked[name].source, name)


def written(cells: list[SubmittedCell], assignment: Assignment) -> dict[str, str]:
    """The answers that a person marks; "" where there is none."""
    texts: dict[str, str] = {}
    for name in assignment.written:
        found = [cell.source.strip() for cell in cells if cell.id == name]
        texts[name] = "\n\n".join(dict.fromkeys(text for text in found if text and text != ANSWER))
    return texts
