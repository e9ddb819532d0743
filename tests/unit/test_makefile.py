"""The two commands: set up once, quick the second time, and one line of advice when something is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import setup

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None or os.name == "nt", reason="needs make and a POSIX shell")

FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
PIP = """#!/bin/sh
case "$*" in
  "-m pip --version") exit 0 ;;
  "-m pip "*) echo "$*" >> '{calls}'; echo '{says}'; exit {code} ;;
  tools/setup.py) exec '{python}' tools/setup.py ;;
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
    """A .venv whose pip only notes that it was called, says something and exits so; returns the notes' file."""
    calls = folder / "calls"
    calls.touch()
    script = folder / ".venv" / "bin" / "python"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(PIP.format(calls=calls, says=says, code=code, python=sys.executable))
    script.chmod(0o755)
    return calls


def make(folder, *words, path=None, cwd="/"):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    if path is not None:
        env["PATH"] = str(path)
    return subprocess.run([MAKE, *words], capture_output=True, text=True, cwd=cwd, env=env, timeout=120)


def advice(done):
    """What was said on stderr, without make's own line; the command must have failed."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_set_up_once_from_another_folder(course):
    calls = fake_venv(course)
    for _ in range(2):
        done = make(course, "-C", str(course), "ready")
        assert done.returncode == 0, done.stderr
    assert len(calls.read_text().splitlines()) == 2  # the lock and the course itself, once
    with (course / "requirements.lock").open("a") as lock:
        lock.write("# another version\n")
    make(course, "-C", str(course), "ready")
    assert len(calls.read_text().splitlines()) == 4


def test_a_moved_course_is_set_up_again(course):
    fake_venv(course)
    make(course, "-C", str(course), "ready")
    moved = course.rename(course.parent / "elsewhere")
    calls = fake_venv(moved)
    calls.write_text("")
    assert make(moved, "-C", str(moved), "ready").returncode == 0
    assert len(calls.read_text().splitlines()) == 2


def test_full_disk(course):
    fake_venv(course, FULL, 1)
    done = make(course, "-C", str(course), "ready")
    assert "the disk is full: free about 3 GB" in advice(done)
    assert not (course / ".venv" / ".ready").exists()


def test_no_network(course):
    fake_venv(course, "WARNING: Retrying: NewConnectionError: Temporary failure in name resolution", 1)
    assert "package index cannot be reached" in advice(make(course, "-C", str(course), "ready"))


def test_unknown_failure_shows_its_last_line_and_the_log(course):
    fake_venv(course, "ERROR: something new", 1)
    said = advice(make(course, "-C", str(course), "ready"))
    assert "pip failed: ERROR: something new" in said
    assert "setup.log" in said


def test_no_python(course, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    said = advice(make(course, "-C", str(course), "ready", path=empty))
    assert "no Python 3.11 or newer was found" in said
    assert "PYTHON=/path/to/python3.11" in said


def test_wrong_python(course):
    said = advice(make(course, "-C", str(course), "ready", "PYTHON=/nowhere/python3"))
    assert "there is no Python at /nowhere/python3" in said


def test_makefile_named_from_elsewhere(course):
    done = make(course, "-f", str(course / "Makefile"), "lab")
    assert done.returncode != 0
    assert "make -C" in done.stderr


def _small_disk(path):
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    return hasattr(os, "geteuid") and os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


def test_a_really_small_disk(course, tmp_path):
    disk = tmp_path / "small disk"
    if not _small_disk(disk):
        pytest.skip("cannot mount a small file system here (needs root)")
    try:
        shutil.copytree(course, disk / "course")
        said = advice(make(course, "-C", str(disk / "course"), "ready", f"PYTHON={sys.executable}"))
        assert "the disk is full" in said
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_old_python_and_missing_venv_module(monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(sys, "version_info", (3, 10, 4))
        with pytest.raises(setup.SetupError, match=r"this is Python 3\.10\.4, the course needs 3\.11 or newer"):
            setup._check_machine()
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(setup.SetupError, match=r"no ensurepip module: install it .*python3-venv"):
        setup._check_machine()


def test_no_build_for_this_system():
    log = "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)"
    assert setup._cause(log).startswith("torch==2.13.0 has no build for this Python or system")


def test_unknown_lesson_is_one_sentence():
    command = [sys.executable, "-m", "tools.notebooks", "run", "99_nothing"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no lesson '99_nothing'. Say LESSON=<one of:")
    assert len(done.stderr.splitlines()) == 1


def test_help_names_every_command():
    text = (ROOT / "Makefile").read_text("utf-8")
    targets = text.split(".PHONY:")[1].splitlines()[0].split()
    said = make(ROOT, "-C", str(ROOT), "help").stdout
    assert [t for t in targets if t not in ("help", "ready") and f"make {t}" not in said] == []
