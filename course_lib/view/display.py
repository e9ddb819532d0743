"""Putting a figure or a piece of HTML under a cell, always with words beside it."""

import base64
import hashlib
import html as _html
import io
import json
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.view.style import RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Html:
    """A piece of HTML that a notebook shows, and the same in plain text for everything else.

    Its last expression in a cell is enough: no `display` needed. The text is what a terminal prints and what a
    test compares.
    """

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def show(figure: "Figure", caption: str, alt: str, *, dpi: int | None = None) -> None:
    """Display a figure as a PNG with its text alternative, and the caption visibly below.

    Args:
        figure: what a function of `course_lib.view` returned, or any matplotlib Figure.
        caption: one or two sentences; what to look at.
        alt: what the picture shows, for those who cannot see it. Also the plain-text output.
        dpi: pixels an inch, for a picture that is shown larger than in a notebook (on slides).
    """
    if not caption.strip() or not alt.strip():
        raise CourseError("A figure needs a caption and a text alternative (alt); one of them is empty.")
    send(
        {"image/png": png(figure, dpi), "text/plain": f"[figure: {alt}]"},
        {"image/png": {"alt": alt}},
    )
    send({"text/html": caption_html(caption), "text/plain": caption}, {})


def png(figure: "Figure", dpi: int | None = None) -> str:
    """The figure as base64 PNG, the same bytes for the same figure.

    At most 256 colours: a drawing looks the same, and a notebook with its stored pictures is a third of the size.
    """
    import matplotlib
    from PIL import Image

    full, small = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context({**RC, "savefig.dpi": dpi or RC["savefig.dpi"]}):
        figure.savefig(full, format="png", bbox_inches="tight", pad_inches=0.08, metadata={"Software": None})
    picture = Image.open(full).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode("ascii")


def send(data: dict[str, str], metadata: dict[str, Any], handle: Any = None) -> None:
    """Display a mime bundle in a notebook; outside one, print its text."""
    if not in_notebook():
        print(data["text/plain"])  # noqa: T201  a script has no other place to show it
        return
    from IPython.display import display

    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def in_notebook() -> bool:
    """True under an IPython kernel or shell, False in a plain script."""
    import sys

    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return get_ipython() is not None


def caption_html(caption: str) -> str:
    """The caption as the paragraph that stands below a figure."""
    return (
        '<p style="font-family:sans-serif;font-size:14px;max-width:60em;margin:2px 0 14px 0">'
        f"<em>{escape(caption)}</em></p>"
    )


def escape(text: object) -> str:
    """Text safe inside an element or a quoted attribute."""
    return _html.escape(str(text), quote=True)


def identity(kind: str, *content: object) -> str:
    """An element id that depends on the content only, so a rebuilt notebook is byte-identical."""
    text = json.dumps(content, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def inline_json(value: object) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).replace("</", "<\\/")
