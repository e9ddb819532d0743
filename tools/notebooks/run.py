"""Run a lesson without a screen, at any scale, into a folder: the executed notebook and an offline
HTML page.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from classroom.lesson import SCALES
from course_lib.errors import CourseError
from course_lib.files import atomic_write
from tools.notebooks import page, scrub
from tools.notebooks.build import read
from tools.notebooks.execute import Measure, papermilled


def run(
    path: Path, parameters: Mapping[str, Any], out: Path, *, progress: bool = True
) -> tuple[Path, Path]:
    """Execute the notebook with the given parameters; returns the executed notebook's and the
    page's place in `out`.
    """
    notebook, _ = execute(path, parameters, out, progress=progress)
    web = out / f"{path.stem}.html"
    with atomic_write(web) as file:
        file.write(page.html(scrub.scrub(notebook), path.stem))
    return out / path.name, web


def execute(
    path: Path, given: Mapping[str, Any], out: Path, *, progress: bool = True
) -> tuple[NotebookNode, Measure]:
    """The same without the page: the executed notebook, which is also in `out`, and what it took.

    Raises:
        CourseError: a parameter that the lesson does not have, an unknown scale, or a cell that
            failed (the notebook up to that cell, with the error, is then in `out`).
    """
    known = declared(read(path))
    for name in given:
        if name not in known:
            raise CourseError(
                f"{path.stem} has no parameter {name}; it has {', '.join(known) or 'none'}."
            )
    if given.get("SCALE", "smoke") not in SCALES:
        raise CourseError(
            f"SCALE={given['SCALE']} is not a scale; choose one of {', '.join(SCALES)}."
        )
    out.mkdir(parents=True, exist_ok=True)
    bar = {"desc": path.stem, "unit": "cell"} if progress else False
    return papermilled(path, path.parent, out / path.name, given, progress_bar=bar)


def declared(notebook: NotebookNode) -> dict[str, Any]:
    """The parameters and their defaults, from the cell tagged `parameters`; {} where there is
    none.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            found = [node for node in ast.parse(cell.source).body if isinstance(node, ast.Assign)]
            return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in found}
    return {}
