"""The memory that is free, and a command line that starts anew once, with its variables set."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

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


def test_a_process_that_cannot_start_anew_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "execve", refuse)
    monkeypatch.setattr(os, "environ", {})
    memory.restart_keeping_large_buffers()


def group(folder: Path, limit: str, used: int, inactive: int, *, version: int) -> None:
    """The files of a control group."""
    limit_file, used_file, name = memory._V2 if version == 2 else memory._V1
    folder.mkdir(parents=True)
    (folder / limit_file).write_text(f"{limit}\n")
    (folder / used_file).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{name} {inactive}\nfile 9\n")


def of_process(folder: Path, line: str) -> Path:
    """A file that says in which groups a process is."""
    path = folder / "of_process"
    path.write_text(f"3:cpuset:/\n{line}\n")
    return path


def test_the_limits_of_all_groups_above_hold(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    group(top / "batch", "1000", 300, 50, version=2)
    group(top / "batch" / "job", "5000", 300, 0, version=2)
    group(top / "batch" / "job" / "step", "max", 1, 0, version=2)
    line = of_process(tmp_path, "0::/batch/job/step")
    assert list(memory._free_in_groups(top, line)) == [4700, 750]


def test_the_older_groups_hold_as_well(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    group(top / "memory" / "job", "2000", 600, 100, version=1)
    line = of_process(tmp_path, "4:cpu,memory:/job")
    assert list(memory._free_in_groups(top, line)) == [1500]


def test_a_container_sees_only_the_top_of_its_groups(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    group(top / "memory", "2000", 600, 0, version=1)
    line = of_process(tmp_path, "4:memory:/docker/1a2b")
    assert list(memory._free_in_groups(top, line)) == [1400]


def test_without_groups_the_machine_s_memory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(memory._free_in_groups(tmp_path, tmp_path / "none")) == []
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=800))
    for free, smaller in ([], 800), ([900, 700], 700), ([-5], 0):
        monkeypatch.setattr(memory, "_free_in_groups", lambda free=free: iter(free))
        assert memory.free_bytes() == smaller
