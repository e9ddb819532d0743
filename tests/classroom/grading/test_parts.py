"""The grader's parts, one by one, without a process: what travels, what is read, what is put right,
what is shown.
"""

import contextlib
import hashlib
import io
import json
import multiprocessing
import threading
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from classroom.grading import box, collect, marks, report, run, score, session, wire
from classroom.grading.assignment import grade_id
from classroom.grading.collect import SubmittedCell
from classroom.grading.repair import repair, written
from course_lib.errors import CourseError
from tests.classroom.grading.test_class import table


def there_and_back(value):
    pipe = io.BytesIO()
    wire.write(pipe, value)
    pipe.seek(0)
    return wire.read(pipe)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.5,
        float("inf"),
        "Zoë",
        [1, (2, "x")],
        {"a": [None], "$tensor": "no"},
        (),
        "\x00",
    ],
)
def test_data_travels(value):
    assert there_and_back({"value": value}) == {"value": value}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]
)
def test_tensors_travel(dtype):
    value = torch.arange(6).reshape(2, 3).to(dtype).T  # not contiguous
    back = there_and_back((value, torch.zeros(0, 2), value[0]))
    assert back[0].dtype == dtype and torch.equal(back[0], value)
    assert back[1].shape == (0, 2) and torch.equal(back[2], value[0])


def test_what_is_no_data_leaves_its_name_only():
    back = there_and_back(
        [np.zeros(3), np.float64(2.5), torch.zeros(2).to_sparse(), lambda x: x, ...]
    )
    assert type(back[0]).__name__ == "ndarray" and type(back[0]).__module__ == "numpy"
    assert isinstance(there_and_back(10**400), wire.Odd)
    assert (
        back[1] == 2.5
        and isinstance(back[2], wire.Odd)
        and isinstance(back[3], wire.Odd)
        and back[4] is None
    )


@given(st.binary(max_size=60), st.binary(max_size=40))
@example(b"[x", b"")
@example(b"{} ", b"\0" * 4)
@example(b"[" * 200_000, b"")
@example(b'{"$tensor": "no"}', b"")
@example(b'{"a": 1, "b": [2, 3]}', b"")
def test_garbage_on_the_wire_is_one_error(text, blob):
    for raw in (b"\xff" * 20, wire.HEAD.pack(len(text), len(blob)) + text + blob):
        with contextlib.suppress(wire.BrokenFrameError):
            assert not isinstance(wire.read(io.BytesIO(raw)), dict)


def test_the_ends_of_the_wire():
    assert wire.read(io.BytesIO(b"")) is None
    with pytest.raises(wire.BrokenFrameError, match="larger than 16 MB"):
        wire.write(io.BytesIO(), torch.zeros(2**22 + 10))


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ({"error": "missing"}, "MissingFunction", "no function of this name"),
        ({"error": "stub"}, "NotWrittenError", None),
        ({"error": "changed", "argument": 1}, "WrongError", "argument number 2 in place"),
        ({"error": "changed", "argument": 331}, "WrongError", "changes an argument in place"),
        ({"error": "changed", "argument": True}, "WrongError", "changes an argument in place"),
        (
            {"error": "raised", "type": "RuntimeError", "text": "bad shape"},
            "RuntimeError",
            "bad shape",
        ),
        ({"error": "raised", "type": "the_hidden_inputs_are", "text": "x"}, "Error", "x"),
        ({"error": "raised", "type": ["int"], "text": {"a": 1}, "line": 3}, "Error", "^$"),
        ({"error": "raised", "type": "int", "text": "a\nb"}, "Error", "^a b$"),
    ],
)
def test_errors_of_a_call_are_told_apart(answer, kind, says):
    with pytest.raises(BaseException, match=says) as error:
        session.value_of(answer, 2)
    assert type(error.value).__name__ == kind


# What is handed in.


def test_each_entry_has_a_key_of_its_own(tmp_path):
    with pytest.raises(CourseError, match="nothing in"):
        collect.collect(tmp_path)
    names = [
        "anna.ipynb",
        "Anna.ipynb",
        "anna.zip",
        "-x.ipynb",
        "a b.ipynb",
        "a_b.ipynb",
        "é" * 80 + ".zip",
        "..zip",
    ]
    names += [
        "O’Brien.ipynb",
        "O_Brien-" + hashlib.sha256("O’Brien".encode()).hexdigest()[:8] + ".ipynb",
        "a\nb.zip",
    ]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / ".DS_Store").write_text("x")
    named = collect.collect(tmp_path)
    keys = [key for _, key in named.values()]
    assert len({key.casefold() for key in keys}) == len(named) == 10  # hidden files are nobody's
    assert all(len(key) < 60 and not key.startswith("-") and Path(key).name == key for key in keys)
    assert len({student for student, _ in named.values()}) == len(named)


def cells(notebook):
    return [collect._cell(cell) for cell in notebook.cells]


def test_a_clean_notebook_needs_no_repair(hw1, solved):
    steps, notes = repair(cells(solved), hw1)
    assert notes == [] and [step.id for step in steps if step.do == "test"] == list(hw1.tests)
    demonstrations = [c for c in hw1.release.cells if c.cell_type == "code" and not grade_id(c)]
    assert sum(step.do == "skip" for step in steps) == len(demonstrations) > 2  # not run again


def test_changed_and_missing_cells_come_back_and_own_code_runs(hw1):
    found = [
        SubmittedCell("code", "x = 1", ""),
        SubmittedCell("code", "helper = 1", "q5-rotate-visible"),
    ]
    steps, (changed, missing) = repair(found, hw1)
    sources = [step.source for step in steps]
    own = sources.index("x = 1")
    assert sources[own : own + 3] == [
        "x = 1",
        "helper = 1",
        'right = hw.check("rotate", rotate)',
    ]
    # what is missing and defines names comes back in front of them
    assert [step.id for step in steps[:own]] == ["setup", "q2-sentences", "q2-looks", "q6-vectors"]
    assert {step.id for step in steps} >= set(hw1.tests)
    assert changed == "course cells changed (the originals count): q5-rotate-visible"
    assert missing.startswith("course cells missing (put back): setup, q1-")


def test_a_missing_cell_comes_back_behind_what_it_needs(hw1, solved):
    kept = [cell for cell in cells(solved) if cell.id != "q2-looks"]
    steps, _ = repair(kept, hw1)
    names = [step.id for step in steps]
    assert names.index("q2-looks") == names.index("q2-sentences") + 1


def test_written_answers_are_found_once(hw1):
    found = [
        SubmittedCell("markdown", "yes", "q7-written"),
        SubmittedCell("markdown", " yes ", "q7-written"),
    ]
    assert written(found, hw1) == ({"q7-written": ("yes", ())}, [])
    empty = SubmittedCell("markdown", hw1.release.cells[-2].source, "q7-written")
    nothing = ["no answer to q7 was found"]
    assert written([empty], hw1) == ({"q7-written": ("", ())}, nothing)
    between = SubmittedCell("code", "x = 1", "q5-rotate-visible")
    elsewhere = [SubmittedCell("markdown", "My answer", ""), between, empty]
    answers, (note,) = written(elsewhere, hw1)
    assert answers == {"q7-written": ("My answer", ())} and "other cells" in note


# What comes out.


@pytest.fixture
def records(hw1):
    """Two graded students and one who handed in something else."""
    made = []
    for student, status, answer in (
        ("=Anna", "graded", "Because."),
        ("Ben", "graded", ""),
        ("Cem", "empty file", ""),
    ):
        record = score.unread(student, student.strip("="), status)
        if status == "graded":
            for test in hw1.tests.values():
                full = {"points": test.points, "of": test.points, "passed": True, "says": "Right."}
                record["tests"][test.id] = full
        record["written"] = {"q7-written": answer}
        made.append(record)
    return made


def test_marks_are_asked_for_kept_and_added(tmp_path, hw1, records):
    report.write(records, hw1, tmp_path)
    anna, ben, cem = table(tmp_path / "grades.csv")
    assert (anna["student"], anna["q1"], anna["q7"], anna["total"]) == ("'=Anna", "24", "", "")
    # nothing written: nothing to mark
    assert (ben["q7"], ben["total"], ben["of"]) == ("0", "90", "100")
    assert (cem["status"], cem["q1"], cem["total"]) == ("empty file", "", "")
    (row,) = table(tmp_path / "marks.csv")
    assert (row["student"], row["key"], row["points"], row["of"]) == ("'=Anna", "Anna", "", "10")
    shown = (tmp_path / "answers.html").read_text()
    assert "Because." in shown and "Ben" not in shown

    text = (
        "student;key;cell;points;of;comment\r\n=Anna;Anna;q7-written;7,5;10;<b>Good</b>, but"
        " short\r\n"
    )
    # as a spreadsheet saves it where 7.5 is written 7,5
    (tmp_path / "marks.csv").write_text(text, "utf-8")
    report.write(records, hw1, tmp_path)
    assert [table(tmp_path / "grades.csv")[0][name] for name in ("q7", "total")] == ["7.5", "97.5"]
    assert table(tmp_path / "marks.csv")[0]["comment"] == "<b>Good</b>, but short"
    (tmp_path / "marks.csv").write_text(text.replace("<b>Good</b>, but", "-1 für"), "cp1252")
    for _ in range(2):  # what guards against formulas is taken off again
        report.write(records, hw1, tmp_path)
    assert "to q7: -1 für short" in (tmp_path / "feedback" / "Anna.html").read_text("utf-8")
    (tmp_path / "marks.csv").write_text(text.replace(";", "\t"), "utf-16")
    # no record at all
    report.write([{"student": "Dora", "key": "Dora", "cells": 7}, *records], hw1, tmp_path)
    assert table(tmp_path / "grades.csv")[0]["status"] == "grader failed"
    assert "&lt;b&gt;Good&lt;/b&gt;, but short" in (tmp_path / "feedback" / "Anna.html").read_text()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a,a,q7-written,11,10,", "line 2: '11' is not a number from 0 to 10"),
        ("a,a,q7-written,good,10,", "'good' is not a number"),
        ("a,a,q7-written,nan,10,", "'nan' is not a number"),
        ("a,a,q1-attention-visible,3,10,", "no cell 'q1-attention-visible' to mark"),
        ("a,a", "a column is missing"),
    ],
)
def test_a_slip_in_the_marks_is_named_before_anything_is_written(
    tmp_path, hw1, records, line, says
):
    (tmp_path / "marks.csv").write_text(f"student,key,cell,points,of,comment\n{line}\n")
    with pytest.raises(CourseError, match=says):
        report.write(records, hw1, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["marks.csv"]


def test_what_students_write_reaches_no_browser_as_code(hw1, records):
    evil = "<script>alert(1)</script>"
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": evil + " 10%\r 100%\n\x1b[31mred"},
        {
            "output_type": "display_data",
            "data": {"text/html": evil, "text/plain": evil, "image/png": "PHN2Zz4="},
        },
        {"output_type": "error", "traceback": [evil]},
        {"output_type": "error", "traceback": 7},
        {"data": 3},
        "nonsense",
    ]
    records[0]["student"] = records[0]["notes"] = evil
    found = [each for output in outputs if (each := score.shown(output))]
    records[0]["cells"] = [{"do": "run", "source": evil, "id": "", "shown": found}]
    records[0]["cells"].append({"do": "text", "source": evil, "id": "", "shown": []})
    page = report.feedback(records[0], hw1, {})
    assert "<script" not in page and "<img" not in page and "\x1b" not in page
    assert page.count("&lt;script&gt;") >= 6 and " 100%\nred" in page and " 10%" not in page


def test_a_folder_belongs_to_one_assignment(tmp_path):
    assert run._seed(tmp_path, "hw1", None) == run._seed(tmp_path, "hw1", None)
    assert run._seed(tmp_path, "hw1", 5) == run._seed(tmp_path, "hw1", None) == 5
    with pytest.raises(CourseError, match="holds the grades of hw1"):
        run._seed(tmp_path, "hw2", None)


def test_only_what_changed_is_graded_again(tmp_path, solved, hw1, monkeypatch):
    """With the box's part replaced: what is new, what is kept, and that everything is in the
    tables.
    """
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("anna", "ben"):
        (folder / f"{name}.ipynb").write_text(nbformat.writes(solved) + f"\n{' ' * len(name)}")
    (folder / "cem.ipynb").write_text("")
    graded, fails = [], ""

    def fake(waiting, jobs, given):
        for job in waiting:
            graded.append(job.student)
            yield score.unread(
                job.student, job.key, "grader failed" if job.student == fails else "graded"
            )

    monkeypatch.setattr(run, "_parallel", fake)
    monkeypatch.setattr(run, "Assignment", lambda name: hw1)

    def go(**named):
        graded.clear()
        config = run.GradeConfig(way=box.Sandbox("plain"), **named)
        students = [record["student"] for record in run.grade(folder, "hw1", out, config)]
        return students, sorted(graded)

    assert go() == (["anna", "ben", "cem"], ["anna", "ben", "cem"]) and go() == (
        ["anna", "ben", "cem"],
        [],
    )
    (folder / "ben.ipynb").write_text(nbformat.writes(solved))
    (folder / "cem.ipynb").write_text(nbformat.writes(solved))
    assert go()[1] == ["ben", "cem"] and go(again=True)[1] == ["anna", "ben", "cem"]
    assert go(seed=9)[1] == ["anna", "ben", "cem"]
    (out / "results" / "anna.json").write_text("{")
    fails = "anna"
    # what the grader could not do is tried again
    assert go()[1] == ["anna"] and go()[1] == ["anna"]
    fails = ""
    assert go()[1] == ["anna"] and go()[1] == []
    broken = json.loads((out / "results" / "anna.json").read_text()) | {"cells": 7, "student": 3}
    (out / "results" / "anna.json").write_text(json.dumps(broken))
    assert go()[1] == ["anna"] and len(table(out / "grades.csv")) == 3


def test_a_dead_grading_process_costs_its_submission_only(tmp_path):
    (tmp_path / "b.ipynb").write_text("")
    jobs = [run.Job(tmp_path / "b.ipynb", name, name) for name in "ab"]
    found = run._parallel(jobs, 1, ("hw1", 0, box.Limits(), box.Sandbox("plain"), tmp_path))
    threading.Timer(
        1, lambda: [c.kill() for c in multiprocessing.active_children() if c.name == "grader"]
    ).start()
    first, second = found
    assert (first["status"], first["notes"]) == ("grader failed", ["the grading process died"])
    assert (second["status"], second["notes"]) == ("empty file", ["there is nothing in it"])


MARKED = "student,key,cell,points,of,comment,answer\n{},{},q7-written,8,10,fine,{}\n"


@pytest.mark.parametrize(
    ("student", "key", "answer", "says"),
    [
        # the file has another name now
        ("Anna M", "Anna_M-01234567", marks.fingerprint(" Because. "), ""),
        ("=Anna", "0", "", ""),  # the key was spoilt, the name is there
        ("=Anna", "Anna", marks.fingerprint("Else."), "has changed since it was marked"),
        (
            "Dora",
            "dora",
            marks.fingerprint("Else."),
            "the mark of Dora for q7-written fits no submission",
        ),
    ],
)
def test_marks_stay_with_their_answers(tmp_path, hw1, records, student, key, answer, says):
    (tmp_path / "marks.csv").write_text(MARKED.format(student, key, answer))
    for _ in range(2):  # the table that is written says the same again
        told = report.write(records, hw1, tmp_path)
        assert (says in told[0]) if says else told == []
        assert table(tmp_path / "grades.csv")[0]["q7"] == ("" if student == "Dora" else "8")
        assert "8" in [row["points"] for row in table(tmp_path / "marks.csv")]
