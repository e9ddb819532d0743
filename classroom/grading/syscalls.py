"""The system calls that a box may not make, as a filter that bubblewrap hands to the kernel.

Four kinds are refused:

    memory that belongs to no process    memfd, shared segments and mappings, message queues, pages
                                         given to a pipe, network sockets, a nested namespace with
                                         a file system of its own
    what all boxes have in common        the kernel's keyring, locks and watches on shared files
    ways around this filter              io_uring, other architectures' calls
    what no homework needs               tracing, performance counters, the kernel's log

A refused call fails as on a system that does not have it, so libraries take their other way. A
lock and the wish for a larger buffer are only said to have worked. See seccomp(2); the numbers
are those of Linux's `unistd.h`.
"""

import errno
import platform
import struct
from collections.abc import Iterator, Sequence

# name: (number on x86-64, on ARM64); -1: that processor has no such call
REFUSED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),  # the C library then uses `clone`, whose flags can be read
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "vmsplice": (278, 75),
    "io_setup": (206, 0),  # the whole machine has so many of these
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "syslog": (103, 116),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}
PRETENDED = {"flock": (73, 32)}  # done, says the filter, and nothing happens
CLONE, SOCKET, SETSOCKOPT, FCNTL, MMAP = (56, 220), (41, 198), (54, 208), (72, 25), (9, 222)

NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET
UNIX = 1  # AF_UNIX, the only sockets whose memory is counted
BUFFER_SIZES = (7, 8)  # SO_SNDBUF, SO_RCVBUF
SHARED_FILE = (6, 7, 37, 38, 1024, 1026)  # locks of two kinds, F_SETLEASE, F_NOTIFY
PIPE_SIZE = (1031,)  # F_SETPIPE_SZ
SHARED_MEMORY = 0x21  # MAP_SHARED and MAP_ANONYMOUS: it stays when no process has it mapped

# Instructions of the kernel's filter machine: linux/filter.h, linux/seccomp.h.
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in what the filter is given
PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
OTHER_ABI = 0x40000000  # from here on: x86-64's second set of numbers

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def program(machine: str = "") -> bytes:
    """The filter for this processor; b"" where its numbers are not known.

    Args:
        machine: as `platform.machine()` calls it; by default this one.
    """
    machine = machine or platform.machine()
    if machine not in PROCESSORS:
        return b""
    column, architecture = PROCESSORS[machine]
    rules: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        rules += [(AT_LEAST, 0, 1, OTHER_ABI), (RETURN, 0, 0, KILL)]
    for numbers in REFUSED.values():
        rules += [(EQUAL, 0, 1, numbers[column] & 0xFFFFFFFF), _answer(errno.ENOSYS)]
    for numbers in PRETENDED.values():
        rules += [(EQUAL, 0, 1, numbers[column]), _answer(0)]
    new_namespace = [(ANY_BIT, 0, 1, NEW_NAMESPACES), _answer(errno.EPERM)]
    rules += _where(CLONE[column], 0, new_namespace)
    network = [(EQUAL, 1, 0, UNIX), _answer(errno.ENETUNREACH)]
    rules += _where(SOCKET[column], 0, network)
    shared = [(AND, 0, 0, SHARED_MEMORY), *_one_of([SHARED_MEMORY], errno.EPERM)]
    rules += _where(MMAP[column], 3, shared)
    rules += _where(SETSOCKOPT[column], 2, _one_of(BUFFER_SIZES, 0))
    rules += _where(FCNTL[column], 1, _one_of(SHARED_FILE, 0))
    rules += _where(FCNTL[column], 1, _one_of(PIPE_SIZE, errno.EPERM))
    rules.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *rule) for rule in rules)


def _answer(error: int) -> Instruction:
    """Refuse the call with this error; 0: say that it has worked."""
    return RETURN, 0, 0, ERROR | error


def _one_of(values: Sequence[int], error: int) -> list[Instruction]:
    """Refuse the call where the argument that was loaded is one of these."""
    tests: list[Instruction] = []
    for value in values:
        tests += [(EQUAL, 0, 1, value), _answer(error)]
    return tests


def _where(number: int, argument: int, tests: list[Instruction]) -> Iterator[Instruction]:
    """Tests of an argument's lower half, for one system call."""
    yield EQUAL, 0, len(tests) + 1, number
    yield LOAD, 0, 0, ARGUMENTS + 8 * argument
    yield from tests
    yield LOAD, 0, 0, NUMBER
