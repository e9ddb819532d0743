"""Bring an executed notebook into the one form that is stored: nothing of this machine, this
minute, this process.
"""

from __future__ import annotations

import re
from typing import Any

import nbformat
from nbformat import NotebookNode

from tools.notebooks import ROOT

WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
# The Python version is left out: the lessons are for all from 3.11 on.
PATTERNS = (
    (re.compile(r"0x[0-9a-f]{6,16}\b"), "0x..."),
    # Looked for at words' beginnings only: a word may be the megabyte of a widget's data.
    (re.compile(r"(?<![^\s\"'(<])[^\s\"'(<]*ipykernel_\d+[/\\]\d+\.py"), "<cell>"),
    (re.compile(re.escape(str(ROOT))), "<course>"),
)


def scrub(notebook: NotebookNode) -> NotebookNode:
    """A copy of the notebook in the stored form. Scrubbing twice changes nothing."""
    result: NotebookNode = nbformat.from_dict(_plain(notebook))
    result.metadata = nbformat.from_dict(
        {k: v for k, v in result.metadata.items() if k == "title"} | METADATA
    )
    result.nbformat, result.nbformat_minor, asked = 4, 5, False
    for cell in result.cells:
        kept = {
            k: v for k, v in cell.metadata.items() if k not in ("execution", "papermill", "jupyter")
        }
        tags = kept.pop("tags", []) or []  # papermill gives every cell an empty list of tags
        if cell.cell_type == "code":
            cell.outputs, asked = outputs(cell.outputs), asked and "exercise" not in tags
            kept |= {"jupyter": {"outputs_hidden": True}} if asked and cell.outputs else {}
        else:
            asked = "> **Predict" in cell.source
        cell.metadata = nbformat.from_dict(kept | ({"tags": tags} if tags else {}))
    return result


def outputs(raw: list[NotebookNode]) -> list[NotebookNode]:
    """One cell's outputs in the stored form: no live widgets, streams in one piece, addresses
    replaced.
    """
    result: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}
    for output in raw:
        if WIDGET in output.get("data", {}):
            # needs a kernel or a state that is not stored; a static picture stands beside it
            continue
        node = nbformat.from_dict(_clean(_plain(output)))
        node.pop("transient", None)
        if node.output_type == "stream":
            if node.name in streams:
                streams[node.name].text += node.text
                continue
            streams[node.name] = node
        result.append(node)
    return [node for node in result if node.output_type != "stream" or node.text]


def text(notebook: NotebookNode) -> str:
    """The file's text, the same on every system."""
    return str(nbformat.writes(notebook, version=4)).rstrip("\n") + "\n"


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: value[key] if key.startswith("image/") else _clean(value[key]) for key in value
        }
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, str):
        for pattern, replacement in PATTERNS:
            value = pattern.sub(replacement, value)
    return value


def _plain(value: Any) -> Any:
    """Plain dicts and lists, multi-line strings joined."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
