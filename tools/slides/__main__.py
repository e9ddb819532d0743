"""Slide decks: `make slides` makes an offline HTML file and a PDF of each; `build` executes and
stores them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from course_lib.errors import CourseError
from course_lib.files import atomic_write
from tools import browser
from tools.notebooks import build as notebooks
from tools.slides import ROOT, decks, find, page, pdf

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)
Names = Annotated[
    list[str] | None, typer.Argument(help="decks such as 1_attention or 1; all if none is named")
]
Out = Annotated[Path, typer.Option(help="folder for the files")]


@app.command()
def make(names: Names = None, out: Out = ROOT / "build" / "slides") -> None:
    """Write each deck's HTML and PDF from its stored outputs; nothing is executed."""
    paths = [find(name) for name in names] if names else decks()
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for path in paths:
        web = out / f"{path.stem}.html"
        with atomic_write(web) as file:
            file.write(page.html(notebooks.read(path)))
        written.append(web)
        print(_size(web))
    try:
        with browser.opened() as chromium:
            for web in written:
                pdf.write(chromium, web, web.with_suffix(".pdf"))
                print(_size(web.with_suffix(".pdf")))
    except CourseError as error:
        print(f"No PDF was made. {error}", file=sys.stderr)


@app.command()
def build(names: Names = None) -> None:
    """Execute decks and store them with their outputs (for authors)."""
    for path in [find(name) for name in names] if names else decks():
        measure = notebooks.build(path)
        print(
            f"{path.stem}: built in {measure.seconds:.0f} s, {measure.peak_mb:.0f} MB", flush=True
        )


def _size(path: Path) -> str:
    return f"{path} ({path.stat().st_size / 1e6:.2f} MB)"


def main() -> None:
    """Run the command; a problem is one sentence and exit status 1."""
    try:
        app()
    except CourseError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
