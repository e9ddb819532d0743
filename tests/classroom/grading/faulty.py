"""Everything that students (and their machines) do to a notebook, each as a change of a solved one.

Most are data (own_cells.json). A maker gets (notebook, place): it changes the notebook and returns
None, or writes whatever it likes at `place` and returns something. `Expect` says what grading must
make of it."""

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from classroom.grading.assignment import ANSWER
from course_lib.files import COURSE

FULL = {"q1": 24, "q2": 16, "q3": 10, "q4": 16, "q5": 12, "q6": 12}


@dataclass(frozen=True)
class Expect:
    """status; points where they are not full; words that must stand in the notes, and in the
    feedback page.
    """

    status: str = "graded"
    lost: tuple[tuple[str, float], ...] = ()
    notes: str = ""
    shows: str = ""
    boxed: bool = False  # only where there is a box: it would harm this machine


Maker = Callable[[NotebookNode, Path], Any]
KINDS: dict[str, tuple[Maker, Expect]] = {}


def kind(expect: Expect = Expect(), name: str = "") -> Callable[[Maker], Maker]:
    """Register a maker under its function's name."""

    def register(maker: Maker) -> Maker:
        KINDS[name or maker.__name__] = maker, expect
        return maker

    return register


def cell(notebook: NotebookNode, source: str, before: str = "q2-hints", **metadata: Any) -> None:
    """A code cell of the student's own, before the one of this id (or grade_id); "": at the end."""
    ids = [(c.id, c.metadata.get("nbgrader", {}).get("grade_id")) for c in notebook.cells]
    where = next((i for i, names in enumerate(ids) if before in names), len(ids))
    notebook.cells.insert(where, new_code_cell(source, metadata=metadata))


def named(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


def function(notebook: NotebookNode, grade_id: str, body: str) -> None:
    """Another body for one of the answers."""
    answer = named(notebook, grade_id)
    answer.source = (
        answer.source[: answer.source.index('"""') - 4] + "    " + body.replace("\n", "\n    ")
    )


def hands_in(name: str, expect: Expect, data: bytes, file: str = "") -> None:
    """A kind that is another file: beside the others, with this suffix, or in a folder of the
    student's own.
    """

    def write(notebook: NotebookNode, place: Path) -> bool:
        path = (
            place.with_suffix(file or ".ipynb")
            if file.startswith(".") or not file
            else place / file
        )
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return True

    kind(expect, name)(write)


def from_data(
    name: str, cells: list[dict[str, Any]], answers: dict[str, list[str]], **expect: Any
) -> None:
    def change(notebook: NotebookNode, place: Path) -> None:
        for own in cells:
            cell(
                notebook,
                "\n".join(own["source"]) * own.get("times", 1),
                own.get("before", "q2-hints"),
                **own.get("metadata", {}),
            )
        for answer, body in answers.items():
            function(notebook, answer, "\n".join(body))

    kind(Expect(**expect), name)(change)


for each in json.loads((Path(__file__).parent / "own_cells.json").read_text("utf-8")):
    each["lost"] = tuple(each.pop("lost", {}).items())
    cells = [{"source": each.pop("cell")}] if "cell" in each else each.pop("cells", [])
    if "raw" in each:
        hands_in(
            each.pop("name"),
            data=each.pop("raw").encode("latin-1"),
            file=each.pop("file", ""),
            expect=Expect(**each),
        )
    else:
        from_data(cells=cells, answers=each.pop("answers", {}), **each)


@kind(Expect(boxed=True))
def writes_to_other_submissions(notebook: NotebookNode, place: Path) -> None:
    cell(
        notebook,
        f"import os\nfor root, _, names in os.walk({str(place.parent)!r}):\n"
        "    for name in names:\n        open(os.path.join(root, name), 'w').write('mine')",
    )


@kind(Expect(notes="shown is what was written into other cells"))
def answer_in_a_new_cell(notebook: NotebookNode, place: Path) -> None:
    answer = named(notebook, "q7-written")
    notebook.cells.append(new_markdown_cell(answer.source))
    answer.source = ANSWER


# The notebook is not as it was given out.
def changed(name: str, expect: Expect, change: Callable[[NotebookNode], Any]) -> None:
    kind(expect, name)(lambda notebook, place: change(notebook) and None)


def has_points(one: NotebookNode) -> bool:
    return "points" in one.metadata.get("nbgrader", {}) and "written" not in one.id


changed(
    "another_kernel",
    Expect(notes='written for "R"'),
    lambda n: n.metadata.update(kernelspec={"language": "R"}),
)
changed(
    "another_assignment",
    Expect("another assignment"),
    lambda n: n.metadata.course_homework.update(assignment="2"),
)
changed(
    "deleted_tests",
    Expect(notes="missing (put back): q1-make_mask-visible"),
    lambda n: n.update(cells=[c for c in n.cells if not has_points(c)]),
)
changed(
    "missing_imports",
    Expect(notes="missing (put back): setup"),
    lambda n: n.update(cells=[c for c in n.cells if c.id != "setup"]),
)
changed(
    "duplicated_cells",
    Expect(notes="there twice (they count once): setup, q1-make_mask-visible"),
    lambda n: n.update(cells=[c for each in n.cells for c in (each, each.copy())]),
)
changed(
    "syntax_error_in_an_answer",
    Expect(lost=(("q3", 10),), shows="SyntaxError"),
    lambda n: named(n, "q3-sinusoidal").update(source="def sinusoidal(:\n    return ("),
)


@kind()
def renamed_cells(notebook: NotebookNode, place: Path) -> None:
    for number, each in enumerate(notebook.cells):
        if "nbgrader" in each.metadata and "written" not in each.id:
            each.metadata["nbgrader"]["grade_id"] = f"cell-{number}"


@kind()
def no_metadata_at_all(notebook: NotebookNode, place: Path) -> None:
    notebook.metadata = {}
    for each in notebook.cells:
        if "written" not in each.id:
            each.metadata = {}


# The file is not what was asked for.
def stored(notebook: NotebookNode, path: Path, version: int = 4) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook, version=version), "utf-8")
    return True


hands_in("too_large", Expect("too large"), bytes(21 * 2**20))
hands_in(
    "a_lesson",
    Expect("another assignment"),
    (COURSE / "notebooks" / "00_start_here.ipynb").read_bytes(),
)


def packed(
    content: bytes, method: int = zipfile.ZIP_DEFLATED, *names: str, spoil: int = 0, cut: int = 0
) -> bytes:
    """A zip file of notebooks; `spoil`: from here on some bytes are changed; `cut`: so many in
    front are lost.
    """
    file = BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in names or ["hw1.ipynb"]:
            archive.writestr(name, content)
    raw = file.getvalue()
    return (
        raw[cut:spoil] + bytes(byte ^ 90 for byte in raw[spoil : spoil + 100]) + raw[spoil + 100 :]
        if spoil
        else raw[cut:]
    )


NOISE = os.urandom(3000)
hands_in("damaged_zip", Expect("cannot be read"), packed(NOISE + b" " * 3000, spoil=60), ".zip")
hands_in(
    "damaged_lzma", Expect("cannot be read"), packed(NOISE, zipfile.ZIP_LZMA, spoil=60), ".zip"
)
hands_in(
    "damaged_bzip2", Expect("cannot be read"), packed(NOISE, zipfile.ZIP_BZIP2, spoil=60), ".zip"
)
hands_in(
    "encrypted_zip",
    Expect("cannot be read", notes="encrypted"),
    packed(b"{}").replace(b"\x14\0\0\0\x08", b"\x14\0\1\0\x08"),
    ".zip",
)
hands_in("cut_zip", Expect("cannot be read"), packed(NOISE, cut=2000), ".zip")
hands_in("zip_bomb", Expect("too large"), packed(b" " * 60_000_000), ".zip")
hands_in(
    "many_zip_bombs",
    Expect("empty file", notes="40 notebooks"),
    packed(b" " * 15_000_000, 8, *(f"{i}.ipynb" for i in range(40))),
    ".zip",
)
hands_in("wide_json", Expect("another assignment"), b'{"cells": [' + b"{}," * 900_000 + b"{}]}")


kind(Expect("no notebook"), "a_link_in_a_folder")(
    lambda notebook, place: (
        place.mkdir(),
        (place / "hw1.ipynb").symlink_to(COURSE / "notebooks/homework/hw1.ipynb"),
    )
)
kind(Expect("no notebook"), "empty_folder")(lambda notebook, place: place.mkdir() or True)
kind(Expect("cannot be read"), "a_link")(
    lambda notebook, place: place.symlink_to("/etc/passwd") or True
)
kind(Expect(notes="not .ipynb"), "wrong_extension")(
    lambda notebook, place: stored(notebook, place / "1.ipynb.json")
)
kind(name="old_format")(
    lambda notebook, place: stored(nbformat.convert(notebook, 3), place.with_suffix(".ipynb"), 3)
)


@kind(Expect(notes="2 notebooks"))
def two_notebooks(notebook: NotebookNode, place: Path) -> bool:
    another = json.loads(nbformat.writes(notebook))
    another["metadata"]["course_homework"]["assignment"] = "hw2"
    stored(notebook, place / "work" / "zz.ipynb")
    (place / "aa.ipynb").write_text(json.dumps(another), "utf-8")
    return True


kind(name="zipped")(
    lambda notebook, place: place.with_suffix(".zip").write_bytes(
        packed(nbformat.writes(notebook).encode(), 8, "__MACOSX/hw1/._hw1.ipynb", "hw1/hw1.ipynb")
    )
)


def called(name: str, file: str = "") -> None:
    """As it should be, whatever it is called."""
    kind(name=name)(
        lambda notebook, place: stored(notebook, place.with_name(file or f"{name}.ipynb"))
    )


for name in (
    "a_good_one",
    "Zoë Åström 王小明 (🎓) =1+2",
    "a_very_long_" * 8,
    "x\\..\\..\\etc\\passwd",
):
    called(name)
called("Müller", os.fsdecode(b"M\xfcller.ipynb"))
called("of two lines and red", "of two\nlines\x1b[31m and red.ipynb")
