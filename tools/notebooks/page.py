"""An executed notebook as one HTML file that needs nothing else: no script, style, font or formula
from the network.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
import mistune
from nbconvert.exporters.html import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

# What a browser fetches by itself when it opens the page (a link that a reader may click is no such
# thing).
FETCHED = re.compile(
    r"""<(?:script|img|iframe|link|source|video|audio|embed|object)\b[^>]*?\b(?:src|href|data)=["']?(?!data:)([^"'\s>]+)"""
    r"""|url\(\s*["']?(?!data:|\#|%23)([^"')]+)|@import\s+["']([^"']+)""",
    re.IGNORECASE,
)


class _Renderer(IPythonRenderer):
    """Markdown to HTML with formulas as MathML, which browsers draw without help."""

    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")

    def block_math(self, body: str) -> str:
        return _mathml(body, "block")

    def multiline_math(self, text: str) -> str:
        return _mathml(text.strip("$ \n"), "block")

    def latex_environment(self, name: str, body: str) -> str:
        return _mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


class _Exporter(HTMLExporter):
    raw_template = (Path(__file__).parent / "page.html.j2").read_text("utf-8")

    def default_filters(self) -> Any:
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "markdown2html", markdown


def markdown(source: str) -> str:
    """A Markdown cell as HTML."""
    return str(
        MarkdownWithMath(renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(source)
    )


def html(notebook: NotebookNode, title: str) -> str:
    """The page as text; `title` is what the browser's tab shows."""
    exporter = _Exporter(  # type: ignore[no-untyped-call]
        exclude_anchor_links=True, embed_images=True, require_js_url="", mathjax_url=""
    )
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(body)


def fetched(page: str) -> list[str]:
    """Addresses that a browser would fetch on opening the page; empty for a page that stands
    alone.
    """
    return ["".join(match) for match in FETCHED.findall(page)]


def _mathml(tex: str, display: str) -> str:
    try:
        return str(latex2mathml.converter.convert(tex, display=display))
    except Exception:  # noqa: BLE001 - whatever the converter stumbles over, the reader still gets the formula's source
        return f"<code>{mistune.escape(tex)}</code>"
