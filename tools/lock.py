"""Write requirements.lock: every package of the course at one exact version, for Linux, macOS and
Windows.

    python -m tools.lock            # after a version was raised in pyproject.toml

uv resolves what pyproject.toml names and keeps the versions that the lock has. No registry's
address is written: pip uses its own. What torch's own build needs (CUDA on Linux) is left to torch,
so that a CPU build can stay."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_lib.errors import CourseError
from course_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LEFT_OUT = re.compile(r"^(nvidia-|triton|cuda-)|sys_platform == 'emscripten'")

HEADER = """\
# Every package of the course at one version. Written by `python -m tools.lock`.
# The first block is what pyproject.toml asks for, the second what those packages pull in.
"""


def direct() -> set[str]:
    """Names of the packages that the library, the course and its tests ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + extras["course"] + extras["dev"]
    return {canonicalize_name(Requirement(line).name) for line in asked}


def resolve() -> list[str]:
    """A line a package, as uv resolves pyproject.toml for all systems; CourseError where it
    cannot.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(LOCK, folder)  # the versions in it are kept where they still fit
        command = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "pyproject.toml",
            "--extra=course",
            "--extra=dev",
            "--universal",
        ]
        command += [
            "--python-version=3.11",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--no-emit-index-url",
        ]
        done = subprocess.run(
            [*command, f"--output-file={copy}"], cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode:
            raise CourseError(f"uv found no set of versions that fits together:\n{done.stderr}")
        return [
            line for line in Path(copy).read_text("utf-8").splitlines() if not LEFT_OUT.search(line)
        ]


def text(lines: list[str]) -> str:
    """The lock file: torch, the packages that are asked for, and those that they pull in."""
    asked, first = direct(), [line for line in lines if line.startswith("torch==")]
    named = [line for line in lines if line.partition("==")[0] in asked and line not in first]
    rest = [line for line in lines if line not in named and line not in first]
    return HEADER + "\n" + "\n".join(first + named) + "\n\n" + "\n".join(rest) + "\n"


if __name__ == "__main__":
    try:
        made = text(resolve())
    except CourseError as error:
        sys.exit(str(error))
    with atomic_write(LOCK) as file:
        file.write(made)
    print(f"wrote {LOCK.name}")
