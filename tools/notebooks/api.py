"""The library's API pages: what each module offers, from its docstrings, for reading offline."""

from __future__ import annotations

import warnings
from pathlib import Path

FIRST = "course_lib.html"  # the page to open, in the folder that `build` writes


def build(folder: Path, module: str = "course_lib") -> None:
    """Write a page for `module` and for each module in it into `folder`.

    The module is imported, with everything in it.
    """
    import pdoc

    # pdoc's own formulas would fetch MathJax, and its diagrams mermaid: both stay off.
    pdoc.render.configure(docformat="google", footer_text="Pretrained language models")
    with warnings.catch_warnings():
        # A type that only the type checker imports is shown as it is written; pdoc warns of each.
        warnings.filterwarnings("ignore", message="Error parsing type annotation")
        pdoc.pdoc(module, output_directory=folder)
