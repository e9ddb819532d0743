"""What lessons took, one small file a lesson, so that two builds that end together do not write
over each other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from course_lib.files import read_json, write_json
from tools.notebooks import ROOT
from tools.notebooks.execute import Measure, hardware

FOLDER = ROOT / "data" / "results" / "lessons"


def note(
    name: str, measure: Measure, command: str, folder: Path = FOLDER, **more: Any
) -> dict[str, Any]:
    """Write a lesson's seconds, memory and machine; returns what was written."""
    entry = {
        "seconds": round(measure.seconds, 1),
        "cpu_seconds": round(measure.cpu_seconds, 1),
        "peak_mb": round(measure.peak_mb),
        "hardware": hardware(),
        "command": command,
        **more,
    }
    write_json(folder / f"{name}.json", entry)
    return entry


def known(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """What is on record, lesson by lesson."""
    return {path.stem: read_json(path) for path in sorted(folder.glob("[0-9]*.json"))}


def machine(hardware: dict[str, Any]) -> str:
    """The machine in words."""
    return (
        f"{hardware['cores']} cores of an {hardware['processor']} with {hardware['memory_gb']} GB,"
        " no GPU"
    )
