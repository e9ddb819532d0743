"""A deck as one HTML file that needs nothing else: reveal.js, styles, pictures and formulas are
inside it.
"""

from __future__ import annotations

import html as _html
import re
from pathlib import Path
from typing import Any

import jinja2
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course_lib.errors import CourseError
from tools.notebooks.page import markdown
from tools.slides.deck import Piece, Slide, slides

HERE = Path(__file__).resolve().parent
VENDOR = HERE / "vendor" / "reveal"


def html(notebook: NotebookNode) -> str:
    """The page's text, from the notebook's stored outputs.

    Raises:
        CourseError: a cell that was never executed; a deck that cannot be read as slides.
    """
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and cell.execution_count is None:
            raise CourseError(
                f"Cell {number} of the deck was never executed; run: python -m tools.slides build."
            )
    deck = slides(notebook)
    title = notebook.metadata.get("title") or (deck[0].title if deck else "Slides")
    made: str = jinja2.Template((HERE / "deck.html.j2").read_text("utf-8")).render(
        title=_html.escape(title),
        reveal_css=_vendored("reveal.css"),
        theme=(HERE / "theme.css").read_text("utf-8"),
        sections="\n".join(section(slide) for slide in deck),
        reveal_js=_script("reveal.js"),
        notes_js=_script("notes.js"),
    )
    return made


def section(slide: Slide) -> str:
    """One slide."""
    heading = f"<h{slide.level}>{_inline(slide.title)}</h{slide.level}>"
    part = "" if slide.level == 1 else f'<p class="part">{_inline(slide.part)}</p>'
    look = "sheet opening" if slide.level == 1 else "sheet"
    notes = f'<aside class="notes">{markdown(slide.notes)}</aside>' if slide.notes else ""
    return (
        f'<section id="{_html.escape(slide.name)}">\n<div class="{look}">\n{part}{heading}\n'
        f"{''.join(_row(row) for row in slide.rows())}</div>\n{notes}\n</section>"
    )


def _row(row: list[Piece]) -> str:
    """A piece across the slide, or two columns."""
    if not row[0].place:
        return _placed(row[0])
    left, right = (
        "".join(_placed(p) for p in row if p.place == place) for place in ("left", "right")
    )
    pictures = ("<figure" in left, "<figure" in right)
    look = {(True, False): "columns narrow-right", (False, True): "columns narrow-left"}.get(
        pictures, "columns"
    )
    look += " fills" * any(pictures)
    inside = "".join(f'<div class="column">\n{column}</div>\n' for column in (left, right))
    return f'<div class="{look}">\n{inside}</div>\n'


def _placed(piece: Piece) -> str:
    """A piece in its box, which says when it appears. What holds a picture may take the room that
    is left.
    """
    content = piece_html(piece.cell)
    names = ["row"]
    names += ["fills"] * ("<figure" in content)
    names += ["answer"] * piece.text.startswith("> **Answer")
    names += [
        tag for tag in ("dense", "large", "words") if tag in piece.cell.metadata.get("tags", [])
    ]
    names += ["fragment"] * bool(piece.step)
    mark = f' data-fragment-index="{piece.step}"' if piece.step else ""
    return f'<div class="{" ".join(names)}"{mark}>{content}</div>\n'


def piece_html(cell: NotebookNode) -> str:
    """One cell: its text, or its code (unless hidden) and what it showed."""
    if cell.cell_type == "markdown":
        return markdown(cell.source)
    shown = "" if "remove_input" in cell.metadata.get("tags", []) else code(cell.source)
    outputs, place = cell.outputs, 0
    while place < len(outputs):
        after = outputs[place + 1] if place + 1 < len(outputs) else None
        if "image/png" in outputs[place].get("data", {}):
            data = after.get("data", {}) if after is not None else {}
            caption = data.get("text/plain") if "text/html" in data else None
            shown += figure(outputs[place], caption)
            place += 1 + (caption is not None)
            continue
        shown += _output(outputs[place])
        place += 1
    return shown


def figure(output: NotebookNode, caption: str | None) -> str:
    """A picture with its text alternative and, below it, its caption."""
    alt = output.metadata.get("image/png", {}).get("alt", "")
    picture = (
        f'<img src="data:image/png;base64,{output.data["image/png"].strip()}"'
        f' alt="{_html.escape(alt)}">'
    )
    below = f"<figcaption>{_html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{picture}{below}</figure>"


def code(source: str) -> str:
    """Python in black and white: bold and italic tell the parts apart on any beamer."""
    formatter = HtmlFormatter(nowrap=True, noclasses=True, style="bw")
    return f"<pre>{highlight(source, PythonLexer(), formatter)}</pre>"


def _output(output: NotebookNode) -> str:
    data: dict[str, Any] = output.get("data", {})
    if "text/html" in data:
        return str(data["text/html"])
    if "text/markdown" in data:
        return markdown(data["text/markdown"])
    text = output.get("text") or data.get("text/plain", "")
    return f'<pre class="output">{_html.escape(text.rstrip())}</pre>' if text.strip() else ""


def _inline(text: str) -> str:
    """A heading's Markdown without the paragraph around it."""
    return re.sub(r"^<p>|</p>$", "", markdown(text).strip())


def _vendored(name: str) -> str:
    return (VENDOR / name).read_text("utf-8")


def _script(name: str) -> str:
    """A script that may stand inside an element: its text must not end the element."""
    return _vendored(name).replace("</script", "<\\/script").replace("<!--", "<\\!--")
