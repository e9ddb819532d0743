"""The box: one process for one student's code, without a network, without others' files, within
limits.

On Linux with bubblewrap the process sees an empty home, this Python and the course's code, all else
is absent. It runs without rights in namespaces of its own, and killing it kills all it has started.
Elsewhere it is a plain subprocess with limits."""

import contextlib
import functools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from classroom.grading import syscalls, wire
from classroom.grading.memory import used_memory
from course_lib.errors import CourseError
from course_lib.files import COURSE

NOBODY = 65534
UNNAMED = 60_000  # and the numbers above: users that no system gives out; one a grading process
HOME = "/home/student"
MEMORY_FOLDERS = ("/dev/shm", "/tmp", HOME)  # noqa: S108  of the box; what is in them is memory
# a guard against a hang: Python and torch may start slowly, and no student's code runs yet
START_SECONDS = 600
# how much longer than its processor time something may take by the clock: other programs run, too
PATIENCE = 10
LATE = "ran past its time and was stopped"
FULL = "used too much memory, in all its processes together, and was stopped"
LOOK = 0.2  # seconds between two looks at the memory
# systemd-run finds systemd by them; they go no further
BUS = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
# of the grader's environment; nothing else goes in
GIVEN = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG")


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Seconds are of processor time; `PATIENCE` times as many by the
    clock.
    """

    seconds: float = 180.0  # in all
    cell_seconds: float = 20.0  # for one cell, or for one function's tests
    memory_gb: float = 6.0  # of all processes together; and the address space of each
    file_mb: int = 200  # one file, and all files together
    processes: int = 128  # and threads; by bubblewrap only
    restarts: int = 5  # of a process that died


class Sandbox(NamedTuple):
    """How processes are shut in.

    Attributes:
        kind: by bubblewrap with a user namespace ("users"), by bubblewrap where the grader is root
            ("root": the process changes to a user without a name, whose processes can be counted),
            or not at all ("plain").
        why: where plain, the reason, for the warning.
        cgroup: whether systemd can keep the memory of all its processes together within the limit;
            else it is counted.
    """

    kind: Literal["root", "users", "plain"]
    why: str = ""
    cgroup: bool = False

    @property
    def boxed(self) -> bool:
        """By bubblewrap, either way."""
        return self.kind != "plain"


class GoneError(Exception):
    """The process died, or did something that ends it; the message says what, for the student.

    Attributes:
        how: the exit status or signal, which the student's code can choose. It may be told of a
            cell, never of a call with hidden inputs.
    """

    def __init__(self, says: str, how: str = "") -> None:
        super().__init__(says)
        self.how = how


@functools.cache
def sandbox() -> Sandbox:
    """The strongest sandbox that this machine allows; each is tried once."""
    if sys.platform != "linux":
        return Sandbox("plain", "this system has no bubblewrap")
    if shutil.which("bwrap") is None:
        return Sandbox(
            "plain", "bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap)"
        )
    why = ""
    for way in _ways():
        try:
            with Box(way, Limits()) as box:
                box.ask(START_SECONDS / PATIENCE, do="run", source="open('tried', 'w').close()")
                return way
        except (GoneError, OSError) as error:
            if not way.cgroup:  # with systemd it may be systemd that fails
                why = why or f"{error} {getattr(error, 'how', '')}".strip()
    return Sandbox("plain", f"bubblewrap cannot start here: {why}")


def chosen() -> Sandbox:
    """The strongest sandbox of this machine.

    Raises:
        CourseError: there is none, and the superuser asks: a student's code could do anything.
    """
    way = sandbox()
    if not way.boxed and hasattr(os, "getuid") and os.getuid() == 0:
        raise CourseError(
            f"{way.why}; as root, students' code could do anything here. Install or allow"
            " bubblewrap, grade as another user, or say --no-box where this machine holds nothing"
            " else."
        )
    return way


def _ways() -> Iterator[Sandbox]:
    """All ways to start bubblewrap here, the strongest first."""
    kinds: list[Literal["root", "users"]] = ["users"]
    if os.getuid() == 0:
        kinds = ["root", "users"]
    cgroups = [True, False] if shutil.which("systemd-run") else [False]
    for kind in kinds:
        for cgroup in cgroups:
            yield Sandbox(kind, cgroup=cgroup)


class Box:
    """A running process of `worker.py`.

    Args:
        way: how it is shut in.
        limits: what it may use.
        files: copied into (plain) or shown in (boxed) its home.
    """

    def __init__(self, way: Sandbox, limits: Limits, files: tuple[Path, ...] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="homework-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        if not way.boxed:
            for file in files:
                shutil.copy(file, folder / file.name)
        self._memory = int(limits.memory_gb * 2**30)
        self._folders = MEMORY_FOLDERS if way.boxed else ()
        with tempfile.TemporaryFile() as rules:
            rules.write(syscalls.program())
            rules.seek(0)
            self._process = subprocess.Popen(
                [*_prefix(way, limits, files, rules.fileno()), *_program(way, limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/" if way.boxed else folder,
                env=_environment(way, folder),
                start_new_session=True,
                pass_fds=(rules.fileno(),) if way.boxed else (),
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        # answers; or None, where it ended, or a sentence of ours, where it was ended
        self._answers: queue.Queue[dict[str, Any] | str | None] = queue.Queue(maxsize=4)
        threading.Thread(target=self._listen, daemon=True).start()
        self._number = 0  # of the last request
        self._wait(0, time.monotonic() + START_SECONDS)

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; GoneError, and the end of the process, where none
        comes in time. seconds: of processor time, which the process limits for itself (not on
        Windows)."""
        self._number += 1
        with contextlib.suppress(OSError):  # it died; what follows says how
            wire.write(self._to, {"id": self._number, "seconds": seconds, **request})
        return self._wait(self._number, time.monotonic() + PATIENCE * seconds)

    def close(self) -> None:
        """Kill the process and all that it has started."""
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._to.close()
        self._folder.cleanup()

    def _wait(self, number: int, until: float) -> dict[str, Any]:
        """The answer to a request; GoneError where none comes in time, or the process ends.

        Args:
            number: of the request; answers to earlier ones are dropped.
            until: the time by the clock.
        """
        pause = LOOK
        while True:
            left = until - time.monotonic()
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=max(0.0, min(left, pause)))
                if answer is None:
                    self._leave(*self._death())
                if isinstance(answer, str):
                    self._leave(answer)
                if type(answer.get("id")) is int and answer["id"] == number:
                    return answer
            began = time.thread_time()
            if left <= 0:
                self._leave(LATE)
            if used_memory(self._process.pid, self._memory, self._folders) > self._memory:
                self._leave(FULL)
            # so a look costs no more than a fiftieth
            pause = max(LOOK, 50 * (time.thread_time() - began))

    def _leave(self, why: str, how: str = "") -> NoReturn:
        self.close()
        raise GoneError(why, how)

    def _listen(self) -> None:
        """Put what the process says into the queue; None or a sentence at the end.

        Whatever a student's code has written there is data: anything but a dict ends the process.
        """
        with self._from as pipe, contextlib.suppress(OSError, ValueError):
            try:
                message = wire.read(pipe)
                while message is not None:
                    if type(message) is not dict:
                        raise wire.BrokenFrameError("an answer is a dict")
                    self._answers.put(message)
                    message = wire.read(pipe)
                self._answers.put(None)
            except wire.BrokenFrameError:
                self._answers.put("wrote into the grader's own channel and was stopped")

    def _death(self) -> tuple[str, str]:
        """How the process ended, for the student; and its exit status or signal."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed the grader's own channel and was stopped", ""
        killer = -code if code < 0 else code - 128
        if killer == getattr(signal, "SIGXCPU", None):
            return LATE, ""
        how = f"signal {killer}" if killer > 0 else f"exit status {code}"
        return "ended Python itself", how


# Of the system, what is shown; /usr/local and /usr/src may hold a teacher's own.
SYSTEM = (
    *(
        f"/usr/{name}"
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "local/lib")
    ),
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"),
)
# Of the environment in the box, whatever the grader's is.
FIXED = {
    "USER": "student",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "PIP_NO_INDEX": "1",
    "NO_COLOR": "1",
}


def _program(way: Sandbox, limits: Limits) -> list[str]:
    """The command line of the worker, with the limits that it sets for itself."""
    own = {
        "memory": int(limits.memory_gb * 2**30),
        "file": limits.file_mb * 2**20,
        "processes": limits.processes if way.boxed else 0,
        "user": UNNAMED + os.getpid() % 5000 if way.kind == "root" else 0,
    }
    return [sys.executable, "-m", "classroom.grading.worker", json.dumps(own)]


def _environment(way: Sandbox, folder: Path) -> dict[str, str]:
    """All that the process finds in its environment."""
    home, course, temporary = HOME, "/course", "/tmp"  # noqa: S108
    if not way.boxed:
        home, course, temporary = str(folder), str(COURSE), str(folder)
    given = GIVEN + BUS if way.cgroup else GIVEN
    kept = {name: os.environ[name] for name in given if name in os.environ}
    places = dict.fromkeys(("HOME", "IPYTHONDIR", "MPLCONFIGDIR"), home)
    return kept | FIXED | places | {"TMPDIR": temporary, "PYTHONPATH": course}


def _prefix(way: Sandbox, limits: Limits, files: tuple[Path, ...], rules: int) -> list[str]:
    """What goes before the program to shut it in.

    Args:
        way: how.
        limits: of the whole box.
        files: shown in its home.
        rules: the descriptor from which the filter of system calls is read.
    """
    words = _group(limits) if way.cgroup else []
    if way.boxed:
        words += _bubblewrap(way, files, limits.file_mb)
        if syscalls.program():
            words += ["--seccomp", str(rules)]
        words.append("--")
    return words


def _bubblewrap(way: Sandbox, files: tuple[Path, ...], megabytes: int) -> list[str]:
    """The bubblewrap command line up to the filter and the program."""
    words = ["bwrap", "--die-with-parent", "--new-session", *_namespaces(way)]
    words += ["--dir", "/etc"]
    for name in BUS:
        words += ["--unsetenv", name]
    for place in SYSTEM:
        words += _folders_above(place)
        if Path(place).is_symlink():
            words += ["--symlink", str(Path(place).readlink()), place]
        elif Path(place).exists():
            words += ["--ro-bind", place, place]
    # mapped and shared, /dev/zero would be memory that belongs to no process
    words += ["--proc", "/proc", "--dev", "/dev", "--dev-bind", "/dev/null", "/dev/zero"]
    for place in MEMORY_FOLDERS:
        words += ["--perms", "1777", "--size", str(megabytes * 2**20), "--tmpfs", place]
    words += ["--remount-ro", "/dev"]  # it is memory, too, of any size
    # After the empty places: this Python may itself live under /home or /tmp.
    sources = {place: place for place in _python_places()}
    for part in ("course_lib", "classroom", "data/checkpoints", "data/adapters"):
        sources[f"/course/{part}"] = str(COURSE / part)
    for place, source in sources.items():
        words += [*_folders_above(place), "--ro-bind", source, place]
    for file in files:
        words += ["--ro-bind", str(file), f"{HOME}/{file.name}"]
    return [*words, "--remount-ro", "/", "--chdir", HOME]


def _folders_above(place: str) -> list[str]:
    """Make the folders on the way to a place, open to all.

    Made by --ro-bind itself, nobody but root could pass through them.
    """
    words = []
    for above in reversed(Path(place).parents[:-1]):
        words += ["--dir", str(above)]
    return words


def _namespaces(way: Sandbox) -> list[str]:
    """What the process has of its own, and which rights and user."""
    unshared = ["--unshare-all"]
    rights = ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    if way.kind == "root":
        # all but the user namespace; `worker.py` changes the user, and with that loses these two
        unshared = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        rights = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*unshared, "--hostname", "box", "--cap-drop", "ALL", *rights]


def _group(limits: Limits) -> list[str]:
    """What goes before bubblewrap so that systemd gives the processes a cgroup with a limit."""
    words = ["systemd-run"]
    if os.getuid() != 0:
        words.append("--user")
    words += ["--scope", "--quiet", "--collect"]
    words += ["-p", f"MemoryMax={int(limits.memory_gb * 2**30)}", "-p", "MemorySwapMax=0"]
    return [*words, "--"]


def _python_places() -> list[str]:
    """Folders of this Python and its environment that the system's do not contain."""
    executable = Path(sys.executable).resolve().parent.parent
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    wanted = {executable, *map(Path, prefixes)} - {Path("/"), Path("/usr")}
    shown = [Path(place) for place in SYSTEM if place.startswith("/usr")]
    return sorted(str(path) for path in wanted if not any(map(path.is_relative_to, shown)))
