"""How much memory a box holds, where no cgroup counts it: all that Linux lends to its processes.

    pages      of each process, also those that were swapped out
    buffers    of its sockets, pipes and terminals
    files      in its folders, which are memory, and the names of empty ones

What belongs to no process cannot be had in a box: see `syscalls.py`.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

FIELDS = re.compile(rb"\n(?:VmRSS|VmSwap|VmPTE|HugetlbPages):\s+(\d+)")
SHARED_ONCE = re.compile(rb"\n(?:Pss|SwapPss):\s+(\d+)")
BUFFERS = ("socket:", "pipe:", "/dev/pt")  # the last are terminals
DESCRIPTORS = 512  # that one process may open
FILE_BYTES = 1024  # of the kernel for a file's name and its entry, beside what is in it


def used_memory(process: int, limit: int, folders: Iterable[str] = ()) -> int:
    """Bytes that a process and all that come from it hold (on Linux; elsewhere 0).

    Beyond `limit` they are counted exactly: what several share, once.

    Args:
        process: the first of them.
        limit: in bytes.
        folders: where the box keeps files in memory, as the box calls them.
    """
    if sys.platform != "linux":
        return 0
    family = _family(process)
    kept = _buffers(family) + _files(family, folders)
    held: dict[int, int] = {}
    # The second is exact and takes longer, so it is read only where the first is too much.
    for file, fields in (("status", FIELDS), ("smaps_rollup", SHARED_ONCE)):
        for each in family:
            try:
                kilobytes = fields.findall(Path(f"/proc/{each}/{file}").read_bytes())
            except (FileNotFoundError, ProcessLookupError):
                held.pop(each, None)  # it has ended
                continue
            except OSError:  # it may not be read: what was found first stays
                continue
            if kilobytes:
                held[each] = 1024 * sum(map(int, kilobytes))
        if kept + sum(held.values()) <= limit:
            break
    return kept + sum(held.values())


def _family(process: int) -> set[int]:
    """A process and all that it and they have started."""
    parents: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        # no process, or it has just ended
        with contextlib.suppress(OSError, ValueError, IndexError):
            after_the_name = (place / "stat").read_bytes().rpartition(b")")[2].split()
            parents[int(place.name)] = int(after_the_name[1])
    family: set[int] = set()
    found = {process}
    while found:
        family |= found
        found = {child for child, parent in parents.items() if parent in family} - family
    return family


def _buffers(family: set[int]) -> int:
    """What open sockets, pipes and terminals can hold at most; a shared one counts once."""
    opened: set[str] = set()
    unseen = 0
    for process in family:
        try:
            links = list(Path(f"/proc/{process}/fd").iterdir())
        except PermissionError:  # it hides them: it may have as many as its limit allows
            unseen += DESCRIPTORS
            continue
        except OSError:  # it has just ended
            continue
        for link in links:
            with contextlib.suppress(OSError):
                opened.add(str(link.readlink()))
    return _buffer_bytes() * (unseen + sum(name.startswith(BUFFERS) for name in opened))


@cache
def _buffer_bytes() -> int:
    """What one socket takes before it says that it is full."""
    try:
        return int(Path("/proc/sys/net/core/wmem_default").read_text())
    except (OSError, ValueError):
        return 212_992  # Linux's own


def _files(family: set[int], folders: Iterable[str]) -> int:
    """What lies in these folders of the box."""
    root = _root(family)
    total = 0
    for folder in folders if root else ():
        with contextlib.suppress(OSError):
            of = os.statvfs(root + folder)
            total += (of.f_blocks - of.f_bfree) * of.f_frsize
            total += (of.f_files - of.f_ffree) * FILE_BYTES
    return total


def _root(family: set[int]) -> str:
    """The box's own root as a path of this system, "" where no process is in it (yet)."""
    ours = Path("/").stat()
    for process in family:
        root = f"/proc/{process}/root"
        with contextlib.suppress(OSError):
            theirs = Path(root).stat()
            if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
                return root
    return ""
