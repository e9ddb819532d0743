"""The command line starts anew once, with the C library's variables set."""

import os
import sys

import pytest

from course_lib import memory


def test_a_process_starts_anew_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "execve", lambda *call: started.append(call))
    for name in memory.KEEP_LARGE_BUFFERS:
        monkeypatch.delenv(name, raising=False)

    memory.restart_keeping_large_buffers()
    [(program, words, environment)] = started
    assert (program, words) == (sys.executable, sys.orig_argv)
    assert environment.items() >= memory.KEEP_LARGE_BUFFERS.items()

    for name, value in memory.KEEP_LARGE_BUFFERS.items():
        monkeypatch.setenv(name, value)
    memory.restart_keeping_large_buffers()
    assert len(started) == 1


def test_elsewhere_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "execve", lambda *call: pytest.fail("started anew"))
    monkeypatch.setattr(os, "environ", {})
    memory.restart_keeping_large_buffers()
