"""The two commands: set up once, quick the second time, and one line of advice when something is
missing.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tools import setup
from tools.notebooks import ROOT
from tools.notebooks import __main__ as notebooks

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(
    MAKE is None or os.name == "nt", reason="needs make and a POSIX shell"
)

PIP = """#!/bin/sh
case "$*" in
  "-m pip --version") exit 0 ;;
  "-m pip "*) echo "$*" >> '{calls}'; echo '{says}'; exit {code} ;;
  tools/setup.py) exec '{python}' tools/setup.py ;;
  *) echo "$*" >> '{calls}' ;;
esac
"""


@pytest.fixture
def course(tmp_path):
    """A copy of what the set-up needs, in a path with spaces."""
    folder = tmp_path / "my courses" / "language models"
    (folder / "tools").mkdir(parents=True)
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "tools/setup.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def fake_venv(folder, says="", code=0):
    """A .venv whose pip only notes that it was called, says something and exits so; returns the
    notes' file.
    """
    calls = folder / "calls"
    calls.write_text("")
    script = folder / ".venv" / "bin" / "python"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(PIP.format(calls=calls, says=says, code=code, python=sys.executable))
    script.chmod(0o755)
    return calls


def make(folder, *words, **changes):
    """From another folder, as `make -C` is called."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")} | changes
    return subprocess.run(
        [MAKE, "-C", str(folder), *words], capture_output=True, text=True, cwd="/", env=env
    )


def advice(done):
    """What was said on stderr, without make's own line; the command must have failed."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_set_up_once_again_with_another_lock_and_again_where_it_was_moved(course):
    calls = fake_venv(course)
    for _ in range(2):
        done = make(course, "ready")
        assert done.returncode == 0, done.stderr
    assert (
        len(calls.read_text().splitlines()) == 3
    )  # the lock, the course and its public model, once
    with (course / "requirements.lock").open("a") as lock:
        lock.write("# another version\n")
    make(course, "ready")
    assert len(calls.read_text().splitlines()) == 6
    moved = course.rename(course.parent / "elsewhere")
    calls = fake_venv(moved)
    assert make(moved, "ready").returncode == 0 and len(calls.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("word", "called"),
    [
        ("lab", "-m tools.lab"),
        ("test", "-m pytest -m not slow"),
        ("test-all", "-m pytest -m slow"),
        ("check", "-m pytest tests -m not slow and not notebooks and not browser"),
        (
            "run,DATA=it's a book.txt,LESSON=o'k; ls,MODEL=m'",
            (
                "-m tools.notebooks run o'k; ls --scale lesson --seed 0"
                " --data it's a book.txt --device auto --model m'"
            ),
        ),
    ],
)
def test_a_newcomer_s_command_sets_up_and_runs(course, word, called):
    calls = fake_venv(course)
    done = make(course, *word.split(","))
    assert done.returncode == 0, done.stderr
    *installed, last = calls.read_text().splitlines()
    assert len(installed) == 3 and last == called


PIPS = [  # what pip says last, and what is made of it
    ("OSError: [Errno 28] No space left on device", "the disk is full: free about 3 GB"),
    (
        "WARNING: Retrying: NewConnectionError: Temporary failure in name resolution",
        "package index cannot be reached",
    ),
    ("ERROR: something new", "pip failed: ERROR: something new (the whole log: "),
    (
        (
            "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from"
            " versions: none)"
        ),
        "torch==2.13.0 has no build for this Python or system",
    ),
]


@pytest.mark.parametrize(("says", "words"), PIPS)
def test_what_stops_pip_is_one_sentence(course, says, words):
    fake_venv(course, says, 1)
    said = advice(make(course, "ready"))
    assert words in said, said
    assert not (course / ".venv" / ".ready").exists()


def test_no_python_or_another(course, tmp_path):
    said = advice(make(course, "ready", PATH=str(tmp_path)))
    assert "no Python 3.11 or newer was found" in said and "PYTHON=/path/to/python3.11" in said
    assert "there is no Python at /nowhere/python3" in advice(
        make(course, "ready", "PYTHON=/nowhere/python3")
    )


def test_build_takes_a_lesson_or_a_deck(course):
    calls = fake_venv(course)
    for words in ("LESSON=09_bert", "DECK=1_attention"):
        done = make(course, "build", words)
        assert done.returncode == 0, done.stderr
    builds = [call for call in calls.read_text().splitlines() if " build " in call]
    assert builds == ["-m tools.notebooks build 09_bert", "-m tools.slides build 1_attention"]


def test_makefile_named_from_elsewhere(course):
    done = subprocess.run(
        [MAKE, "-f", str(course / "Makefile"), "lab"], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode != 0 and "make -C" in done.stderr


def test_old_python_and_missing_venv_module(monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(sys, "version_info", (3, 10, 4))
        with pytest.raises(
            setup.SetupError, match=r"this is Python 3\.10\.4, the course needs 3\.11 or newer"
        ):
            setup._check_machine()
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(setup.SetupError, match=r"no ensurepip module: install it .*python3-venv"):
        setup._check_machine()


def test_an_unknown_lesson_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tools.notebooks", "run", "99"])
    with pytest.raises(SystemExit) as ended:
        notebooks.main()
    assert ended.value.code == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("There is no lesson '99'. Say LESSON=<one of:")


CALLED = """#!/bin/sh
case "$*" in
  *test-all) echo '===== {all} in 3.10s (0:00:03) =====' ;;
  *test) echo '===== {test} in 2.00s ====='; exit {code} ;;
esac
"""


@pytest.mark.parametrize(
    ("test", "all_of_it", "code", "last"),
    [
        ("5 passed", "2 passed, 1 xfailed", 0, "2 passed, 1 xfailed"),
        ("1 failed, 4 passed", "2 passed", 2, "1 failed, 4 passed"),
    ],
)
def test_ci_runs_both_parts_and_ends_with_what_failed(tmp_path, test, all_of_it, code, last):
    folder = tmp_path / "a course"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    for name in ("make", "chromium", "bwrap"):
        (tmp_path / name).write_text(CALLED.format(test=test, all=all_of_it, code=code))
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", folder / ".ci" / "run"], capture_output=True, text=True, env=env)
    assert bool(done.returncode) == bool(code), done.stderr
    lines = done.stdout.splitlines()
    assert last in lines[-1]
    ends = {f"===== {test} in 2.00s =====", f"===== {all_of_it} in 3.10s (0:00:03) ====="}
    assert {line for line in lines if "passed" in line} == ends


def test_help_names_every_command():
    text = (ROOT / "Makefile").read_text("utf-8")
    targets = text.split(".PHONY:")[1].splitlines()[0].split()
    said = make(ROOT, "help").stdout
    assert [t for t in targets if t not in ("help", "ready") and f"make {t}" not in said] == []
