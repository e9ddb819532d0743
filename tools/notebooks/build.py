"""Build a lesson: execute it, bring it into the stored form, write it."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.validator import ValidationError

from course_lib.errors import CourseError
from course_lib.files import atomic_write
from tools.notebooks import compare, navigation, scrub
from tools.notebooks.execute import Measure, execute


def read(path: Path) -> NotebookNode:
    """A notebook from its file; CourseError where it is none."""
    try:
        notebook: NotebookNode = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except FileNotFoundError:
        raise CourseError(f"There is no notebook at {path}.") from None
    except (ValidationError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CourseError(
            f"{path} is not a Jupyter notebook: {str(error).splitlines()[0]}."
        ) from None
    return notebook


def rebuild(path: Path) -> tuple[NotebookNode, Measure]:
    """The notebook executed afresh and scrubbed, and what that took; CourseError where it fails.
    Nothing is written.
    """
    stored = scrub.scrub(read(path))
    executed, measure = execute(stored, path.parent)
    fresh = scrub.scrub(executed)
    for old, new in zip(stored.cells, fresh.cells, strict=True):
        # Times never repeat. Where nothing else changed, the stored ones stay, so that a rebuild
        # changes no byte.
        if (
            "timing" in new.metadata.get("tags", [])
            and old.outputs
            and not compare.cells(old, new.outputs)
        ):
            new.outputs = old.outputs
    return fresh, measure


def build(path: Path) -> Measure:
    """Execute the notebook and store it with its outputs; returns what that took."""
    fresh, measure = rebuild(path)
    navigation.lead(fresh, path.stem)
    with atomic_write(path, "wb") as file:
        file.write(scrub.text(fresh).encode())
    return measure


def is_scrubbed(path: Path) -> bool:
    """True where the file is, byte for byte, in the stored form."""
    return scrub.text(scrub.scrub(read(path))).encode() == path.read_bytes()
