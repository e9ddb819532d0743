"""The box's time limit, the choice of a box, and what is said where there is none."""

import contextlib
import os
import shutil
import sys

import pytest

from classroom.grading import box, memory, syscalls

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


WAY = box.sandbox()
KINDS = sorted({way.kind for way in box._ways()}) if WAY.boxed else []
no_box = pytest.mark.skipif(not WAY.boxed, reason=WAY.why)


def said(process, source, seconds=30):
    """What a cell prints, or the name of what it raises."""
    outputs = process.ask(seconds, do="run", source=source)["outputs"]
    return "".join(output.get("text") or output.get("ename", "") for output in outputs).strip()


@no_box
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("source", "says"),
    [
        # memory that belongs to no process
        ("import os\nos.memfd_create('x')", "OSError"),
        ("import ctypes\nprint(ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600))", "-1"),
        ("import ctypes\nprint(ctypes.CDLL(None).msgget(0, 0o1600))", "-1"),
        ("import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000))", "-1"),
        ("open('/dev/mine', 'w')", "OSError"),
        ("import mmap\nmmap.mmap(-1, 4096)", "PermissionError"),
        ("import mmap\nmmap.mmap(open('/dev/zero', 'r+b').fileno(), 4096)", "OSError"),
        ("import ctypes\nprint(ctypes.CDLL(None).vmsplice(1, 0, 0, 0))", "-1"),
        ("import socket\nsocket.socket()", "OSError"),
        ("import fcntl, os\nfcntl.fcntl(os.pipe()[1], 1031, 1 << 20)", "PermissionError"),
        # what all boxes have in common
        ("import ctypes\nprint(ctypes.CDLL(None).syscall(250, 0, -4, 1))", "-1"),
        ("import ctypes\nprint(ctypes.CDLL(None).inotify_init1(0))", "-1"),
        # and what has to work
        (
            "import subprocess\nprint(subprocess.run(['sh', '-c', 'echo on'], text=True))",
            "returncode=0",
        ),
        ("!echo hello", "hello"),
        (
            "import threading\nt = threading.Thread(target=print, args=(7,))\nt.start()\nt.join()",
            "7",
        ),
        ("import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))", "b'x'"),
        ("import asyncio\nawait asyncio.sleep(0)\nprint('slept')", "slept"),
        (
            "import mmap\nprint(mmap.mmap(-1, 9, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)[0])",
            "0",
        ),
        ("import multiprocessing\nprint(multiprocessing.Array('i', 3)[:])", "[0, 0, 0]"),
        ("import torch\nprint(torch.zeros(3).share_memory_().tolist())", "[0.0, 0.0, 0.0]"),
        ("import tempfile\nprint(tempfile.TemporaryFile().write(b'four'))", "4"),
        ("import fcntl\nprint(fcntl.flock(open('/usr/bin/env'), fcntl.LOCK_EX))", "None"),
    ],
)
def test_what_a_box_refuses_and_what_it_allows(boxes, kind, source, says):
    if kind not in boxes:
        pytest.skip("this machine has no such box")
    assert says in said(boxes[kind], source)


@pytest.fixture(scope="module")
def boxes():
    """A running box of each kind."""
    running = {}
    for kind in KINDS:
        with contextlib.suppress(box.GoneError):  # not possible on this machine
            running[kind] = box.Box(box.Sandbox(kind), box.Limits())
    yield running
    for process in running.values():
        process.close()


@no_box
def test_locks_of_one_box_are_not_seen_in_another():
    lock = "import fcntl\nmine = open('/usr/bin/env')\nfcntl.flock(mine, fcntl.LOCK_EX)"
    with box.Box(WAY, box.Limits()) as one, box.Box(WAY, box.Limits()) as other:
        assert said(one, lock) == said(other, lock) == ""


@no_box
def test_memory_of_every_kind_counts(boxes):
    process = boxes[WAY.kind]
    for source in (
        "held = open('/tmp/held', 'wb').write(bytes(100 * 2**20))",
        "for n in range(150_000):\n    open(f'/dev/shm/{n}', 'w').close()",
        "import socket\npairs = [socket.socketpair() for _ in range(240)]",
        "held = bytearray(b'x' * 100 * 2**20)",
    ):
        before = memory.used_memory(process._process.pid, 2**40, box.MEMORY_FOLDERS)
        said(process, source)
        after = memory.used_memory(process._process.pid, 2**40, box.MEMORY_FOLDERS)
        assert after - before > 90 * 2**20, source


@no_box
def test_a_box_that_hides_memory_is_stopped():
    source = "import os\nfor n in range(9):\n    open(f'/tmp/{n}', 'wb').write(bytes(19 * 2**20))"
    with box.Box(WAY, box.Limits()) as process:
        base = memory.used_memory(process._process.pid, 0, box.MEMORY_FOLDERS)
        process._memory = base + 120 * 2**20
        with pytest.raises(box.GoneError, match="too much memory"):
            process.ask(30, do="run", source=source + "\nimport time\ntime.sleep(20)")


def test_the_filter_is_made_for_known_processors():
    for machine in syscalls.PROCESSORS:
        rules = syscalls.program(machine)
        assert rules and len(rules) % 8 == 0
    assert syscalls.program("vax") == b""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted on Linux")
def test_a_process_that_hides_its_descriptors_counts_as_one_that_has_them_all(monkeypatch):
    def refuse(self):
        raise PermissionError

    monkeypatch.setattr(memory, "_family", lambda process: {process})
    before = memory.used_memory(os.getpid(), 2**40)
    monkeypatch.setattr(memory.Path, "iterdir", refuse)
    hidden = memory.used_memory(os.getpid(), 2**40) - before
    assert hidden > 0.7 * memory.DESCRIPTORS * memory._buffer_bytes()
