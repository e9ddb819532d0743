"""The library away from its checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.files import COURSE

PARTS = ("course_lib", "classroom", "lab", "data")


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_a_wheel_generates_in_an_empty_folder(tmp_path: Path) -> None:
    source, site, empty = (tmp_path / name for name in ("source", "site", "empty"))
    for path in (source, site, empty):
        path.mkdir()
    for file in (*COURSE.glob("LICENSE*"), COURSE / "README.md", COURSE / "pyproject.toml"):
        shutil.copy(file, source)
    shutil.copy(COURSE / "setup.py", source)
    for part in PARTS:
        shutil.copytree(COURSE / part, source / part)
    quiet = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run("pip", "wheel", *quiet, "--no-build-isolation", "-w", "wheels", ".", cwd=source)
    (wheel,) = (source / "wheels").glob("*.whl")
    run("pip", "install", *quiet, "--target", str(site), str(wheel), cwd=source)
    shutil.rmtree(source)
    away = {"PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
    text = run("course_lib", "generate", "gpt-english", "The cat", "--new", "5", cwd=empty, **away)
    assert text.startswith("The cat") and len(text) > len("The cat\n")
    assert "gpt-english" in run("course_lib", "zoo", "list", cwd=empty, **away)
    assert not list(empty.iterdir())
