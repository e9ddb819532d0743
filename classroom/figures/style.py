"""One look for every figure: colours told apart by everyone (Okabe and Ito 2008), type readable
from the last row.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

INK, GREY, PALE = "#1b1b1b", "#5f6368", "#e6e8eb"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2",
    "#C44E00",
    "#007A5A",
    "#A8487E",
    "#B87A00",
    "#3A8FC2",
)
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK, GREY)
# Light fills under dark text, in the same order of hues.
TINTS = {
    "plain": "#f1f3f4",
    "blue": "#cfe5f5",
    "orange": "#fbdcc4",
    "green": "#c9ecdf",
    "purple": "#f0d3e3",
    "yellow": "#faf0b8",
    "dark": "#d5d8dc",
}
DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 2)),
    (0, (2, 1.5)),
    (0, (8, 2, 2, 2)),
    (0, (4, 1)),
    (0, (1, 1)),
)

RC = mpl.rc_params_from_file(
    Path(__file__).parent / "assets" / "course.mplstyle", use_default_template=False
)

Numbers = torch.Tensor | Sequence[Any]
MONO = "DejaVu Sans Mono"  # tokens
# of a drawing function: it runs in the course's style, whatever the global style is
styled = mpl.rc_context(RC)


def use() -> None:
    """Make the course's look the default for figures the student draws too."""
    mpl.rcParams.update(RC)
    mpl.rcParams["axes.prop_cycle"] = cycler(color=PALETTE)


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure (inches) with one pair of axes. Not registered anywhere, so nothing has to be
    closed.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def panels(
    width: float, height: float, rows: int, columns: int, **share: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure (inches) with several axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **share).flat)


def array(values: Any) -> NDArray[np.float64]:
    """Tensor, list or array -> float64 array, off the graph and off the device."""
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def blue(value: float) -> str:
    """White at 0 to the palette's blue at 1."""
    share = min(1.0, max(0.0, value))
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in (0x00, 0x72, 0xB2))


def ink_on(fill: str) -> str:
    """The colour of letters that can be read on a fill, "#rrggbb": white on a dark one."""
    red, green, deep = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * deep < 140 else INK


def centred(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Text with its middle at a point."""
    axes.text(x, y, text, ha="center", va="center", **look)


def rounded_box(
    axes: Axes,
    middle: tuple[float, float],
    size: tuple[float, float],
    text: str = "",
    *,
    fill: str,
    edge: str = GREY,
    line: float = 1.0,
    **look: Any,
) -> None:
    """A box with round corners around a text.

    Args:
        axes: where it is drawn.
        middle: of the box, (x, y).
        size: its width and height.
        text: stands in the middle.
        fill: the box's colour.
        edge: its line's colour.
        line: the line's width in points.
        look: of the text, as matplotlib names it.
    """
    (x, y), (width, height) = middle, size
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=fill,
            edgecolor=edge,
            linewidth=line,
            zorder=3,
        )
    )
    if text:
        centred(axes, x, y, text, **{"fontsize": 13, "color": INK, "zorder": 4} | look)


def token_width(text: str) -> float:
    """The width of `token_box` in inches: room for its letters at 13 points."""
    return max(0.4, 0.115 * len(text) + 0.18)


def token_box(axes: Axes, middle: tuple[float, float], text: str, fill: str, **line: Any) -> None:
    """A token in a box as wide as its letters need. line: `rounded_box`'s edge and line."""
    shown = text.replace("$", r"\$")
    rounded_box(axes, middle, (token_width(text), 0.4), shown, fill=fill, family=MONO, **line)


def note(
    axes: Axes, spot: tuple[float, float], text: str, offset: tuple[float, float], **look: Any
) -> None:
    """Text at so many points from a spot."""
    axes.annotate(text, spot, xytext=offset, textcoords="offset points", **look)


def arrow(
    axes: Axes, start: Any, end: Any, *, color: str = GREY, lw: float = 1.8, flush: bool = True
) -> None:
    """A straight arrow; `flush`: from point to point, without the gaps that matplotlib leaves."""
    gaps = {"shrinkA": 0, "shrinkB": 0} if flush else {}
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "lw": lw, **gaps}
    )


def bare(axes: Axes) -> None:
    """Neither ticks nor a frame."""
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
