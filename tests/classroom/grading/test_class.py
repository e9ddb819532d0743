"""The grader for a class: overview, rosters, late and repeated submissions, the marking page; all without a box."""

import csv
import io
import json
import os
from datetime import datetime

import pytest

from classroom.grading import overview, report, roster, score
from classroom.grading.roster import Roster, Turned, gather
from course_lib.errors import CourseError

EVIL = "</script><script>window.hit=1</script><img src=x onerror='window.hit=2'>\""
CANVAS = 'Student,ID,SIS Login ID,Section,Notes,hw1 (77),Final Score\n    Points Possible,,,,,50,(read only)\n' \
    '"Doe, Jane",12,jane@uni.example,A,x,,1\n"Roe, Ann",13,ann,A,,3,2\n"Roe, Ann",14,roe2,A,,,2\n"=Öz, Eşe",15,-e,A,,,\n'  # fmt: skip
SHEET = ("Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (submission),"
    'Last modified (grade)\nParticipant 501,Jane Doe,jane@x.example,,,100.00,"Monday, 23 November 2026, 5:41 PM",-\n'
    "Participant 502,Ann Roe,ann@x.example,,,100.00,-,-\n")  # fmt: skip
DUE = datetime(2026, 11, 22, 12)


def made(tmp_path, text, *names):
    """A roster, and a folder with these files and folders (an empty notebook in each), written a day after it was due."""
    (tmp_path / "list.csv").write_text(text, "utf-8")
    for name in names:
        path = tmp_path / "in" / name
        path = path / "a.ipynb" if name.endswith("/") else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (DUE.timestamp() + 90_000,) * 2)
    return tmp_path / "in", Roster(tmp_path / "list.csv")


def table(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))


def record(hw1, student, key, *, wrong=(), code="", answer="Because."):
    found = score.unread(student, key)
    for test in hw1.tests.values():
        right = test.function not in wrong
        says = "Right." if right else f"It lost {EVIL}"
        found["tests"][test.id] = {"points": test.points * right, "of": test.points, "passed": right, "says": says}
    found["cells"] = [{"do": "run", "source": code, "id": "", "shown": []}]
    return found | {"written": {"q7-written": answer}}


def test_canvas_says_who_it_was_and_which_counts(tmp_path):
    names = ["doejane_12_900_hw1.ipynb", "doejane_LATE_12_950_hw1-1.ipynb", "doejane_12_990_me.png", "özeşe_15_7_x.zip"]
    folder, people = made(tmp_path, CANVAS, *names, "Ann Roe.ipynb", "doejane_13_5_x.ipynb", "13.ipynb", "zoe.ipynb")
    handed = gather(folder, people, DUE)
    found = {student: (path.name, handed.of(key)) for path, (student, key) in handed.entries.items()}
    assert found["Doe, Jane"][0] == names[1] and found["Doe, Jane"][1][:2] == (0, 1)
    assert "not counted: doejane_12_990_me, doejane_12_900_hw1" in found["Doe, Jane"][1].notes[1]
    assert found["=Öz, Eşe"][1] == Turned(3) and found["Roe, Ann"] == ("13.ipynb", Turned(1, 2))
    said = sorted(sentence.partition(";")[0] for sentence in handed.said)
    assert said[0] == "Ann Roe: 2 students of list.csv could be meant" and len(said) == 3
    assert "doejane_13_5_x: nobody" in said[1] and "zoe: nobody" in said[2]  # the number is Ann's, the name Jane's
    with pytest.raises(CourseError, match=r"no list of students"):
        Roster(folder / "zoe.ipynb")


def test_moodle_knows_when_and_nobody_is_guessed_late(tmp_path):
    names = ["Jane Doe_501_assignsubmission_file_/", "Jane Doe_501_assignsubmission_onlinetext_/"]
    folder, people = made(tmp_path, SHEET, *names, "Ann Roe_502_assignsubmission_file/")
    handed = gather(folder, people, DUE)
    (jane, key), (ann, other) = sorted(handed.entries.values(), reverse=True, key=lambda each: each[0][0])
    assert (jane, ann) == ("Jane Doe", "Ann Roe") and "assignsubmission_file" in key
    assert handed.of(key).days == 2 and handed.of(other) == Turned(1) and "time of the download" in handed.said[0]
    people = Roster(tmp_path / "list.csv")
    assert people.export("hw1", 20.0, {0: "17.5"}) == (
        ["Identifier", "Full name", "Email address", "Maximum Grade", "Last modified (grade)", "Grade"],
        [["Participant 501", "Jane Doe", "jane@x.example", "100.00", "-", "17.5"]],
        "list.csv gives Grade 100.00 points, the homework has 20.",
    )  # fmt: skip
    assert [len(gather(folder, None, None).entries), gather(folder).said] == [3, []]


def test_a_day_late_costs_what_the_teacher_says_in_its_own_column(tmp_path, hw1):
    folder, people = made(tmp_path, CANVAS, "12.ipynb", "ann.ipynb", "-e.ipynb")
    handed = gather(folder, people, DUE)
    records = [record(hw1, student, key) for student, key in handed.entries.values()]
    keys = {r["student"]: r["key"] for r in records}
    marked = tmp_path / "m.csv"
    lines = [f"x,{keys[name]},q7-written,8,10,{note}\n" for name, note in (("Doe, Jane", "good"), ("=Öz, Eşe", ""))]
    marked.write_text("student,key,cell,points,of,comment\n" + "".join(lines))
    said = report.write(records, hw1, tmp_path, handed, percent=5, marked=marked)
    jane = next(row for row in table(tmp_path / "grades.csv") if row["student"] == "Doe, Jane")
    assert [jane[name] for name in ("q7", "total", "late", "penalty", "final")] == ["8", "98", "2", "10", "88"]
    assert "2 days: 10 points less, 88 count" in (tmp_path / "feedback" / f"{keys['Doe, Jane']}.html").read_text()
    assert (tmp_path / "canvas.csv").read_text("utf-8") == (
        "Student,ID,SIS Login ID,Section,hw1 (77)\nPoints Possible,,,,50\n"
        "\"Doe, Jane\",12,jane@uni.example,A,88\n\"'=Öz, Eşe\",15,'-e,A,88\n"
    )  # fmt: skip
    assert said[0].startswith("list.csv gives hw1 (77) 50 points") and said[1].startswith("1 of 3 students have no")
    assert "Nothing handed in (1): <span class=\"who\">Roe, Ann<" in (tmp_path / "overview.html").read_text()
    marked.write_text("student,key,cell,points,of,comment\n")  # nothing in it takes nothing back
    report.write(records, hw1, tmp_path, handed, marked=marked)
    assert table(tmp_path / "marks.csv")[1]["comment"] == "good"


CODE = "def f(a, b):\n    # {}\n    c = [a + i * b for i in range(9)]\n    d = {{k: v for k, v in zip(c, c[::-1])}}\n" \
    "    return sum(d.values()) / max(1, len(d)) + a * b - 3\n"  # fmt: skip


def test_the_overview_counts_mistakes_and_shows_what_is_alike(hw1, tmp_path):
    solution = next(cell.source for cell in hw1.solutions().cells if "def rotate" in cell.source)
    same = CODE.replace("    ", "  ").replace(" + ", "+\n      " if 0 else "+").format("mine") + "\n\n"
    records = [record(hw1, "Ann", "a", wrong=["rotate"], code=CODE.format("x")), record(hw1, EVIL, "b", code=same)]
    records += [record(hw1, f"S{n}", f"s{n}", code=solution + "  # own", answer=f"{n}") for n in range(2)]
    records[1]["tests"] |= record(hw1, "", "", wrong=["rotate"])["tests"]
    records[0]["written"] = records[1]["written"] = {"q7-written": "as it is too short to be compared"}
    pair, = overview.alike(records, hw1)
    assert pair["share"] == 1 and [side[0] for side in pair["sides"]] == ["Ann", EVIL] and pair["kind"] == "code"
    report.write([*records, score.unread("Cem", "c", "empty file", ["nothing"])], hw1, tmp_path)
    page = (tmp_path / "overview.html").read_text("utf-8")
    assert "<b>2</b> · It lost &lt;/script" in page and "(Ann · &lt;/script" in page and "proves nothing" in page
    assert "Cem: empty file" in page and "<script" not in page and "<img" not in page
    assert "<td>q5</td><td class=n>6.0</td><td class=n>12</td><td class=n>50%</td>" in page


@pytest.mark.browser
def test_marks_are_typed_and_saved(tab, tmp_path, hw1):
    records = [record(hw1, name, key, answer=EVIL * (key != "c")) for name, key in ((EVIL, "a"), ("Ben", "b"), ("Cem", "c"))]
    report.write(records, hw1, tmp_path)
    old = table(tmp_path / "marks.csv")
    line = f"Dora,dora,q7-written,3,10,loose,\nBen,b,q7-written,4,10,,{report._print('else')}\n"
    (tmp_path / "marks.csv").write_text("student,key,cell,points,of,comment,answer\n" + line)
    report.write(records, hw1, tmp_path)
    tab.goto((tmp_path / "answers.html").as_uri())
    keys = tab.keyboard
    keys.type("11")
    keys.press("Control+s")
    assert "Not saved" in tab.inner_text("#said")
    keys.press("ControlOrMeta+a")
    for word, key in (("7,5", "Tab"), ('=1+1, "so"', "Enter"), ("", "Shift+Tab")):
        keys.type(word)
        keys.press(key)
    tab.locator("input").nth(1).fill("9")
    with tab.expect_download() as download:
        keys.press("Control+s")
    saved = tmp_path / "saved.csv"
    download.value.save_as(saved)
    assert tab.evaluate("window.hit || document.images.length || 0") == 0 and tab.asked == []
    assert tab.locator("section.answer").count() == 2 and tab.locator(".changed").count() == 1
    report.write(records, hw1, tmp_path, marked=saved)
    rows = {row["key"]: row for row in table(tmp_path / "marks.csv")}
    assert {key: row["points"] for key, row in rows.items()} == {"a": "7.5", "b": "9", "dora": "3"}
    assert rows["a"]["comment"] == '\'=1+1, "so"' and rows["b"]["answer"] == old[1]["answer"]
