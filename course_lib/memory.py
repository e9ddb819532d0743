"""The memory of a process that trains: how much there is, and how the C library hands it out.

glibc gives large freed buffers back to the system, and asks for them again at the next step. Each
time this costs some ten thousand page faults, about a tenth of a CPU's time. Two environment
variables tell it to keep the buffers. It reads them only when a process starts, so whoever starts
one sets them: the Makefile, the command line, the bench.
"""

import os
import sys
from collections.abc import Mapping

import psutil

KEEP_LARGE_BUFFERS: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "2147483647",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
}


def free_bytes() -> int:
    """The bytes that a process can still allocate without swapping."""
    return int(psutil.virtual_memory().available)


def restart_keeping_large_buffers() -> None:
    """Restart this command with the variables set. Do nothing if they are set, or not on Linux."""
    if sys.platform == "linux" and not KEEP_LARGE_BUFFERS.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **KEEP_LARGE_BUFFERS})
