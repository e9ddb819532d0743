"""Everything that students (and their machines) do to a notebook, each as a change of a solved one.

A maker gets (notebook, place, name): it changes the notebook and returns None, or writes whatever it likes at `place`
and returns True. `Expect` says what grading must make of it.
"""

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course_lib.files import COURSE

FULL = {"q1": 24, "q2": 16, "q3": 10, "q4": 16, "q5": 12, "q6": 12}


@dataclass(frozen=True)
class Expect:
    """status; points where they are not full; words that must stand in the notes, and in the feedback page."""

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


def cell(notebook: NotebookNode, source: str, place: int = -1) -> None:
    """A code cell of the student's own; by default in the middle, behind question 2."""
    where = place if place >= 0 else next(i for i, c in enumerate(notebook.cells) if c.id == "q2-hints")
    notebook.cells.insert(where, new_code_cell(source))


def named(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    return next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def function(notebook: NotebookNode, grade_id: str, body: str) -> None:
    """Another body for one of the answers."""
    answer = named(notebook, grade_id)
    answer.source = answer.source[: answer.source.index('"""') - 4] + "    " + body.replace("\n", "\n    ")


def adds(source: str, expect: Expect = Expect(), name: str = "") -> None:
    """A kind that only adds one cell."""
    kind(expect, name)(lambda notebook, place: cell(notebook, source))


def answers(name: str, expect: Expect, **bodies: str) -> None:
    """A kind that only answers otherwise: question and function (q5_rotate) -> body."""

    def change(notebook: NotebookNode, place: Path) -> None:
        for answer, body in bodies.items():
            function(notebook, answer.replace("_", "-", 1), body)

    kind(expect, name)(change)


def hands_in(name: str, expect: Expect, data: bytes, file: str = "") -> None:
    """A kind that is another file: beside the others, with this suffix, or in a folder of the student's own."""

    def write(notebook: NotebookNode, place: Path) -> bool:
        path = place.with_suffix(file or ".ipynb") if file.startswith(".") or not file else place / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return True

    kind(expect, name)(write)


# It adds a cell that ends badly or never, takes more than its share, or meddles.
for own in json.loads((Path(__file__).parent / "own_cells.json").read_text("utf-8")):
    adds("\n".join(own.pop("cell")), name=own.pop("name"), expect=Expect(**own))


@kind(Expect(boxed=True))
def writes_to_other_submissions(notebook: NotebookNode, place: Path) -> None:
    cell(notebook, f"import os\nfor root, _, names in os.walk({str(place.parent)!r}):\n"
         "    for name in names:\n        open(os.path.join(root, name), 'w').write('mine')")  # fmt: skip


# It cheats.


@kind(Expect(lost=(("q1", 14), ("q3", 10))))
def patches_the_comparison(notebook: NotebookNode, place: Path) -> None:
    cell(notebook, "import torch, classroom.checks.base as base, classroom.checks.homework as hwk\n"
         "torch.allclose = torch.equal = lambda *a, **k: True\nbase.close = hwk.close = lambda *a, **k: True\n"
         "hwk.compare = lambda *a, **k: None\nhwk.Sheet.accepts = lambda *a: True", 3)  # fmt: skip
    function(notebook, "q1-attention", "return q, k")
    function(notebook, "q3-sinusoidal", "return positions")


@kind(Expect(lost=(("q3", 10),)))
def patches_torch(notebook: NotebookNode, place: Path) -> None:
    cell(notebook, "import torch\nclass Yes:\n    def __eq__(self, other): return True\n"
         "    shape = property(lambda self: Yes())\n    def __getattr__(self, name): return lambda *a, **k: Yes()\n"
         "torch.Tensor.__eq__ = lambda a, b: True\ntorch.Tensor.item = lambda self: 0", 3)  # fmt: skip
    function(notebook, "q3-sinusoidal", "return Yes()")
    # The other answers do not need what was patched, except the experiment, which calls item().
    answer = named(notebook, "q6-order_change")
    answer.source = answer.source.replace(".item()", "")


@kind(Expect(lost=(("q5", 12),)))
def hard_coded_results(notebook: NotebookNode, place: Path) -> None:
    cell(notebook, "import json\nSHOWN = json.load(open('hw1_checks.json'))['rotate']", 5)
    function(notebook, "q5-rotate", "for case, right in zip(SHOWN['cases'], SHOWN['right']):\n"
             "    if case['x']['shape'] == list(x.shape):\n"
             "        return torch.tensor(right['data']).reshape(right['shape'])\nreturn x")  # fmt: skip


@kind(Expect(lost=(("q3", 10),)))
def rewrites_the_tests(notebook: NotebookNode, place: Path) -> None:
    function(notebook, "q3-sinusoidal", "return None")
    for name in ("q3-sinusoidal-visible", "q3-sinusoidal-hidden"):
        named(notebook, name).source = "print('all right, full points')"


# A function ends badly.
LOST5, LOST3 = (("q5", 12),), (("q3", 10),)
answers("endless_function", Expect(lost=LOST5, shows="ran past its time"), q5_rotate="while True:\n    pass")
answers("deadly_function", Expect(lost=LOST3, shows="ended Python itself"), q3_sinusoidal="import os\nos._exit(1)")
answers(
    "odd_results",
    Expect(lost=(*LOST3, *LOST5, ("q6", 12))),
    q3_sinusoidal="return torch.zeros(8000, 8000)",
    q5_rotate="return torch.randn(3).to_sparse()",
    q6_order_change="raise SystemExit(0)",
)


@kind(Expect(lost=(("q3", 10),), shows="SyntaxError"))
def syntax_error_in_an_answer(notebook: NotebookNode, place: Path) -> None:
    named(notebook, "q3-sinusoidal").source += "\n    return ("


# The notebook is not as it was given out.
@kind(Expect(notes="missing (put back): q1-make_mask-visible"))
def deleted_tests(notebook: NotebookNode, place: Path) -> None:
    notebook.cells = [c for c in notebook.cells if "points" not in c.metadata.get("nbgrader", {}) or "written" in c.id]


@kind(Expect(notes="missing (put back): setup"))
def missing_imports(notebook: NotebookNode, place: Path) -> None:
    notebook.cells = [c for c in notebook.cells if c.id != "setup"]


@kind(Expect(notes="there twice (they count once): setup, q1-make_mask-visible"))
def duplicated_cells(notebook: NotebookNode, place: Path) -> None:
    notebook.cells = [c for each in notebook.cells for c in (each, each.copy())]


@kind()
def renamed_cells(notebook: NotebookNode, place: Path) -> None:
    for number, each in enumerate(notebook.cells):
        if "nbgrader" in each.metadata and "written" not in each.id:
            each.metadata["nbgrader"]["grade_id"] = f"cell-{number}"


@kind(Expect(notes="changed (the originals count): q3-sinusoidal-visible"))
def copied_cell_ids(notebook: NotebookNode, place: Path) -> None:
    """A test cell was copied, and a helper that the answer needs was written over it."""
    helper = named(notebook, "q3-sinusoidal-visible").copy()
    helper.source = "def my_angles(p, w, b):\n    return p[:, None] * b ** (-torch.arange(0, w, 2) / w)"
    notebook.cells.insert(3, helper)
    function(notebook, "q3-sinusoidal", "angles = my_angles(positions, width, base)\n"
             "return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)")  # fmt: skip


@kind()
def no_metadata_at_all(notebook: NotebookNode, place: Path) -> None:
    notebook.metadata = {}
    for each in notebook.cells:
        if "written" not in each.id:
            each.metadata = {}


@kind()
def answers_at_the_end(notebook: NotebookNode, place: Path) -> None:
    """The stubs stand where they stood; the work was done below."""
    for name in ("q3-sinusoidal", "q5-rotate"):
        source = named(notebook, name).source
        notebook.cells.append(new_code_cell(source))
        function(notebook, name, "raise NotImplementedError")


# The file is not what was asked for.
def stored(notebook: NotebookNode, path: Path) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook), "utf-8")
    return True


hands_in("empty_file", Expect("empty file"), b"")
hands_in("not_json", Expect("not a notebook"), b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
hands_in("half_a_file", Expect("not a notebook"), b'{"cells": [{"cell_type": "code", "sou')
hands_in("deep_json", Expect("not a notebook"), b'{"cells":' + b"[" * 100_000)
hands_in("too_large", Expect("too large"), bytes(21 * 2**20))
hands_in("another_kind_of_file", Expect("no notebook", notes="hw1.pdf"), b"%PDF-1.7", "hw1.pdf")
hands_in("a_lesson", Expect("another assignment"), (COURSE / "notebooks" / "00_start_here.ipynb").read_bytes())
hands_in("broken_zip", Expect("cannot be read"), b"PK\x03\x04 and no more", ".zip")


@kind(Expect("no notebook"))
def empty_folder(notebook: NotebookNode, place: Path) -> bool:
    place.mkdir()
    return True


@kind(Expect("cannot be read"))
def a_link(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").symlink_to("/etc/passwd")
    return True


@kind(Expect("no notebook"))
def a_link_in_a_folder(notebook: NotebookNode, place: Path) -> bool:
    place.mkdir()
    (place / "hw1.ipynb").symlink_to(COURSE / "notebooks" / "homework" / "hw1.ipynb")
    return True


@kind(Expect("another assignment"))
def another_assignment(notebook: NotebookNode, place: Path) -> None:
    notebook.metadata["course_homework"]["assignment"] = "hw2"


@kind(Expect(notes="not .ipynb"))
def wrong_extension(notebook: NotebookNode, place: Path) -> bool:
    return stored(notebook, place / "hw1.ipynb.json")


@kind()
def old_format(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").write_text(nbformat.writes(nbformat.convert(notebook, 3), version=3), "utf-8")
    return True


@kind(Expect(notes="2 notebooks"))
def two_notebooks(notebook: NotebookNode, place: Path) -> bool:
    another = json.loads(nbformat.writes(notebook))
    another["metadata"]["course_homework"]["assignment"] = "hw2"
    stored(notebook, place / "work" / "zz.ipynb")
    (place / "aa.ipynb").write_text(json.dumps(another), "utf-8")
    return True


@kind()
def zipped(notebook: NotebookNode, place: Path) -> bool:
    with zipfile.ZipFile(place.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/hw1/._hw1.ipynb", "x")
        archive.writestr("hw1/hw1.ipynb", nbformat.writes(notebook))
    return True


@kind(Expect("too large"))
def zip_bomb(notebook: NotebookNode, place: Path) -> bool:
    with zipfile.ZipFile(place.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("hw1.ipynb", b" " * 60_000_000)
    return True


def good(notebook: NotebookNode, place: Path) -> None:
    """As it should be, whatever it is called."""


for called in (
    "a_good_one", "Zoë Åström 王小明 (🎓) =1+2", "a_very_long_name_" * 13, "x/../../etc/passwd".replace("/", "\\"),
):  # fmt: skip
    kind(name=called)(good)


@kind(Expect(lost=tuple(FULL.items())))
def nothing_done(notebook: NotebookNode, place: Path) -> None:
    for each in notebook.cells:
        if each.metadata.get("nbgrader", {}).get("solution") and each.cell_type == "code":
            each.source = each.source[: each.source.index('"""')] + "raise NotImplementedError"
