"""The two commands: set up once, quick the second time, and one line of advice when something is
missing.
"""

import errno
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

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
  "-m pip --version") echo 'pip 25 from /there/pip (python {version})' ;;
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


def fake_venv(folder, says="", code=0, *, name=".venv", version=setup.VERSION):
    """An environment whose pip only notes that it was called, says something and exits so; returns
    the notes' file.
    """
    calls = folder / "calls"
    calls.write_text("")
    script = folder / name / "bin" / "python"
    script.parent.mkdir(parents=True, exist_ok=True)
    (script.parent.parent / "pyvenv.cfg").write_text("")
    words = {"calls": calls, "says": says, "code": code, "version": version}
    script.write_text(PIP.format(python=sys.executable, **words))
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


def test_another_place_for_the_environment(course):
    calls = fake_venv(course, name="an environment's $ place")
    for _ in range(2):
        done = make(course, "lab", COURSE_VENV="an environment's $ place")
        assert done.returncode == 0, done.stderr
    assert calls.read_text().splitlines()[-2:] == ["-m tools.lab"] * 2
    assert not (course / ".venv").exists()


def test_what_is_no_environment_is_never_removed(course):
    """A folder with a file, a file, a link, a link to nowhere: each is refused and stays."""
    thesis = course / "precious" / "chapters" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("keep")
    (course / "file").write_text("keep")
    (course / "link").symlink_to("precious")
    (course / "nowhere").symlink_to("gone")
    for name in ("precious", "file", "link", "nowhere"):
        assert "is no environment" in advice(make(course, "ready", COURSE_VENV=name))
    assert thesis.read_text() == (course / "file").read_text() == "keep"
    assert (course / "link").is_symlink() and (course / "nowhere").is_symlink()


@pytest.fixture
def made_by(course, monkeypatch):
    """Set up in this process, with a venv module that makes a fake; the lines of its calls."""

    def run(*command):
        if command[1:3] == ("-m", "venv"):
            fake_venv(course)
            command = ("true",)
        return subprocess.run(command, **setup.PIPED)

    monkeypatch.setattr(setup, "VENV", course / ".venv")
    monkeypatch.setattr(setup, "ROOT", course)
    monkeypatch.setattr(setup, "_run", run)
    return course / "calls"


def test_an_environment_of_another_python_is_made_again(course, made_by, capsys):
    fake_venv(course, version="3.9")
    (course / ".venv" / "old").write_text("")
    assert setup.main() == 0
    assert f"is of Python 3.9; it is made again with {setup.VERSION}" in capsys.readouterr().out
    assert not (course / ".venv" / "old").exists()
    # A set-up that stands is not kept silently where another Python is asked for.
    assert setup.ready()
    (course / ".venv" / ".ready").write_text(setup.stamp().replace(setup.VERSION, "3.9"))
    assert not setup.ready()


def test_the_beginning_of_an_environment_is_made_again(course, made_by):
    (course / ".venv" / "lib" / "python3").mkdir(parents=True)  # killed before pyvenv.cfg
    assert setup.main() == 0 and setup.ready()


def test_a_dollar_in_the_environment_s_path_is_said(course):
    said = advice(make(course.rename(course.parent / "a $course"), "ready"))
    assert "has a $ in it" in said and "COURSE_VENV" in said


def test_a_wrong_clock_is_no_missing_certificate():
    said = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
    assert "date and time" in setup._cause(f"{said}certificate is not yet valid (_ssl.c:1006)")
    assert "PIP_CERT" in setup._cause(f"{said}self-signed certificate in certificate chain")


def test_windows_waits_for_another_set_up_too(monkeypatch, tmp_path, capsys):
    held = iter(
        [PermissionError(errno.EACCES, "held"), PermissionError(errno.EACCES, "held"), None]
    )

    def locking(file, mode, count):
        error = next(held)
        if error is not None:
            raise error

    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "HAS_FLOCK", False)
    monkeypatch.setattr(setup, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with setup._alone():
        assert "Another set-up is running" in capsys.readouterr().out
    assert next(held, "all asked") == "all asked"


@pytest.mark.skipif(setup.fcntl is None, reason="needs flock")
def test_a_second_set_up_waits_for_the_first(course):
    calls = fake_venv(course)
    folder = os.open(course, os.O_RDONLY)
    setup.fcntl.flock(folder, setup.fcntl.LOCK_EX)
    second = subprocess.Popen(
        [sys.executable, "tools/setup.py"], cwd=course, stdout=subprocess.PIPE, text=True
    )
    assert "Another set-up is running" in second.stdout.readline()
    assert calls.read_text() == ""
    os.close(folder)
    assert second.wait(60) == 0 and calls.read_text() != ""
    second.stdout.close()


@pytest.mark.parametrize(
    ("word", "called"),
    [
        ("lab", "-m tools.lab"),
        ("test", "-m pytest -m not slow"),
        ("test-all", "-m pytest -m slow and not nightly"),
        ("test-nightly", "-m pytest -m slow"),
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
    ("error: could not create 'x': Read-only file system", "this disk can only be read"),
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
