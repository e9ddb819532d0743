"""A small notebook (toy.json) that has everything the tools must handle, made fresh for each test;
needs no torch.
"""

import json
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

ROWS = json.loads(Path(__file__).with_name("toy.json").read_text("utf-8"))
OPENING = "\n".join(ROWS[0]["source"])


def code(source: str, *tags: str) -> NotebookNode:
    return v4.new_code_cell(source.strip("\n"), metadata={"tags": list(tags)} if tags else {})


def cells() -> list[NotebookNode]:
    sources = [("\n".join(row["source"]), row) for row in ROWS]
    return [
        code(source, *row.get("tags", ()))
        if row["cell"] == "code"
        else v4.new_markdown_cell(source)
        for source, row in sources
    ]


def write(path: Path, made: list[NotebookNode] | None = None) -> Path:
    """Write the notebook, not executed."""
    notebook = v4.new_notebook(cells=cells() if made is None else made)
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i}"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def edit(
    piece: str, old: str = "", new: str = "", kind: str = "", **fields: object
) -> Callable[[NotebookNode], None]:
    """A slip in the first cell (of a kind) that has the piece: its source replaced or added to, or
    fields.
    """

    def slip(notebook: NotebookNode) -> None:
        cell = next(c for c in notebook.cells if piece in c.source and kind in ("", c.cell_type))
        assert old in cell.source
        cell.source = cell.source.replace(old, new) if old else cell.source + new
        cell.update(fields)

    return slip
