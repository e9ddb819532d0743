"""Imports are counted for the package that is imported, and a lesson's first cell is run."""

import json

from lab.bench import first_cells


def lesson(folder, *sources):
    cells = [{"cell_type": "code", "source": [source]} for source in sources]
    path = folder / "00_example.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path


def test_an_import_counts_for_its_own_package(tmp_path, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(first_cells.time, "process_time", lambda: next(clock))
    imports = first_cells.Imports()

    def real(name, *args, **options):
        if name == "classroom":
            imports("torch")

    imports.real = real
    imports("classroom.lesson")  # of its seconds 0 to 1, 1 to 2 and 2 to 3, torch has the middle
    imports.real = real
    assert imports.seconds["torch"] == 0, "classroom.lesson imports nothing here"
    imports("classroom")
    assert imports.seconds["torch"] == 1
    assert imports.seconds["classroom"] == 1 + 2


def test_a_table_of_first_cells(tmp_path):
    lesson(tmp_path, "SCALE = 'smoke'", "import torch\nassert SCALE", "raise SystemExit")
    row = first_cells.report(tmp_path).splitlines()[-1]
    name, total, torch_seconds = row.split(" | ")[:3]
    assert name == "| 00_example"
    assert 0 < float(torch_seconds) <= float(total)
