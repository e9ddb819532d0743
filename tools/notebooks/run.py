"""Run a lesson without a screen, at any scale, into a folder: the executed notebook and an offline HTML page."""

from __future__ import annotations

import ast
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import papermill
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from course_lib.errors import CourseError
from course_lib.files import atomic_write
from course_lib.lesson import SCALES
from tools.notebooks import page, scrub
from tools.notebooks.build import read


def run(
    path: Path, parameters: dict[str, Any], out: Path, *, progress: bool = True, env: dict[str, str] | None = None
) -> tuple[Path, Path]:
    """Execute the notebook with the given parameters; returns the executed notebook's and the page's place in `out`."""
    executed = execute(path, parameters, out, progress=progress, env=env)
    web = out / f"{path.stem}.html"
    with atomic_write(web) as file:
        file.write(page.html(scrub.scrub(read(executed)), path.stem))
    return executed, web


def execute(
    path: Path, parameters: dict[str, Any], out: Path, *, progress: bool = True, env: dict[str, str] | None = None
) -> Path:
    """The same without the page: the executed notebook's place in `out`.

    Raises:
        CourseError: a parameter that the lesson does not have, an unknown scale, or a cell that failed (the notebook
            up to that cell, with the error, is then in `out`).
    """
    known = declared(read(path))
    for name in parameters:
        if name not in known:
            raise CourseError(f"{path.stem} has no parameter {name}; it has {', '.join(known) or 'none'}.")
    if parameters.get("SCALE", "smoke") not in SCALES:
        raise CourseError(f"SCALE={parameters['SCALE']} is not a scale; choose one of {', '.join(SCALES)}.")
    out.mkdir(parents=True, exist_ok=True)
    executed = out / path.name
    logging.getLogger("papermill").setLevel(logging.ERROR)
    before = dict(os.environ)
    os.environ.update(env or {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            papermill.execute_notebook(
                str(path),
                str(executed),
                parameters=parameters,
                kernel_name="python3",
                language="python",
                cwd=str(path.parent),
                extra_arguments=["--IPKernelApp.log_level=40"],  # errors; its warning about local ports is no news
                progress_bar={"desc": path.stem, "unit": "cell"} if progress else False,
            )
    except PapermillExecutionError as error:
        raise CourseError(
            f"{path.stem}: cell {error.cell_index} failed with {error.ename}: {error.evalue} (all of it: {executed})"
        ) from None
    finally:
        os.environ.clear()
        os.environ.update(before)
    return executed


def declared(notebook: NotebookNode) -> dict[str, Any]:
    """The parameters and their defaults, from the cell tagged `parameters`; {} where there is none."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            found = [node for node in ast.parse(cell.source).body if isinstance(node, ast.Assign)]
            return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in found}
    return {}
