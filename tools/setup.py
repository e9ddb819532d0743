"""Make the course's environment: .venv with the locked packages. Standard library only.

    python3 tools/setup.py          # what `make lab`, `make test` and the others run first

Done once, a second run takes a few hundredths of a second: a stamp holds what was installed.
Whatever goes wrong ends in one line that says why and what to do; the log of the installation stays
in .venv/setup.log."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LEAST_PYTHON = (3, 11)
LEAST_FREE = 3_000_000_000  # bytes; the CPU build of the environment takes about two thirds of it
PIPED: dict[str, Any] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "errors": "replace",
}
VENV = Path(os.environ.get("COURSE_VENV") or ROOT / ".venv")

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
    return json.dumps({"root": str(ROOT), "lock": digest})


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
    free = shutil.disk_usage(ROOT).free
    if free < LEAST_FREE and not python().exists():
        raise SetupError(
            f"the disk is full: {free / 1e9:.1f} GB are free and about 3 GB are needed "
            "(8 GB on Linux with an NVIDIA card)"
        )


def _create() -> None:
    """A virtual environment whose interpreter runs; one that was left half-made is made again."""
    if python().exists() and _run(str(python()), "-m", "pip", "--version").returncode == 0:
        return
    if VENV.exists():
        shutil.rmtree(VENV)
    made = _run(sys.executable, "-m", "venv", str(VENV))
    if made.returncode:
        raise SetupError(_cause(made.stdout) or f"python -m venv failed: {_last_line(made.stdout)}")


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


def main() -> int:
    """Set up unless it is done; returns the exit status."""
    try:
        if sys.version_info < LEAST_PYTHON or not ready():
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
