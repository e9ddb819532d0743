"""`grade --gradebook`, read by nbgrader, which is not in the lock (pyproject.toml says why);
.ci/run brings it.
"""

import subprocess
import sys
from datetime import UTC

import pytest

from classroom.grading import report, score
from classroom.grading.hand_ins import HandIns
from course_lib.errors import CourseError
from tests.classroom.grading.test_class import DUE, HEAD, made, record, table

FILES = ["12.ipynb", "13.ipynb", "-e.ipynb", "12.0.ipynb"]  # Jane, Ann, Eşe, nobody


def test_without_nbgrader_one_sentence_says_what_to_do(tmp_path, hw1, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbgrader", None)
    with pytest.raises(
        CourseError,
        match=r"needs nbgrader.*: pip install -c requirements.lock -e '\.\[nbgrader\]'$",
    ):
        report.write([], hw1, tmp_path, HandIns(gradebook="sqlite://"))


def test_nbgrader_exports_what_was_graded(tmp_path, hw1, monkeypatch):
    api = pytest.importorskip("nbgrader.api", reason="nbgrader is not installed")
    monkeypatch.setenv("PATH", "/nowhere")  # as where the environment is not activated
    marks, url = tmp_path / "m.csv", f"sqlite:///{tmp_path / 'gradebook.db'}"
    hand_ins = made(tmp_path, "canvas", FILES, late_percent=5, marks_file=marks, gradebook=url)
    keys = dict(hand_ins.entries.values())
    records = [
        record(hw1, student, key, wrong="rotate") for student, key in hand_ins.entries.values()
    ]
    order = [student for student, _ in hand_ins.entries.values()]
    records[order.index("=Öz, Eşe")]["written"] = {}
    records[order.index("Roe, Ann")] = score.unread("Roe, Ann", keys["Roe, Ann"], "empty file")

    def graded(points):
        marks.write_text(HEAD + f"x,{keys['Doe, Jane']},q7-written,{points},10,good,\n")
        report.write(records, hw1, tmp_path, hand_ins)
        with api.Gradebook(url) as book:
            return {
                s.student.id: (s.needs_manual_grade, s.written_score)
                for s in book.assignment_submissions("hw1")
            }

    assert graded("") == {"12": (True, 0), "13": (True, 0), "15": (False, 0)}
    with api.Gradebook(url) as book:  # somebody works in Formgrader
        book.find_grade("q7-written", "hw1", "hw1", "12").manual_score = 3
        book.find_student("13").last_name = "Rowe"
        book.db.commit()
    assert graded("")["12"] == (False, 3) and graded("8")["12"] == (False, 8)
    command = [sys.executable, "-m", "nbgrader", "export", "--db", url, "--to", "export.csv"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    names = (
        "student_id",
        "last_name",
        "first_name",
        "raw_score",
        "late_submission_penalty",
        "score",
        "max_score",
    )
    assert sorted([row[name] for name in names] for row in table(tmp_path / "export.csv")) == [
        ["12", "Doe", "Jane", "86.0", "10.0", "76.0", "100.0"],
        ["13", "Rowe", "Ann", "0.0", "0.0", "0.0", "100.0"],
        ["14", "Roe", "Ann", "0.0", "0.0", "0.0", "100.0"],
        ["15", "'=Öz", "Eşe", "78.0", "10.0", "68.0", "100.0"],
    ]
    assert {row["duedate"] for row in table(tmp_path / "export.csv")} == {
        str(DUE.astimezone(UTC).replace(tzinfo=None))
    }
    del (other := type(hw1)("hw1")).tests["q5-rotate-hidden"]
    for master, address, says in (
        (other, url, "other cells"),
        (hw1, "nothing", "^The gradebook nothing: "),
    ):
        with pytest.raises(CourseError, match=says):
            report.write([], master, tmp_path, HandIns(gradebook=address))
