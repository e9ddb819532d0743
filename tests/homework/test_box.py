"""The box's clock on a busy machine, the choice of a box, and what is said where there is none."""

import os
import shutil

import pytest

from course_lib.grade import box


@pytest.mark.parametrize(("load", "expected"), [(0.1, 1.0), (4.0, 2.0), (90.0, 4.0)])
def test_a_busy_machine_gives_more_time(monkeypatch, load, expected):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert box.patience() == expected


def test_no_load_figure_is_no_error(monkeypatch):
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert box.patience() == 1.0


@pytest.fixture
def fresh():
    """Ask again which box there is."""
    box.sandbox.cache_clear()
    yield
    box.sandbox.cache_clear()


def test_without_bubblewrap_the_reason_is_given(monkeypatch, fresh):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    way = box.sandbox()
    assert not way.boxed and ("apt install bubblewrap" in way.why or "no bubblewrap" in way.why)


@pytest.mark.skipif(os.name == "nt", reason="there is no bubblewrap on Windows")
def test_a_bubblewrap_that_may_not_start_is_the_reason(monkeypatch, fresh, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'no permission' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(box.sys, "platform", "linux")
    way = box.sandbox()
    assert not way.boxed and "bubblewrap cannot start here" in way.why
