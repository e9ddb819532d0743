"""Everything that students (and their machines) do to a notebook, each as a change of a solved one.

A maker gets (notebook, place, name): it changes the notebook and returns None, or writes whatever it likes at `place`
and returns True. `Expect` says what grading must make of it.
"""

import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

FULL = {"q1": 24, "q2": 16, "q3": 10, "q4": 16, "q5": 12, "q6": 12}


@dataclass(frozen=True)
class Expect:
    """status; points where they are not full; words that must stand in the notes, and in the feedback page."""

    status: str = "graded"
    lost: tuple[tuple[str, float], ...] = ()
    notes: str = ""
    shows: str = ""
    boxed: bool = False  # only where there is a box: it would harm this machine


KINDS: dict[str, tuple[Callable[[NotebookNode, Path], Any], Expect]] = {}
Maker = Callable[[NotebookNode, Path], Any]


def kind(expect: Expect = Expect(), name: str = "") -> Callable[[Maker], Maker]:
    """Register a maker under its function's name."""

    def register(maker: Maker) -> Maker:
        KINDS[name or maker.__name__] = maker, expect
        return maker

    return register


def cell(notebook: NotebookNode, source: str, at: int = -1) -> None:
    """A code cell of the student's own; by default in the middle, behind question 2."""
    where = at if at >= 0 else next(i for i, c in enumerate(notebook.cells) if c.id == "q2-hints")
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


# The cell ends badly, or never.
adds("while True:\n    pass", Expect(notes="ran past its time"), "infinite_loop")
adds("import os\nos._exit(0)", Expect(notes="ended Python itself (exit status 0)"), "os_exit")
adds("import sys\nsys.exit('done')", Expect(shows="SystemExit"), "sys_exit")
adds("import os\nos.kill(os.getpid(), 9)", Expect(notes="ended Python itself (signal 9)"), "kills_itself")
adds("import ctypes\nctypes.string_at(0)", Expect(notes="signal 11"), "segmentation_fault")
adds("get_ipython().kernel.do_shutdown(True)", Expect(shows="AttributeError"), "kernel_restart")
adds("answer = input('How old are you? ')", Expect(shows="nobody can answer input()"), "asks_for_input")
adds("def broken(:\n    pass", Expect(shows="SyntaxError"), "syntax_error_in_own_cell")
adds("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", Expect(), "unprintable_error")

# It takes more than its share.
adds(
    "bombs = []\nwhile True:\n    bombs.append(bytes(2**28))",
    Expect(shows="MemoryError", boxed=True),
    "memory_bomb",
)
adds(
    "import os\nfor i in range(20):\n    with open(f'{i}', 'wb') as f:\n        f.write(os.urandom(2**20) * 50)",
    Expect(shows="No space left", boxed=True),
    "file_bomb",
)
adds("import os\nwhile True:\n    os.fork()", Expect(boxed=True), "fork_bomb")
adds(
    "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()",
    Expect(boxed=True),
    "thread_bomb",
)
adds(
    "for i in range(200_000):\n    print('all work and no play', i)",
    Expect(shows="cut: too much output"),
    "huge_output",
)

# It meddles.
adds(
    "from pathlib import Path\nfound = [str(p) for p in Path('/').glob('**/hw1.ipynb')]\nprint('found', found)",
    Expect(shows="found []", boxed=True),
    "looks_for_the_master",
)
adds(
    "import subprocess\nprint(subprocess.run('cat /etc/shadow /proc/1/environ; ls /root/.ssh /home', shell=True,\n"
    "    capture_output=True, text=True).stdout)",
    Expect(boxed=True),
    "reads_the_parents_files",
)
adds(
    "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=3)",
    Expect(shows="unreachable", boxed=True),
    "uses_the_network",
)
adds("%pip install -q a-package-that-is-not-there\n!echo shell works", Expect(shows="shell works"), "pip_install")
adds(
    "import os, contextlib\nfor fd in range(3, 40):\n    with contextlib.suppress(OSError):\n"
    "        os.write(fd, b'\\xff' * 100)",
    Expect(notes="wrote into the grader"),
    "writes_into_the_channel",
)
adds(
    "import warnings, logging, sys\nwarnings.warn('careful')\nlogging.error('hm')\nprint('noise', file=sys.stderr)",
    Expect(shows="noise"),
    "stderr_noise",
)
adds(
    "from tqdm import tqdm\nimport time\nfor _ in tqdm(range(50), desc='thinking'):\n    time.sleep(0.001)",
    Expect(shows="50/50"),
    "progress_bar",
)


@kind(Expect(boxed=True))
def writes_to_other_submissions(notebook: NotebookNode, place: Path) -> None:
    cell(notebook, f"import os\nfor root, _, names in os.walk({str(place.parent)!r}):\n"
         "    for name in names:\n        open(os.path.join(root, name), 'w').write('mine')")  # fmt: skip


# It cheats.


@kind(Expect(lost=(("q1", 14), ("q3", 10))))
def patches_the_comparison(notebook: NotebookNode, place: Path) -> None:
    cell(notebook, "import torch, course_lib.check.base as base, course_lib.check.homework as hwk\n"
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
@kind(Expect(lost=(("q5", 12),), shows="ran past its time"))
def endless_function(notebook: NotebookNode, place: Path) -> None:
    function(notebook, "q5-rotate", "while True:\n    pass")


@kind(Expect(lost=(("q3", 10),), shows="ended Python itself"))
def deadly_function(notebook: NotebookNode, place: Path) -> None:
    function(notebook, "q3-sinusoidal", "import os\nos._exit(1)")


@kind(Expect(lost=(("q3", 10), ("q5", 12), ("q6", 12))))
def odd_results(notebook: NotebookNode, place: Path) -> None:
    function(notebook, "q3-sinusoidal", "return torch.zeros(8000, 8000)")
    function(notebook, "q5-rotate", "return torch.randn(3).to_sparse()")
    function(notebook, "q6-order_change", "raise SystemExit(0)")


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


@kind(Expect("empty file"))
def empty_file(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").write_bytes(b"")
    return True


@kind(Expect("no notebook"))
def empty_folder(notebook: NotebookNode, place: Path) -> bool:
    place.mkdir()
    return True


@kind(Expect("not a notebook"))
def not_json(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    return True


@kind(Expect("not a notebook"))
def half_a_file(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").write_text(nbformat.writes(notebook)[:9000], "utf-8")
    return True


@kind(Expect("not a notebook"))
def deep_json(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").write_text('{"cells":' + "[" * 100_000, "utf-8")
    return True


@kind(Expect("too large"))
def too_large(notebook: NotebookNode, place: Path) -> bool:
    with place.with_suffix(".ipynb").open("wb") as file:
        file.truncate(21 * 2**20)
    return True


@kind(Expect("no notebook", notes="hw1.pdf"))
def another_kind_of_file(notebook: NotebookNode, place: Path) -> bool:
    place.mkdir()
    (place / "hw1.pdf").write_bytes(b"%PDF-1.7")
    return True


@kind(Expect("cannot be read"))
def a_link(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".ipynb").symlink_to("/etc/passwd")
    return True


@kind(Expect("another assignment"))
def another_assignment(notebook: NotebookNode, place: Path) -> None:
    notebook.metadata["course_homework"]["assignment"] = "hw2"


@kind(Expect("another assignment"))
def a_lesson(notebook: NotebookNode, place: Path) -> bool:
    shutil.copy(Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb", place.with_suffix(".ipynb"))
    return True


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


@kind(Expect("cannot be read"))
def broken_zip(notebook: NotebookNode, place: Path) -> bool:
    place.with_suffix(".zip").write_bytes(b"PK\x03\x04 and no more")
    return True


@kind(name="Zoë Åström 王小明 (🎓) =1+2")
def unicode_name(notebook: NotebookNode, place: Path) -> None:
    pass


@kind(name="a_very_long_name_" * 13)
def long_name(notebook: NotebookNode, place: Path) -> None:
    pass


@kind(name="x/../../etc/passwd".replace("/", "\\"))
def name_like_a_path(notebook: NotebookNode, place: Path) -> None:
    pass


@kind()
def a_good_one(notebook: NotebookNode, place: Path) -> None:
    pass


@kind(Expect(lost=tuple(FULL.items())))
def nothing_done(notebook: NotebookNode, place: Path) -> None:
    for each in notebook.cells:
        if each.metadata.get("nbgrader", {}).get("solution") and each.cell_type == "code":
            each.source = each.source[: each.source.index('"""')] + "raise NotImplementedError"
