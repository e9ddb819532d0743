"""The box's time limit, the choice of a box, and what is said where there is none."""

import os
import shutil

import pytest

from classroom.grading import box

GROUP = '#!/bin/sh\necho "$@" > {}\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'


@pytest.mark.skipif(os.name == "nt", reason="Windows limits no processor time")
def test_processor_time_counts_and_a_slow_machine_s_clock_does_not():
    with box.Box(box.Sandbox("plain"), box.Limits()) as process:
        assert process.ask(1, do="run", source="import time\ntime.sleep(2)")["took"] < 1
        with pytest.raises(box.GoneError, match="ran past its time"):
            process.ask(1, do="run", source="while True:\n    pass")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no systemd")
def test_systemd_is_asked_for_a_group_that_limits_memory(monkeypatch, tmp_path):
    (fake := tmp_path / "systemd-run").write_text(GROUP.format(tmp_path / "asked"))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with box.Box(box.Sandbox("plain", cgroup=True), box.Limits(memory_gb=3)) as process:
        assert "took" in process.ask(9, do="run", source="1")
    words = (tmp_path / "asked").read_text().split()
    assert {f"MemoryMax={3 * 2**30}", "MemorySwapMax=0"} <= {*words} and ("--user" in words) == (
        os.getuid() != 0
    )


@pytest.mark.skipif(os.name == "nt", reason="there is no bubblewrap on Windows")
@pytest.mark.parametrize(
    ("program", "says"),
    [("", "apt install bubblewrap"), ("#!/bin/sh\nexit 1\n", "bubblewrap cannot start here")],
)
def test_the_reason_why_there_is_no_box(monkeypatch, tmp_path, program, says):
    box.sandbox.cache_clear()
    fake = tmp_path / "bwrap"
    if program:
        fake.write_text(program)
        fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake) if program else None)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(box.sys, "platform", "linux")
    way = box.sandbox()
    box.sandbox.cache_clear()
    assert not way.boxed and says in way.why
