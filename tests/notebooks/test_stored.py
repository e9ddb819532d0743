"""The plugin that tests stored cells (tools.notebooks.stored): it passes a built notebook and fails
a tampered one.
"""

import os
import re
import subprocess
import sys

from tests.notebooks import toy
from tools.notebooks import ROOT, build

TAMPERED = (
    ("mean 0.123456", "mean 0.133456"),
    ("loss 2.3456", "loss 4.3456"),
    ('"alt": "A line that rises', '"alt": "A line that falls'),
    ('"execution_count": 5', '"execution_count": null'),
)


def test_stored_cells(tmp_path):
    """One run over two notebooks: as built but for numbers changed by hand, and one with a cell
    that fails.
    """
    path = toy.write(tmp_path / "a path" / "51_tampered.ipynb")
    build.build(path)
    text = path.read_text("utf-8")
    for old, new in TAMPERED:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
    failing = toy.write(
        path.with_stem("52_failing"), [toy.code(line) for line in ("1", "1 / 0", "2")]
    )
    text_failing = failing.read_text("utf-8")
    failing.write_text(
        text_failing.replace('"execution_count": null', '"execution_count": 1'), "utf-8"
    )

    (path.parent / "pytest.ini").write_text("[pytest]\nmarkers = notebooks: x\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--color=no",
        "-rfEs",
        "-p",
        "tools.notebooks.stored",
    ]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(path.parent)], capture_output=True, text=True, cwd=path.parent, env=env
    )
    out = done.stdout
    failed = re.findall(r"^FAILED (\w+)\.ipynb::Cell (\d+)", out, re.MULTILINE)
    assert failed == [*(("51_tampered", n) for n in "2345"), ("52_failing", "0")], out
    cells = text.count('"cell_type": "code"')
    assert (
        f"5 failed, {cells - 4} passed, 2 skipped" in out
        and "Cell 4: The cell was never executed" in out
    )
    for said in (
        "4.3456 is stored, 2.3456 is fresh",
        "the text differs",
        "ZeroDivisionError: division by zero",
    ):
        assert said in out


def test_a_lesson_without_its_public_model(tmp_path):
    """It is executed, its outputs are not compared, and the summary says why."""
    path = toy.write(
        tmp_path / "53_public.ipynb",
        [toy.code('MODEL = "minilm"', "parameters"), toy.code("6 * 7")],
    )
    build.build(path)
    text = path.read_text("utf-8")
    path.write_text(text.replace('"42"', '"43"'), "utf-8")
    assert path.read_text("utf-8") != text
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = notebooks: x\n")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "tools.notebooks.stored", str(path)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "COURSE_CACHE": str(tmp_path / "empty")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert "2 skipped" in done.stdout, done.stdout
    assert "executed, but not compared: minilm was not fetched" in done.stdout
