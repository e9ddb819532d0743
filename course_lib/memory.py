"""How the C library hands out memory to a process that trains.

glibc gives large freed buffers back to the system, and asks for them anew at the next step: some
ten thousand page faults each time, about a tenth of a CPU's time. Two environment variables tell it
to keep them. They count from a process's start, so whoever starts one sets them: the Makefile, the
command line, the bench."""

import os
import sys
from collections.abc import Mapping

KEEP_LARGE_BUFFERS: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "2147483647",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
}


def restart_keeping_large_buffers() -> None:
    """Start this very command anew with the variables set, unless they are, or it is not Linux."""
    if sys.platform == "linux" and not KEEP_LARGE_BUFFERS.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **KEEP_LARGE_BUFFERS})
