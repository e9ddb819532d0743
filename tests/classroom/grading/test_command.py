"""`python -m course_lib grade` and `make homework`: what they say, without grading anything."""

import json
import os
import subprocess
import sys
import time
from functools import partial

import nbformat
import pytest

from classroom.grading import box, release, run
from course_lib.errors import CourseError
from course_lib.files import locked


@pytest.fixture
def call(call):
    return partial(call, "grade")


def test_each_submission_is_one_line_and_a_missing_box_one_warning(call, monkeypatch, tmp_path):
    def fake(submissions, assignment, out, config, **named):
        assert config.limits == box.Limits(seconds=60, cell_seconds=5) and config.jobs == 3
        yield {"student": "anna", "status": "graded", "tests": {"t": {"points": 4.0, "of": 6.0}}}
        yield {"student": "ben", "status": "empty file", "tests": {}}

    monkeypatch.setattr(run, "grade", fake)
    monkeypatch.setattr(box, "sandbox", lambda: box.Sandbox("plain", "there is no bubblewrap"))
    monkeypatch.setattr(os, "getuid", lambda: 1000, raising=False)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "anna.ipynb").write_text("")
    words = (
        "--assignment",
        "hw1",
        "--out",
        tmp_path,
        "--jobs",
        3,
        "--timeout",
        60,
        "--cell-timeout",
        5,
    )
    code, said, warned = call(tmp_path / "in", *words)
    assert code == 0 and said.splitlines()[:2] == ["anna: graded, 4 of 6", "ben: empty file"]
    assert "grades.csv" in said and "marks.csv" in said
    assert len(warned.splitlines()) == 1 and warned.startswith("warning: there is no bubblewrap.")
    monkeypatch.setattr(box, "sandbox", lambda: box.Sandbox("users"))
    assert call(tmp_path / "in", *words)[2] == ""
    failed = {"student": "cem", "status": "grader failed", "tests": {}}
    monkeypatch.setattr(
        run, "grade", lambda *given, warn, **named: (warn("a mark is loose"), iter([failed]))[1]
    )
    code, _, warned = call(tmp_path / "in", *words)
    assert code == 1 and "warning: a mark is loose\n" in warned and "failed on 1 of 1" in warned


def test_root_has_to_say_that_no_box_is_wanted(call, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "grade", lambda *given, **named: iter([]))
    monkeypatch.setattr(box, "sandbox", lambda: box.Sandbox("plain", "there is no bubblewrap"))
    monkeypatch.setattr(os, "getuid", lambda: 0, raising=False)
    (tmp_path / "anna.ipynb").write_text("")
    words = (tmp_path, "--assignment", "hw1", "--out", tmp_path.parent / "grades")
    code, _, said = call(*words)
    assert code == 1 and "there is no bubblewrap" in said and "--no-box" in said
    code, _, said = call(*words, "--no-box")
    assert code == 0 and "no box is wanted" in said


def test_two_calls_do_not_write_into_one_folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "anna.ipynb").write_text("")
    with locked(tmp_path / "out"), pytest.raises(CourseError, match="is writing in"):
        list(run.grade(tmp_path / "in", "hw1", tmp_path / "out"))


@pytest.mark.parametrize("text", ["[]", "null", '{"assignment": 3}', "{"])
def test_a_damaged_note_of_the_run_is_named(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CourseError, match=r"run\.json"):
        run._seed(tmp_path, "hw1", None)


@pytest.mark.parametrize("seed", ["abc", None, [1], -1, 10**30, 1.5, True])
def test_a_seed_is_a_number_in_its_range(tmp_path, seed):
    (tmp_path / "run.json").write_text(json.dumps({"assignment": "hw1", "seed": seed}))
    with pytest.raises(CourseError, match="it is a number from 0 to"):
        run._seed(tmp_path, "hw1", None)
    assert run._seed(tmp_path, "hw1", 5) == 5


def test_what_is_wrong_is_one_line(call, monkeypatch, tmp_path):
    monkeypatch.setattr(box, "sandbox", lambda: box.Sandbox("users"))
    code, _, said = call(tmp_path / "none", "--assignment", "hw1", "--out", tmp_path)
    assert code == 1 and said.count("\n") == 1 and "is not a folder" in said
    (tmp_path / "anna.ipynb").write_text("")
    code, _, said = call(tmp_path, "--assignment", "hw1", "--out", tmp_path / "grades")
    assert code == 1 and "would be a submission" in said
    code, _, said = call(tmp_path, "--assignment", "hw9", "--out", tmp_path.parent)
    assert code == 1 and "There is no assignment 'hw9'; there are: hw1" in said
    words = ("--assignment", "hw1", "--out", tmp_path.parent, "--due", "0001-01-01T00:00")
    code, _, said = call(tmp_path, *words)
    assert code == 1 and "is no date of our time" in said


def test_the_release_command_says_where_and_explains_itself(monkeypatch, capsys, tmp_path, hw1):
    monkeypatch.setattr(release.build, "__defaults__", (tmp_path,))
    monkeypatch.setattr(release, "Assignment", lambda name: hw1)
    release.main(["hw1"])
    assert f"{tmp_path / 'hw1'}: 7 questions, 100 points" in capsys.readouterr().out
    assert (tmp_path / "hw1" / "hw1.zip").exists()
    with pytest.raises(SystemExit):
        release.main(["--help"])
    told = capsys.readouterr().out
    assert (
        "usage: python -m classroom.grading.release [-h] [MASTER ...]" in told
        and "to hand out" in told
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no pseudo-terminal on Windows")
def test_a_killed_run_goes_on_where_it_stood(solved, tmp_path, monkeypatch):
    import pty

    monkeypatch.chdir(tmp_path)
    for name in ("anna", "ben", "cem", "dora"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "hw1.ipynb").write_text(nbformat.writes(solved), "utf-8")
    words = [
        sys.executable,
        "-m",
        "course_lib",
        "grade",
        "in",
        "--assignment",
        "hw1",
        "--out",
        "out",
        "--seed",
        "3",
    ]
    results, said = tmp_path / "out" / "results", []
    with subprocess.Popen(words) as first:
        while not any(results.glob("*.json")):
            time.sleep(0.1)
        first.kill()
    done = {path: path.stat().st_mtime_ns for path in results.glob("*.json")}
    # tqdm draws nothing where there are no rows
    words = ["sh", "-c", 'stty rows 24 cols 80; "$@"', "", *words]
    assert pty.spawn(words, lambda file: said.append(os.read(file, 10_000)) or said[-1]) == 0
    assert 0 < len(done) < 4 and all(path.stat().st_mtime_ns == then for path, then in done.items())
    assert b"4/4" in b"".join(said)
    _, *rows = (tmp_path / "out" / "grades.csv").read_text("utf-8-sig").splitlines()
    assert len(rows) == 4 and all(",graded,24,16,10,16,12,12,," in row for row in rows)
