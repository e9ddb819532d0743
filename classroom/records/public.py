"""Figures of the public tasks, data/results/real_*.json (lab/real/tasks.py)."""

from functools import cache
from pathlib import Path
from typing import Any

from classroom.records.figures import Figure, figure
from classroom.records.record import RESULTS
from course_lib.files import read_json


@cache
def figures(folder: str | Path = RESULTS) -> dict[str, Figure]:
    """Every figure of real_*.json by its path, NAME/arms/ARM; a number alone is that of one run."""
    found: dict[str, Figure] = {}

    def put(path: str, value: Any) -> None:
        if isinstance(value, dict) and {"seeds", "mean"} <= value.keys():
            found[path] = figure(value["seeds"])
        elif isinstance(value, dict):
            for key, part in value.items():
                put(f"{path}/{key}", part)
        elif isinstance(value, int | float):
            found[path] = figure([value])

    for file in sorted(Path(folder).glob("real_*.json")):
        put(file.stem.removeprefix("real_"), read_json(file))
    return found
