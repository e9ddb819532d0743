"""Cells of small decks, made fresh for each test."""

import base64
import io

from nbformat import v4
from PIL import Image

from tools.notebooks import scrub


def cell(source, kind="", *tags, name=None):
    """A Markdown cell of a slide type."""
    made = v4.new_markdown_cell(source)
    return _marked(made, kind, tags, name)


def code(source, outputs=(), kind="", *tags, name=None):
    """A code cell that was executed."""
    made = v4.new_code_cell(source, outputs=list(outputs), execution_count=1)
    return _marked(made, kind, tags, name)


def png(width=1000, height=600):
    """A blue picture, base64."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), "#0072b2").save(file, format="png")
    return base64.b64encode(file.getvalue()).decode("ascii")


def picture(alt="A blue square, a hundred pixels wide", caption="A square to look at."):
    """What `figures.show` leaves in a notebook."""
    data = {"image/png": png(), "text/plain": f"[figure: {alt}]"}
    below = {"text/html": f"<p><em>{caption}</em></p>", "text/plain": caption}
    return [
        v4.new_output("display_data", data=data, metadata={"image/png": {"alt": alt}}),
        v4.new_output("display_data", data=below),
    ]


def deck(*cells):
    """A notebook of these cells, its code numbered in order."""
    notebook = v4.new_notebook(cells=list(cells), metadata=scrub.METADATA | {"title": "A toy"})
    executed = [c for c in notebook.cells if c.cell_type == "code"]
    for number, c in enumerate(executed, 1):
        c.execution_count = number
    return notebook


def _marked(made, kind, tags, name):
    if kind:
        made.metadata["slideshow"] = {"slide_type": kind}
    if tags:
        made.metadata["tags"] = list(tags)
    if name:
        made["id"] = name
    return made
