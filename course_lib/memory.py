"""The memory of a process that trains: how much there is, and how the C library hands it out.

glibc gives large freed buffers back to the system, and asks for them again at the next step. Each
time this costs some ten thousand page faults, about a tenth of a CPU's time. Two environment
variables tell it to keep the buffers. It reads them only when a process starts, so whoever starts
one sets them: the Makefile, the command line, the bench.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

KEEP_LARGE_BUFFERS: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "2147483647",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
}


# The files of a control group: limit, use, and the pages of files that can be given back. Version 2
# of Linux's control groups has other names than version 1.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_bytes() -> int:
    """The bytes that this process can still allocate: without swapping, and within its limit.

    A container, a batch system or systemd limits the memory of a control group (cgroup). Linux
    kills a process that goes beyond, however much memory the machine has.
    """
    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_free_in_groups()]))


def _free_in_groups(
    root: Path = Path("/sys/fs/cgroup"), of_process: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """The bytes that are free in each control group of this process that has a limit.

    Args:
        root: where the control groups are mounted.
        of_process: the file that names this process's groups, one a line: "0::/user.slice/job" in
            version 2, "4:memory:/job" in version 1.
    """
    try:
        lines = of_process.read_text().splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, files = root, _V2
        elif "memory" in controllers.split(","):
            top, files = root / "memory", _V1
        else:
            continue
        # The limits of the groups above hold as well. In a container the path may be that of the
        # machine outside, and only `top` is there.
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no limit: no such file, or the word "max"
                yield _free_in_group(folder, *files)
            if folder == top:
                break


def _free_in_group(group: Path, limit: str, used: str, inactive: str) -> int:
    """The bytes that are free in one control group.

    The group's use counts the pages of files that the system keeps for later. It gives up the
    inactive ones before it kills anybody.
    """
    free = int((group / limit).read_text()) - int((group / used).read_text())
    for line in (group / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == inactive:
            free += int(value)
    return free


def restart_keeping_large_buffers() -> None:
    """Restart this command with the variables set. Do nothing if they are set, or not on Linux."""
    if sys.platform == "linux" and not KEEP_LARGE_BUFFERS.keys() <= os.environ.keys():
        with suppress(OSError):  # not started again, it is only slower
            os.execve(sys.executable, sys.orig_argv, {**os.environ, **KEEP_LARGE_BUFFERS})
