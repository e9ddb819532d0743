"""The grader for a class: overview, rosters, late and repeated submissions, the marking page; all
without a box.
"""

import csv
import io
import os
import tomllib
from datetime import datetime
from pathlib import Path

import pytest

from classroom.grading import marks, overview, report, roster, score
from classroom.grading.hand_ins import Arrival, HandIns, gather
from classroom.grading.roster import Roster
from course_lib.errors import CourseError

GIVEN = tomllib.loads(Path(__file__).with_name("class.toml").read_text("utf-8"))
EVIL = GIVEN["evil"]
HEAD = "student,key,cell,points,of,comment,answer\n"
DUE = datetime(2026, 11, 22, 12)


def made(tmp_path, platform, names, **more):
    """What is handed in by files and folders (a file in each) of these names, written 25 hours
    after it was due.
    """
    (tmp_path / "list.csv").write_text(GIVEN[platform], "utf-8")
    for name in names:
        path = tmp_path / "in" / name / ("a.ipynb" if name.endswith("/") else "")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (DUE.timestamp() + 90_000,) * 2)
    return gather(tmp_path / "in", Roster(tmp_path / "list.csv"), DUE, **more)


def table(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))


def record(hw1, student, key, *, wrong="", code="", answer="Because."):
    found = score.unread(student, key)
    for test in hw1.tests.values():
        right, says = test.function != wrong, ("Right.", f"It lost {EVIL}")[test.function == wrong]
        found["tests"][test.id] = {
            "points": test.points * right,
            "of": test.points,
            "passed": right,
            "says": says,
            "mistake": "It lost.",
        }
    found["cells"] = [{"do": "run", "source": code, "id": "", "shown": []}]
    return found | {"written": {"q7-written": answer}}


def test_canvas_says_who_it_was_and_which_counts(tmp_path):
    hand_ins = made(tmp_path, "canvas", GIVEN["canvas_files"])
    found = {
        student: (path.name, hand_ins.arrivals[key])
        for path, (student, key) in hand_ins.entries.items()
    }
    name, (*numbers, notes) = found["Doe, Jane"]
    assert (
        name == "doejane_LATE_12_950_hw1-1.ipynb"
        and numbers == [0, 1]
        and notes[0] == roster.SENTENCES["late"]
    )
    assert notes[1] == "also handed in, not counted: doejane_12_990_me, doejane_12_900_hw1"
    assert found["=Öz, Eşe"][1] == Arrival(3) and found["Roe, Ann"] == ("13.ipynb", Arrival(1, 2))
    assert sorted(hand_ins.warnings) == GIVEN["canvas_said"] and hand_ins.absent == ["Roe, Ann"]
    with pytest.raises(CourseError, match=r"no list of students"):
        Roster(tmp_path / "in" / "zoe.ipynb")


def test_moodle_knows_when_and_nobody_is_guessed_late(tmp_path):
    hand_ins = made(tmp_path, "moodle", GIVEN["moodle_files"])
    (jane, key), (ann, other) = sorted(hand_ins.entries.values(), reverse=True)
    assert (jane, ann) == ("Jane Doe", "Ann Roe") and "assignsubmission_file" in key
    assert hand_ins.arrivals[key].days == 2 and hand_ins.arrivals[other] == Arrival(
        1, 0, (roster.SENTENCES["unknown"],)
    )
    said = hand_ins.roster.export(tmp_path, "hw1", 20.0, {0: 17.5})
    assert said == ["list.csv gives Grade 100.00 points, the homework has 20."]
    assert (tmp_path / "moodle.csv").read_text("utf-8") == GIVEN["moodle_import"]
    assert len(gather(tmp_path / "in").entries) == 3 and gather(tmp_path / "in").warnings == []


def test_a_day_late_costs_what_the_teacher_says_in_its_own_column(tmp_path, hw1):
    hand_ins = made(
        tmp_path,
        "canvas",
        ["12.ipynb", "ann.ipynb", "-e.ipynb"],
        late_percent=5,
        marks_file=tmp_path / "m.csv",
    )
    records = [record(hw1, student, key) for student, key in hand_ins.entries.values()]
    keys = dict(hand_ins.entries.values())
    hand_ins.marks_file.write_text(
        HEAD + "".join(f"x,{keys[n]},q7-written,8,10,good,\n" for n in ("Doe, Jane", "=Öz, Eşe"))
    )
    said = report.write(records, hw1, tmp_path, hand_ins)
    jane = next(row for row in table(tmp_path / "grades.csv") if row["student"] == "Doe, Jane")
    assert [jane[name] for name in ("q7", "total", "late", "penalty", "final")] == [
        "8",
        "98",
        "2",
        "10",
        "88",
    ]
    assert (
        "2 days: 10 points less, 88 count"
        in (tmp_path / "feedback" / f"{keys['Doe, Jane']}.html").read_text()
    )
    assert (tmp_path / "canvas.csv").read_text("utf-8") == GIVEN["canvas_import"]
    assert said[0].startswith("list.csv gives hw1 (77) 50 points") and said[1].startswith(
        "1 of 3 students have no"
    )
    assert (
        'Nothing handed in (1): <span class="who">Roe, Ann<'
        in (tmp_path / "overview.html").read_text()
    )
    # an empty field takes nothing back
    hand_ins.marks_file.write_text(HEAD + f"x,{keys['=Öz, Eşe']},q7-written,,10,,\n")
    report.write(records, hw1, tmp_path, hand_ins)
    assert [row["comment"] for row in table(tmp_path / "marks.csv")].count("good") == 2


def test_the_overview_counts_mistakes_and_shows_what_is_alike(hw1, tmp_path):
    solution = next(cell.source for cell in hw1.solutions().cells if "def rotate" in cell.source)
    records = [
        record(hw1, f"S{n}", f"s{n}", code=solution + "\nx = 1", answer=f"{n}") for n in range(2)
    ]
    copies = (("Ann", "code"), (EVIL, "same"))
    records += [
        record(hw1, student, code, wrong="rotate", code=GIVEN[code]) for student, code in copies
    ]
    ((share, kind, sides),) = overview.alike(records, hw1)
    assert (share, kind) == (1, "code") and [side[0] for side in sides] == ["Ann", EVIL]
    huge = " ".join(map(str, range(99_999)))
    assert overview.alike([record(hw1, who, who, code=huge) for who in "ab"], hw1) == [], (
        "more than is compared"
    )
    report.write([*records, score.unread("Cem", "c", "empty file", ["nothing"])], hw1, tmp_path)
    page = (tmp_path / "overview.html").read_text("utf-8")
    assert (
        "<b>2</b> · It lost. <" in page
        and "(Ann · &lt;/script" in page
        and "proves nothing" in page
    )
    assert (
        "Cem: empty file" in page
        and "<script" not in page
        and "<img" not in page
        and "<td class=n>50%</td>" in page
    )


@pytest.mark.browser
def test_marks_are_typed_and_saved(tab, tmp_path, hw1):
    records = [
        record(hw1, EVIL, "a", answer=EVIL),
        record(hw1, "Ben", "b"),
        record(hw1, "Cem", "c", answer=""),
    ]
    (tmp_path / "marks.csv").write_text(
        HEAD + "Dora,d,q7-written,3,10,loose,\nBen,b,q7-written,4,10,,a0\n"
    )
    report.write(records, hw1, tmp_path)
    # without a script none
    assert (tmp_path / "answers.html").read_text("utf-8").count("<fieldset hidden>") == 2
    tab.goto((tmp_path / "answers.html").as_uri())
    for word, key in (
        ("11", "Control+s"),
        ("", "Control+a"),
        ("7,5", "Tab"),
        ('=1+1, "so"', "Enter"),
    ):
        assert not word.startswith("7") or "Not saved" in tab.inner_text("#said")
        tab.keyboard.type(word)
        tab.keyboard.press(key)
    assert tab.locator(".changed").count() == 1  # Ben's answer
    tab.locator("input").nth(1).fill("9")
    with tab.expect_download(timeout=60_000) as download:
        tab.keyboard.press("Control+s")
    download.value.save_as(tmp_path / "saved.csv")
    assert tab.evaluate("window.hit || document.images.length") == 0 and tab.asked == tab.said == []
    report.write(records, hw1, tmp_path, HandIns(marks_file=tmp_path / "saved.csv"))
    new = {row["key"]: (row["points"], row["answer"]) for row in table(tmp_path / "marks.csv")}
    assert [new[key][0] for key in "abd"] == ["7.5", "9", "3"] and new["b"][1] == marks.fingerprint(
        "Because."
    )
    saved = [(row["key"], row["comment"]) for row in table(tmp_path / "saved.csv")]
    assert saved == [("a", '\'=1+1, "so"'), ("b", ""), ("d", "loose")]
