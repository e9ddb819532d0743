"""Make the course's environment: .venv with the locked packages. Standard library only.

    python3 tools/setup.py          # what `make lab`, `make test` and the others run first

Done once, a second run takes a few hundredths of a second: a stamp holds what was installed.
Whatever goes wrong ends in one line that says why and what to do; the log of the installation stays
in .venv/setup.log. COURSE_VENV=FOLDER names another place than .venv."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # everywhere but on Windows
    msvcrt = None  # type: ignore[assignment]

HAS_FLOCK: bool = fcntl is not None  # else the locks of Windows
ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LEAST_PYTHON = (3, 11)
VERSION = ".".join(map(str, sys.version_info[:2]))  # of the Python that runs this
LEAST_FREE = 3_000_000_000  # bytes; the CPU build of the environment takes about two thirds of it
PIPED: dict[str, Any] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "errors": "replace",
}
VENV = ROOT / (os.environ.get("COURSE_VENV") or ".venv")

# What a line of pip's log means, and what the reader can do about it.
CAUSES = (
    (
        r"No space left on device|Disk quota exceeded|not enough space",
        (
            "the disk is full: free about 3 GB (8 GB on Linux with an NVIDIA card), then run the"
            " command again"
        ),
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|getaddrinfo"
        r" failed|timed out"
        r"|NewConnectionError|Network is unreachable|Connection refused|ConnectionResetError",
        (
            "the package index cannot be reached: check the network (or pip's proxy and index"
            " settings), then run the command again"
        ),
    ),
    (
        r"certificate is not yet valid|certificate has expired",
        (
            "by this machine's clock the package index's certificate is not valid: set the date and"
            " time right"
        ),
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        (
            "the package index's certificate is not trusted: set PIP_CERT to your network's"
            " certificate file"
        ),
    ),
    (
        r"Permission denied|Operation not permitted",
        "a file may not be written: check who owns this folder, then run the command again",
    ),
    (
        r"Read-only file system",
        "this disk can only be read: copy the course to a folder where you may write",
    ),
    (
        r"Could not find a version that satisfies the requirement (\S+)",
        (
            "{0} has no build for this Python or system: use Python 3.11 to 3.13 on Linux, Windows"
            " or an Apple-silicon Mac"
        ),
    ),
)


class SetupError(Exception):
    """One line for the reader: why it failed and what to do."""


def stamp() -> str:
    """What the environment stands for; another lock, place or Python makes it stale."""
    digest = hashlib.sha256(LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return json.dumps({"root": str(ROOT), "lock": digest, "python": VERSION})


def python() -> Path:
    """The environment's own interpreter."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ready() -> bool:
    """True where the environment stands as the lock says."""
    try:
        return (VENV / ".ready").read_text("utf-8") == stamp() and python().exists()
    except OSError:
        return False


def setup() -> None:
    """Create .venv and install the locked packages and the course itself; raises SetupError."""
    _check_machine()
    print(
        f"Setting up the course in {VENV.name} (once; two to ten minutes, mostly download) ...",
        flush=True,
    )
    _create()
    base = [str(python()), "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    _pip([*base, "--requirement", str(LOCK)])
    _pip([*base, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    _quiet_lab()
    _fetch_models()
    (VENV / ".ready").write_text(stamp(), "utf-8")
    print("Ready.", flush=True)


def _check_machine() -> None:
    if sys.version_info < LEAST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(
            f"this is Python {found}, the course needs 3.11 or newer (PYTHON=/path/to/python3.11)"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        raise SetupError(
            f"this Python has no {error.name} module: install it (Debian, Ubuntu: apt install"
            " python3-venv), then run the command again"
        ) from None
    if re.search(r"\$\w|\$\{", str(VENV)):  # setuptools takes it for a variable
        raise SetupError(
            f"Python's packages cannot be installed in {VENV}, whose path has a $ in it: rename the"
            " folder, or name another place by COURSE_VENV=/path/to/an/environment"
        )
    free = shutil.disk_usage(_nearest(VENV)).free
    if free < LEAST_FREE and not python().exists():
        raise SetupError(
            f"the disk is full: {free / 1e9:.1f} GB are free and about 3 GB are needed "
            "(8 GB on Linux with an NVIDIA card)"
        )


def _nearest(path: Path) -> Path:
    """The path, or the closest folder above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def _create() -> None:
    """A virtual environment of this Python. Only an environment is ever replaced."""
    pip = _run(str(python()), "-m", "pip", "--version") if python().exists() else None
    works = pip is not None and pip.returncode == 0
    version = re.search(r"\(python ([\d.]+)\)", pip.stdout) if pip is not None else None
    if works and version is not None and version[1] == VERSION:
        return

    if os.path.lexists(VENV):
        if VENV.is_symlink() or not _is_environment(VENV):
            raise SetupError(
                f"{VENV} is there and is no environment of Python {VERSION}: remove or rename it,"
                " or name another place by COURSE_VENV=/path/to/an/environment"
            )
        if works and version is not None:
            print(f"{VENV} is of Python {version[1]}; it is made again with {VERSION}.", flush=True)
        shutil.rmtree(VENV)
    # This program may run in the environment that was just removed. So its own Python is asked.
    base = getattr(sys, "_base_executable", sys.executable)
    made = _run(base, "-m", "venv", str(VENV))
    if made.returncode:
        reason = _last_line(made.stdout).rstrip(".:")
        raise SetupError(_cause(made.stdout) or f"python -m venv failed: {reason}")


def _is_environment(folder: Path) -> bool:
    """Whether nothing is lost with this folder: an environment, or the beginning of one."""
    if not folder.is_dir():
        return False
    has_files = any(not path.is_dir() or path.is_symlink() for path in folder.rglob("*"))
    return (folder / "pyvenv.cfg").is_file() or not has_files


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, **PIPED)


def _pip(command: list[str]) -> None:
    """Run pip: its whole output into the log, one line of progress on the screen."""
    log, screen, output = VENV / "setup.log", sys.stdout.isatty(), []
    with log.open("a", encoding="utf-8") as file, subprocess.Popen(command, **PIPED) as process:
        for line in process.stdout or ():
            output.append(line)
            file.write(line)
            if screen:
                print(f"\r\033[K  {line.strip()[:100]}", end="", flush=True)
    if screen:
        print("\r\033[K", end="")
    if process.returncode:
        text = "".join(output)
        raise SetupError(_cause(text) or f"pip failed: {_last_line(text)} (the whole log: {log})")


def _cause(text: str) -> str:
    """The known cause that a log shows, as a sentence; "" where none is known."""
    for pattern, meaning in CAUSES:
        if match := re.search(pattern, text, re.IGNORECASE):
            return meaning.format(*match.groups())
    return ""


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no message"])[-1].strip()


def _quiet_lab() -> None:
    """No news pop-up in JupyterLab: it would ask for the network at every first start."""
    folder = VENV / "etc" / "jupyter" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (folder / "page_config.json").write_text(json.dumps(off), "utf-8")


def _fetch_models() -> None:
    """Bring the public BERT of the lessons into its cache; without it they use a shipped one."""
    done = subprocess.run([str(python()), "-m", "course_lib", "fetch", "minilm"], cwd=ROOT)
    if done.returncode:
        print(
            "The lessons will use bert-english in its place. To try again:"
            " python -m course_lib fetch minilm",
            flush=True,
        )


@contextmanager
def _alone() -> Iterator[None]:
    """One set-up of this folder at a time: a second one waits for the first."""
    if HAS_FLOCK:
        locked = os.open(ROOT, os.O_RDONLY)
    else:  # Windows opens no folders
        (ROOT / "build").mkdir(exist_ok=True)
        locked = os.open(ROOT / "build" / "setup.lock", os.O_RDWR | os.O_CREAT)
    try:
        if not _is_locked(locked):
            print("Another set-up is running in this folder; waiting for its end ...", flush=True)
            while not _is_locked(locked):
                time.sleep(0.2)
        yield
    finally:
        os.close(locked)  # opens the lock


def _is_locked(file: int) -> bool:
    """Whether this process has the lock now; also true on a file system without locks."""
    try:
        if HAS_FLOCK:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def main() -> int:
    """Set up unless it is done; returns the exit status."""
    try:
        if sys.version_info < LEAST_PYTHON or not ready():
            with _alone():
                if not ready():  # the other one may have done it
                    setup()
    except (SetupError, OSError) as error:
        print(f"Set-up stopped: {_cause(str(error)) or error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up stopped by you; run the command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
