"""The plugin that tests stored cells (tools.notebooks.stored): it passes a built notebook and fails a tampered one."""

import subprocess
import sys

import pytest

from tests.notebooks import toy
from tools.notebooks import ROOT, build

pytestmark = pytest.mark.slow

CONFTEST = "from tools.notebooks.stored import collect as pytest_collect_file\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = toy.write(tmp_path_factory.mktemp("built") / "50_toy.ipynb")
    build.build(path, None)
    return path.read_text("utf-8")


def _pytest(folder, text):
    (folder / "50_toy.ipynb").write_text(text, "utf-8")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = notebooks: x\n")
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-rfE", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=250)
    return done.stdout


def test_a_built_notebook_passes(built, tmp_path):
    out = _pytest(tmp_path, built)
    assert "failed" not in out, out
    cells = built.count('"cell_type": "code"')
    assert f"{cells + 1} passed" in out  # every cell and the rebuilt file


def test_tampered_cells_fail_and_only_they(built, tmp_path):
    for old, new in (
        ("mean 0.123456", "mean 0.133456"),
        ("loss 2.3456", "loss 4.3456"),
        ('"alt": "A line that rises', '"alt": "A line that falls'),
    ):
        assert built.count(old) == 1
        built = built.replace(old, new)
    out = _pytest(tmp_path, built)
    assert "4 failed" in out, out  # three cells and the rebuilt file
    assert "0.133456 is stored, 0.123456 is fresh" in out
    assert "4.3456 is stored, 2.3456 is fresh" in out


def test_a_stripped_notebook_fails(tmp_path):
    out = _pytest(tmp_path, toy.write(tmp_path / "50_toy.ipynb").read_text())
    assert " passed" not in out, out
