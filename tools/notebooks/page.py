"""An executed notebook as one HTML file that needs nothing else: no script, style, font or formula from the network."""

from __future__ import annotations

import re
from typing import Any

import latex2mathml.converter
import mistune
from nbconvert.exporters.html import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

# nbconvert's page of JupyterLab's looks, without the libraries that it would load, and with the pictures' text
# alternatives, which it leaves out.
TEMPLATE = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}
<style>
  main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
  img { max-width: 100%; height: auto; }
  .jp-RenderedHTMLCommon math { font-size: 1.05em; font-family: "STIX Two Math", "Cambria Math", "Latin Modern Math",
    "DejaVu Math TeX Gyre", math; }
  .jp-CodeCell .highlight pre, .jp-OutputArea-output pre {
    white-space: pre-wrap; word-break: normal !important; overflow-wrap: anywhere;
  }
  .jp-RenderedHTMLCommon table { display: block; overflow-x: auto; max-width: 100%; }
  .jp-RenderedHTMLCommon math[display="block"] { overflow-x: auto; max-width: 100%; }
  @media (max-width: 45rem) {
    main { padding: .5rem; }
    .jp-InputPrompt, .jp-OutputPrompt, .jp-InputCollapser, .jp-OutputCollapser { display: none !important; }
    .jp-Cell, .jp-Notebook { padding: 2px 0 !important; }
    .jp-RenderedHTMLCommon { padding-right: 0 !important; }
    .jp-OutputArea-output { margin-left: 0 !important; overflow-x: auto; }
  }
  @media print {
    .jp-InputPrompt, .jp-OutputPrompt { display: none !important; }
    .jp-Cell, .jp-OutputArea-output, .jp-OutputArea-child { overflow: visible !important; }
    img, svg, table, .highlight pre { break-inside: avoid; }
    h1, h2, h3 { break-after: avoid; }
  }
</style>
{%- endblock -%}
{%- block data_png scoped -%}
<div class="jp-RenderedImage jp-OutputArea-output {{ extra_class }}">
<img src="data:image/png;base64,{{ output.data['image/png'] | escape_html }}"
     alt="{{ (output | get_metadata('alt', 'image/png')) or '' | escape_html }}">
</div>
{%- endblock -%}
"""

# What a browser fetches by itself when it opens the page (a link that a reader may click is no such thing).
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
    raw_template = TEMPLATE

    def default_filters(self) -> Any:
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "markdown2html", markdown


def markdown(source: str) -> str:
    """A Markdown cell as HTML."""
    return str(MarkdownWithMath(renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(source))


def html(notebook: NotebookNode, title: str) -> str:
    """The page as text; `title` is what the browser's tab shows."""
    exporter = _Exporter(  # type: ignore[no-untyped-call]
        exclude_anchor_links=True, embed_images=True, require_js_url="", mathjax_url=""
    )
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(body)


def fetched(page: str) -> list[str]:
    """Addresses that a browser would fetch on opening the page; empty for a page that stands alone."""
    return ["".join(match) for match in FETCHED.findall(page)]


def _mathml(tex: str, display: str) -> str:
    try:
        return str(latex2mathml.converter.convert(tex, display=display))
    except Exception:  # noqa: BLE001 - whatever the converter stumbles over, the reader still gets the formula's source
        return f"<code>{mistune.escape(tex)}</code>"
