"""`make lab` on odd machines: a taken port, a home that cannot be written."""

import os
import socket
import subprocess
import sys

import pytest

from course_lib.errors import CourseError
from tools import home, lab


def test_a_port_that_is_bound_and_silent_is_taken(monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # no listen(): nobody can connect to it
        taken = silent.getsockname()[1]
        monkeypatch.setattr(lab, "PORTS", [taken])
        with pytest.raises(CourseError, match="in use"):
            lab.free_port()
    assert lab.free_port() == taken


@pytest.fixture
def no_home(tmp_path, monkeypatch):
    """A home that is a file: not even root can write in it."""
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setattr(home, "HOME", tmp_path / "build")
    for name in home.FOLDERS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_home_that_cannot_be_written_is_replaced_and_said(no_home, tmp_path):
    assert str(tmp_path / "home") in home.ensure()
    # Notebooks can be signed then: in a process of its own, for Jupyter remembers its folders.
    code = "from nbformat.sign import NotebookNotary as N; print(N().data_dir)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "build" / "jupyter"), done.stderr


def test_a_home_that_can_be_written_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    before = dict(os.environ)
    assert home.ensure() is None and dict(os.environ) == before
