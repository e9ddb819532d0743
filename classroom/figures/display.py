"""Putting a figure or a piece of HTML under a cell, always with words beside it."""

import base64
import io
import sys
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from classroom.figures.style import RC
from classroom.templates import escape
from course_lib.errors import CourseError


class Html:
    """A piece of HTML that shows itself as the last expression of a cell; elsewhere its plain text
    is printed.
    """

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def show(figure: Figure, caption: str, alt: str, *, dpi: int | None = None) -> None:
    """Display a figure as a PNG with its text alternative `alt`, also the plain-text output, and
    the caption below.

    dpi: pixels an inch, for a picture that is shown larger than in a notebook (on slides).
    """
    if not caption.strip() or not alt.strip():
        raise CourseError(
            "A figure needs a caption and a text alternative (alt); one of them is empty."
        )
    send(
        {"image/png": png(figure, dpi), "text/plain": f"[figure: {alt}]"},
        {"image/png": {"alt": alt}},
    )
    style = "font-family:sans-serif;font-size:14px;max-width:60em;margin:2px 0 14px 0"
    send(
        {"text/html": f'<p style="{style}"><em>{escape(caption)}</em></p>', "text/plain": caption},
        {},
    )


def png(figure: Figure, dpi: int | None = None) -> str:
    """The figure as base64 PNG, the same bytes for the same figure.

    At most 256 colours: a drawing looks the same, and a notebook with its stored pictures is a
    third of the size."""
    full, small = io.BytesIO(), io.BytesIO()
    with mpl.rc_context({**RC, "savefig.dpi": dpi or RC["savefig.dpi"]}):
        figure.savefig(
            full,
            format="png",
            bbox_inches="tight",
            pad_inches=0.08,
            pil_kwargs={"compress_level": 0},
        )
    picture = (
        Image.open(full)
        .convert("RGB")
        .quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    )
    picture.save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode("ascii")


def send(data: dict[str, str], metadata: dict[str, Any]) -> None:
    """Display a mime bundle in a notebook; outside one, print its text."""
    if shell() is None:
        print(data["text/plain"])  # noqa: T201  a script has no other place to show it
        return
    from IPython.display import display

    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def shell() -> Any:
    """IPython's shell, in a kernel or a terminal; None in a plain script."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()
