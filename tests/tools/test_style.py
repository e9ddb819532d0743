"""ruff and its formatter over everything, mypy --strict over the packages, no machine's address in
the repository.
"""

import re
import shutil
import subprocess
import sys

import pytest

from tools.lock import ROOT


def tool(*words):
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=ROOT)


def test_ruff():
    done = tool("ruff", "check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_formatter_has_nothing_to_change():
    done = tool("ruff", "format", "--check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.slow
def test_mypy():
    done = tool("mypy")
    assert done.returncode == 0, done.stdout[-5000:]


def test_nothing_of_the_machine_that_wrote_it():
    """No registry, proxy or personal folder in what is committed."""
    words = re.compile(
        r"--(?:extra-)?index-url|--find-links|--trusted-host|/work/(?:main|shared|notes)|/home/\w+/"
    )
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git on this machine")
    listed = subprocess.run([git, "ls-files", "-z"], capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        file = ROOT / name
        if (
            file.suffix in (".png", ".safetensors", ".parquet")
            or not file.is_file()
            or file.parent.name == "notebooks"
        ):
            continue
        found = words.search(file.read_text("utf-8", errors="replace"))
        assert found is None or name == "tests/tools/test_style.py", (
            f"{name}: {found[0] if found else ''}"
        )
