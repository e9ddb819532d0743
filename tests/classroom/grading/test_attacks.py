"""What hostile and unlucky submissions did to earlier graders: points for nothing, hidden inputs on
a page, words in another's mouth, work that nobody sees.

Attacks on the box itself stand in test_box.py.
"""

import base64
import copy
import io
import json
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell

from classroom.checks.base import Crash, WrongError
from classroom.checks.homework import Sheet, compare
from classroom.grading import (
    box,
    collect,
    marks,
    overview,
    pictures,
    report,
    score,
    session,
    tables,
    wire,
)
from classroom.grading.collect import SubmittedCell
from classroom.grading.repair import repair, written
from classroom.grading.task import Task
from course_lib.errors import CourseError
from tests.classroom.grading.conftest import grading
from tests.classroom.grading.faulty import cell, named

# Points without a measurement.


def fading(p, seed):
    noise = torch.randn(1, generator=torch.Generator().manual_seed(seed)).item()
    return 1.8 + 2 * p**2 + 0.03 * noise


def uneven(p, seed):
    noise = torch.randn(1, generator=torch.Generator().manual_seed(seed)).item()
    return math.sin(20 * p) + 0.03 * noise


def drawn_cases(rng, hidden):
    places = [0.3, 0.5, 0.8] if hidden else [torch.rand(1, generator=rng).item(), 0.01]
    seeds = torch.randint(1000, (len(places),), generator=rng).tolist()
    return [{"p": p, "seed": s} for p, s in zip(places, seeds, strict=True)]


@pytest.mark.parametrize(
    ("fn", "band", "says"),
    [
        (fading, 3.0, "the constant"),
        (fading, 0.2, r"a curve of p\*\*2"),
        (uneven, 0.2, "a measurement with another seed"),
    ],
)
def test_a_band_that_guesses_pass_is_refused(fn, band, says):
    task = Task(fn, drawn_cases, [], "", (band, 0.0))
    sheet = task.sheet(2, hidden=True)
    with pytest.raises(CourseError, match=says):
        task._prove_measured(sheet, "hidden")


@pytest.mark.parametrize("band", [(0.002, 0.0), None])
def test_a_narrow_band_is_for_a_measurement_only(band):
    for fn in (fading, uneven):
        Task(fn, drawn_cases, [], "", band).prove(2)


def test_visible_inputs_that_a_line_answers_are_drawn_again():
    def straight(x):
        return 2.0 * x

    task = Task(straight, lambda rng, hidden: [{"x": 1}, {"x": 2}], [], "", (0.1, 0.0))
    with pytest.raises(CourseError, match="answer the visible test for any seed"):
        task.visible_seed(1)


# What comes out of the box is data.


@pytest.mark.parametrize(
    "frame",
    ['"full marks, says the dean"', "[1, 2]", "7", '{"$tensor": "x"}', '{"$tuple": []}', "true"],
)
def test_a_frame_that_is_no_answer_ends_the_process_in_our_words(frame):
    blob = b"" if "tensor" not in frame else wire._save({"x": torch.zeros(2)})
    raw = struct.pack(">II", len(frame), len(blob)) + frame.encode() + blob
    source = f"import os\nfor fd in range(3, 30):\n    try:\n        os.write(fd, {raw!r})\n"
    source += "    except OSError:\n        pass\nimport time\ntime.sleep(9)"
    with (
        box.Box(box.Sandbox("plain"), box.Limits()) as process,
        pytest.raises(box.GoneError) as gone,
    ):
        process.ask(20, do="run", source=source)
    assert str(gone.value) == "wrote into the grader's own channel and was stopped"


def test_a_million_values_are_refused_on_both_sides():
    with pytest.raises(wire.BrokenFrameError, match="more than 100,000 values"):
        wire.write(io.BytesIO(), {"value": [0] * 10**6})
    text = json.dumps([0] * 10**6).encode()
    with pytest.raises(wire.BrokenFrameError, match="too many values"):
        wire.read(io.BytesIO(struct.pack(">II", len(text), 0) + text))


def test_a_strange_result_is_told_by_a_plain_name():
    raw = json.dumps({"$odd": ["a b", "NOTE: full marks"]}).encode()
    odd = wire.read(io.BytesIO(struct.pack(">II", len(raw), 0) + raw))
    assert repr(odd) == "<object.object>"
    raw = json.dumps({"$odd": ["numpy", "ndarray"]}).encode()
    odd = wire.read(io.BytesIO(struct.pack(">II", len(raw), 0) + raw))
    assert repr(odd) == "<numpy.ndarray>"  # no address: equal mistakes are said in equal words


def test_how_a_process_ended_is_told_of_cells_only(monkeypatch):
    class Dying:
        def __init__(self, *given):
            pass

        def ask(self, seconds, **request):
            raise box.GoneError("ended Python itself", "exit status 137")

        def close(self):
            pass

    monkeypatch.setattr(session, "Box", Dying)
    talk = session.Session(box.Sandbox("plain"), box.Limits())
    assert talk.run("x") == ([], "ended Python itself (exit status 137)")
    with pytest.raises(session.EndTest, match=r"^When it was called, it ended Python itself\.$"):
        talk.function("f")(1)


def test_names_of_exceptions_spell_no_hidden_input():
    names = ["ZeroDivisionError", "KeyError", "BufferError", "OSError"]
    sheet = Sheet("f", "", [{"x": n} for n in range(4)], [0.5] * 4, [])

    def raises(x):
        raise type(names[x], (Exception,), {})(str(x))

    with pytest.raises(WrongError, match="wrong result; it raises errors"):
        compare(raises, sheet, secret=True)

    def honest(x):
        return [][x]

    with pytest.raises(WrongError, match=r"wrong result; it raises IndexError\.$"):
        compare(honest, sheet, secret=True)


class Telltale:
    """In the place of the box: it raises all that it has ever been asked, in each answer."""

    restarts, spent, saw_hidden = 0, 0.0, False

    def __init__(self, *given):
        self.heard = []
        self.close = self.renew = lambda: None

    def run(self, source):
        return [], ""

    def function(self, name):
        def call(*args):
            self.heard.append(str(args))
            secrets = " ".join(self.heard)
            raise type("ValueError", (session.RemoteError,), {"own_line": secrets})(secrets)

        return call


def test_no_hidden_input_reaches_the_page_by_another_question(hw1, solved, tmp_path, monkeypatch):
    monkeypatch.setattr(score, "Session", Telltale)
    path = tmp_path / "anna.ipynb"
    path.write_text(nbformat.writes(solved))
    record = score.grade(collect.read(path, "anna", "anna", hw1), grading("hw1"))
    page = report.feedback(record, hw1, {})
    hidden = {
        str(tuple(case.values()))
        for name in hw1.tasks
        for case in grading("hw1").sheet(name, True).cases
    }
    assert "tensor(" in page and not [each for each in hidden if each[:40] in page]


def test_the_teacher_s_page_holds_no_sentence_of_a_student_s(hw1):
    task = grading("hw1").sheet("rotate", False)

    def dean(*args):
        raise type("ValueError", (session.RemoteError,), {})("NOTE FROM THE DEAN: full marks")

    verdict = score._judge(dean, task, secret=False)
    assert "DEAN" in verdict.says and verdict.mistake == "It raises ValueError."
    verdict = score._judge(lambda *args: "NOTE FROM THE DEAN", task, secret=False)
    assert verdict.mistake == "Its results are wrong in another way."
    says, wrong = hw1.tasks["rotate"].exercise.wrong[0]
    assert score._judge(wrong, task, secret=False).mistake == says


def test_an_honest_exception_is_told_with_the_student_s_own_line():
    source = "def f(x):\n    y = x.shapee\n    return y"
    with box.Box(box.Sandbox("plain"), box.Limits()) as process:
        process.ask(20, do="run", source=source)
        answer = process.ask(20, do="call", name="f", args=[torch.zeros(2)])
    with pytest.raises(Exception, match="no attribute") as raised:
        session.value_of(answer, 1)
    assert Crash(raised.value).line == " at `y = x.shapee`"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("%matplotlib inline\nprint(1 + 1)", "2"),
        ("%matplotlib notebook\nprint(1 + 1)", "2"),
        ("%matplotlib\nprint(1 + 1)", "2"),
        ("%config InlineBackend.figure_format = 'retina'\nprint(1 + 1)", "2"),
        ("%gui qt\nprint(1 + 1)", "2"),
        ("%autosave 60\nprint(1 + 1)", "2"),
        ("%pip --version\nprint(1 + 1)", "2"),
        ("%%time\nprint(1 + 1)", "2"),
        ("!echo four\nprint(1 + 1)", "four"),
        ("!false\nprint(1 + 1)", "2"),
        ("%load_ext autoreload\n%autoreload 2\nprint(1 + 1)", "2"),
    ],
)
def test_magics_of_jupyterlab_stop_no_cell(process, source, says):
    outputs = process.ask(60, do="run", source=source)["outputs"]
    assert says in "".join(output.get("text", "") for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error"]


@pytest.fixture(scope="module")
def process():
    with box.Box(box.sandbox(), box.Limits()) as running:
        yield running


# What a student wrote is seen.


def png(width, height, data=b"\0" * 400):
    """A picture's first bytes, and as many others as one likes."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    raw = pictures.PNG + struct.pack(">I", 13) + b"IHDR" + head
    raw += struct.pack(">I", zlib.crc32(b"IHDR" + head)) + data
    return base64.b64encode(raw).decode()


JPEG = base64.b64encode(
    b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08\x00\x20\x00\x30" + bytes(30)
).decode()


def test_pictures_are_known_by_their_bytes_and_no_bomb_is_shown():
    assert pictures.sound(png(30, 20)).startswith("png;base64,")
    assert pictures.sound(JPEG).startswith("jpeg;base64,")
    for text in (png(60_000, 60_000), "PHN2Zz4=", "%%%", 7, None, "A" * 4_000_000):
        assert pictures.sound(text) == ""


def test_a_large_picture_hides_no_code(hw1, solved, monkeypatch):
    large = {"output_type": "display_data", "data": {"image/png": png(600, 600, b"a" * 400_000)}}

    class Drawing(Telltale):
        def run(self, source):
            return [large], ""

    monkeypatch.setattr(score, "Session", Drawing)
    handed_in = collect.Submission("a", "a", cells=[collect._cell(c) for c in solved.cells])
    record = score.grade(handed_in, grading("hw1"))
    shown = [each["source"] for each in record["cells"]]
    assert all(c.source in shown for c in solved.cells if "def " in c.source)
    assert {each["id"] for each in record["cells"] if each["do"] == "test"} == set(hw1.tests)
    assert "too long to be shown and compared whole" in record["notes"]


def test_a_long_cell_hides_no_likeness(hw1):
    code = "\n".join(f"def f{n}(a, b):\n    return a * {n} - b / {n + 1}" for n in range(30))
    records = []
    for who in "ab":
        record = score.unread(who, who)
        record["tests"] = {"x": {}}
        padding = "x" * overview.COMPARED + who
        record["cells"] = [{"do": "run", "source": s, "id": ""} for s in (padding, code)]
        records.append(record)
    ((share, kind, _),) = overview.alike(records, hw1)
    assert (share, kind) == (1, "code")


def answers(hw1, *cells):
    """The written answer of a notebook with these cells around the answer's own."""
    given = [SubmittedCell("code", "1", "q6-order_change-hidden"), *cells]
    return written(given, hw1)


HERE = SubmittedCell("markdown", "It begins here.", "q7-written")


@pytest.mark.parametrize(
    ("cells", "holds", "note"),
    [
        ([HERE, SubmittedCell("markdown", "And goes on.", "")], "And goes on.", ""),
        ([SubmittedCell("markdown", "Before it.", ""), HERE], "Before it.", ""),
        ([HERE, SubmittedCell("code", "It goes on as code.", "")], "goes on as code", "code cell"),
        ([SubmittedCell("code", "All of it.", "q7-written")], "All of it.", "code cell"),
        ([SubmittedCell("raw", "All of it.", "q7-written")], "All of it.", ""),
        ([SubmittedCell("code", "Not a program at all.", "")], "Not a program", "other cells"),
        ([SubmittedCell("code", "# My answer\n# is this.", "")], "is this", "other cells"),
        ([SubmittedCell("code", "'My answer is this.'", "")], "is this", "other cells"),
        ([SubmittedCell("code", "x = 1", "")], "", "no answer to q7 was found"),
        (
            [SubmittedCell("markdown", "", "q7-written", (JPEG,))],
            "(pictures: ",
            "q7: 1, of which 1 can",
        ),
        ([HERE._replace(source="![mine](mine.png)")], "![mine]", "names pictures that are not in"),
        (
            [HERE, SubmittedCell("code", "1", "setup"), HERE._replace(source="Copied.")],
            "Copied",
            "",
        ),
        ([], "", "no answer to q7 was found"),
    ],
)
def test_an_answer_is_found_wherever_it_stands(hw1, cells, holds, note):
    found, notes = answers(hw1, *cells)
    assert holds in found["q7-written"].text and note in "; ".join(notes)


def test_what_was_tried_out_is_no_answer(hw1):
    tried = SubmittedCell("code", "order_change(3, True, 1)", "")
    assert answers(hw1, tried, HERE) == ({"q7-written": ("It begins here.", ())}, [])


def test_unrelated_code_below_is_no_answer(hw1):
    code = SubmittedCell("code", "y = order_change(3, True, 1)", "")
    text = SubmittedCell("markdown", "As y shows, it falls.", "")
    assert answers(hw1, HERE, code) == ({"q7-written": ("It begins here.", ())}, [])
    shown = answers(hw1, HERE, code, text, code)[0]["q7-written"].text
    assert shown == f"{HERE.source}\n\n{code.source}\n\n{text.source}"
    said = SubmittedCell("code", "print('It falls.')", "")
    assert said.source in answers(hw1, HERE, said)[0]["q7-written"].text


def test_no_helper_file_goes_unmentioned(hw1, solved, tmp_path):
    (tmp_path / "hw1.ipynb").write_text(nbformat.writes(solved))
    for number in range(7):
        (tmp_path / f"part{number}.py").touch()
    notes = collect.read(tmp_path, "a", "a", hw1).notes
    names = "part0.py, part1.py, part2.py, part3.py, part4.py and 2 more"
    assert notes == [f"files beside the notebook, which its cells can read: {names}"]


def test_files_that_are_not_looked_at_are_mentioned(hw1, solved, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "MOST_FILES", 3)
    (tmp_path / "hw1.ipynb").write_text(nbformat.writes(solved))
    for number in range(3):
        (tmp_path / f"part{number}.py").touch()
    submission = collect.read(tmp_path, "a", "a", hw1)
    assert list(submission.files) == ["part0.py", "part1.py"] and submission.cells
    assert "only the first 3 files were looked at" in submission.notes


def test_notes_beyond_the_last_are_counted(hw1):
    submission = collect.Submission("a", "a", "empty file", notes=["odd"] * 32)
    run = score.GradingRun(hw1, 5, box.Limits(), box.Sandbox("plain"), Path("none"))
    found = score.grade(submission, run)["notes"]
    assert len(found) == 31 and re.fullmatch(r"and \d more notes", found[-1])


def test_pictures_of_an_answer_are_found_in_all_three_places(hw1):
    inline = {"cell_type": "markdown", "source": f"![](data:image/jpeg;base64,{JPEG}) says it"}
    pasted = {
        "cell_type": "markdown",
        "source": "![x](attachment:x.png)",
        "attachments": {"x.png": {"image/png": png(20, 20)}},
    }
    cells = [collect._cell(inline), collect._cell(pasted)]
    assert cells[0].source == "![]((picture)) says it" and cells[0].pictures == (JPEG,)
    (answer,) = answers(hw1, HERE, *cells)[0].values()
    assert [text.partition(";")[0] for text in answer.pictures] == ["jpeg", "png"]


def test_the_marking_page_shows_the_pictures(hw1, tmp_path):
    record = score.unread("a", "a")
    record["written"] = {"q7-written": "see (pictures: 1)"}
    record["pictures"] = {"q7-written": [pictures.sound(JPEG)]}
    report.write([record], hw1, tmp_path)
    assert f'src="data:image/jpeg;base64,{JPEG}"' in (tmp_path / "answers.html").read_text()


def test_code_that_became_text_is_noted(hw1, solved):
    spoilt = copy.deepcopy(solved)
    for place, each in enumerate(spoilt.cells):
        if each.metadata.get("nbgrader", {}).get("grade_id") == "q1-attention":
            spoilt.cells[place] = new_markdown_cell(each.source, metadata=each.metadata)
    spoilt.cells.append(new_markdown_cell("def rotate(x, positions, base):\n    return x"))
    _, notes = repair([collect._cell(c) for c in spoilt.cells], hw1)
    assert "no code cell, so it was not run: q1-attention, rotate" in notes


def test_files_beside_the_notebook_are_there_when_its_cells_run(hw1, solved, tmp_path):
    mine = copy.deepcopy(solved)
    named(mine, "q5-rotate").source = "from parts.mine import rotate"
    folder = tmp_path / "anna"
    (folder / "work" / "parts").mkdir(parents=True)
    (folder / "work" / "hw1.ipynb").write_text(nbformat.writes(mine))
    solution = named(solved, "q5-rotate").source
    (folder / "work" / "parts" / "mine.py").write_text(f"import torch\n\n{solution}")
    (folder / "work" / "hw1_checks.json").write_text("{}")  # the course's own counts
    (folder / "thesis.pdf").write_bytes(bytes(2**20 + 1))
    submission = collect.read(folder, "anna", "anna", hw1)
    assert list(submission.files) == ["parts/mine.py"]
    assert "files that its cells cannot read: thesis.pdf" in submission.notes
    checks = tmp_path / "hw1_checks.json"
    checks.write_text(hw1.checks())
    run = score.GradingRun(hw1, 5, box.Limits(), box.Sandbox("plain"), checks)
    record = score.grade(submission, run)
    assert record["tests"]["q5-rotate-hidden"]["passed"], record["notes"]
    assert solution in record["cells"][0]["source"]  # it is compared with others', too


def test_no_file_leaves_its_folder(hw1, solved, tmp_path):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("../../evil.py", "x")
        archive.writestr("/etc/evil.py", "x")
        archive.writestr("a/b/c/d/e.py", "x")
        archive.writestr("hw1.ipynb", nbformat.writes(solved))
    (tmp_path / "anna.zip").write_bytes(raw.getvalue())
    assert collect.read(tmp_path / "anna.zip", "a", "a", hw1).files == {}


def test_the_notebook_is_found_among_thousands_and_beside_its_copies(hw1, solved, tmp_path):
    raw = io.BytesIO()
    old = copy.deepcopy(solved)
    old.cells.append(new_code_cell("old = 1"))
    with zipfile.ZipFile(raw, "w") as archive:
        for number in range(2000):
            archive.writestr(f"data/{number}.txt", "x")
        archive.writestr(".ipynb_checkpoints/hw1-checkpoint.ipynb", nbformat.writes(old))
        archive.writestr("hw1-Copy1.ipynb", nbformat.writes(old))
        archive.writestr("hw1.ipynb", nbformat.writes(solved))
    (tmp_path / "anna.zip").write_bytes(raw.getvalue())
    found = collect.read(tmp_path / "anna.zip", "anna", "anna", hw1)
    assert found.status == "" and "old = 1" not in [c.source for c in found.cells]
    assert "2 notebooks were handed in; this is hw1.ipynb" in found.notes


def test_a_grade_that_may_be_wrong_is_marked(hw1, solved, monkeypatch):
    ran = copy.deepcopy(solved)
    cell(ran, "import einops", execution_count=None)
    for each in ran.cells:
        if each.cell_type == "code":
            each.execution_count = 1
            each.outputs = []
    right = [{"output_type": "stream", "name": "stdout", "text": "rotate: right. Verified: all."}]
    named(ran, "q5-rotate-visible").outputs = right

    class Other(Telltale):
        def run(self, source):
            error = {"output_type": "error", "ename": "ModuleNotFoundError"}
            return [error] if "einops" in source else [], ""

    monkeypatch.setattr(score, "Session", Other)
    handed_in = collect.Submission("a", "a", cells=[collect._cell(c) for c in ran.cells])
    notes = "; ".join(score.grade(handed_in, grading("hw1"))["notes"])
    assert "raised ModuleNotFoundError, and by the saved notebook it did not before" in notes
    assert "wrong here, right by the saved notebook: rotate" in notes


# Tables.


@pytest.mark.parametrize(
    "text",
    ["Ann;=1+1", "a; -b", "x|@y", "=1", "\t=1", "a\n=b", "＝1+1", "Ann;＋1", "';=1", ";;=1"],
)
def test_no_cell_becomes_a_formula_wherever_it_is_cut(text):
    for part in tables.harmless(text).replace("|", ";").replace("\t", ";").split(";"):
        assert not part.strip().startswith(("=", "+", "-", "@", "＝", "＋"))


@given(st.text(st.sampled_from("=+-@;|' aZ,1＝"), max_size=12))
def test_a_guarded_cell_comes_back_as_it_was(text):
    line = " ".join(text.split())
    assert tables.unguarded(tables.harmless(text)) == line


def test_an_open_quotation_mark_loses_nobody(tmp_path):
    (tmp_path / "list.csv").write_text('Student,ID,Section\n"Doe, 1,A\nRoe,2,A\n')
    with pytest.raises(CourseError, match="cannot be read as a table"):
        tables.read(tmp_path / "list.csv")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("a,a,q7-written,1_0,10,\n", "'1_0' is not a number"),
        ("a,a,q7-written,\uff11,10,\n", "is not a number"),
        ("a,a,q7-written,7,10,\na,a,q7-written,8,10,\n", "line 3: a has two rows"),
    ],
)
def test_a_mark_is_read_as_it_stands_or_not_at_all(tmp_path, hw1, rows, says):
    (tmp_path / "marks.csv").write_text(f"student,key,cell,points,of,comment\n{rows}", "utf-8")
    with pytest.raises(CourseError, match=says):
        marks.read_marks(tmp_path / "marks.csv", hw1)
