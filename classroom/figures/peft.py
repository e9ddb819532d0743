"""New weights in a frozen network: where they stand in a block, and a product of thin matrices."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from classroom.figures.style import (
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    VERMILION,
    Numbers,
    array,
    arrow,
    canvas,
    centred,
    styled,
)
from course_lib.errors import CourseError

# method -> its colour, what it adds, and where its note stands
METHODS: dict[str, tuple[str, str, tuple[float, float]]] = {
    "LoRA": (VERMILION, "two thin matrices\nbeside a matrix", (10.9, 6.2)),
    "adapter": (GREEN, "a small network\nafter each half", (10.9, 9.4)),
    "prefix": (PURPLE, "keys and values in front,\nin every block", (-1.1, 3.9)),
    "prompt": (ORANGE, "vectors in front,\nonly at the input", (-1.1, 0.0)),
}
MIDDLE = 6.0  # of the block, from the left


@styled
def new_weights(counts: Mapping[str, int]) -> Figure:
    """One block of an encoder, its frozen parts grey, with the new weights of each method.

    Args:
        counts: method ("LoRA", "adapter", "prefix", "prompt") -> how many weights it trains in the
            whole network. Only these methods are drawn.

    Raises:
        CourseError: a method has no place in the drawing.
    """
    unknown = set(counts) - set(METHODS)
    if unknown:
        raise CourseError(f"The drawing has no {', '.join(sorted(unknown))}.")
    figure, axes = canvas(12.4, 7.0)
    axes.set(xlim=(-4.6, 14.6), ylim=(-0.75, 11.6))
    axes.set_axis_off()
    _frozen(axes)
    for method, count in counts.items():
        _MARKS[method](axes)
        colour, what, (x, y) = METHODS[method]
        side = "left" if x > MIDDLE else "right"
        axes.text(x, y + 0.62, method, color=colour, fontsize=17, weight="bold", ha=side)
        note = f"{what}\n{count:,} weights"
        axes.text(x, y + 0.45, note, color=INK, fontsize=12.5, ha=side, va="top")
    return figure


def _frozen(axes: Axes) -> None:
    """The block without anything new: 12 boxes and the ways between them."""
    frame: dict[str, Any] = {"fill": False, "edgecolor": GREY, "linestyle": (0, (5, 3)), "lw": 1.4}
    axes.add_patch(Rectangle((0.9, 1.25), 9.5, 9.75, **frame))
    axes.text(1.05, 10.6, "one block", fontsize=13, color=GREY)
    for x, word in zip((4.0, 6.0, 8.0), ("the", "cat", "sat"), strict=True):
        _part(axes, x, 0.1, 1.6, word, "white")
    arrow(axes, (MIDDLE, 0.55), (MIDDLE, 1.55))
    axes.plot([3.4, 8.6], [1.6, 1.6], color=GREY, lw=1.8)
    for x, name in zip((3.4, 6.0, 8.6), ("Q", "K", "V"), strict=True):
        arrow(axes, (x, 1.6), (x, 1.98))
        _part(axes, x, 2.4, 1.2, name)
        arrow(axes, (x, 2.85), (x, 3.45))
    _part(axes, MIDDLE, 3.9, 6.4, "attention", "white")
    column = [(5.0, "out"), (6.85, "add and norm"), (7.75, "up"), (8.65, "down"), (10.45, "")]
    at = 3.9
    for y, name in column:
        arrow(axes, (MIDDLE, at + 0.4), (MIDDLE, y - 0.42))
        if name == "add and norm":
            _part(axes, MIDDLE, y, 3.4, name, "white")
        elif name:
            _part(axes, MIDDLE, y, 1.2 if name == "out" else 2.0, name)
        at = y
    _part(axes, MIDDLE, 10.45, 3.4, "add and norm", "white")
    for start, right, end in ((1.4, 9.95, 6.85), (7.27, 8.5, 10.45)):  # the ways around
        axes.plot([MIDDLE, right, right], [start, start, end], color=GREY, lw=1.4, zorder=1)
        arrow(axes, (right, end), (MIDDLE + 1.7, end), lw=1.4)
    arrow(axes, (MIDDLE, 10.85), (MIDDLE, 11.55))


def _part(axes: Axes, x: float, y: float, width: float, text: str, fill: str = PALE) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - 0.36),
            width,
            0.72,
            boxstyle="round,pad=0,rounding_size=0.1",
            facecolor=fill,
            edgecolor="#6b7176",
            lw=1.2,
            zorder=3,
        )
    )
    centred(axes, x, y - 0.02, text, fontsize=13, zorder=4)


def _new(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    box = Rectangle((x - width / 2, y - height / 2), width, height, facecolor=colour, lw=0)
    box.set_zorder(5)
    axes.add_patch(box)


def _lora(axes: Axes) -> None:
    """A flat and a narrow box beside each of the six matrices."""
    sides = [(3.4, 2.4, 0.6), (6.0, 2.4, 0.6), (8.6, 2.4, 0.6)]
    for x, y, half in [*sides, (6.0, 5.0, 0.6), (6.0, 7.75, 1.0), (6.0, 8.65, 1.0)]:
        _new(axes, x + half + 0.42, y - 0.22, 0.55, 0.16, VERMILION)
        _new(axes, x + half + 0.42, y + 0.14, 0.16, 0.44, VERMILION)


def _adapter(axes: Axes) -> None:
    """Two boxes on the way up, after attention and after the feed-forward network."""
    for y in (5.92, 9.57):
        _new(axes, MIDDLE, y - 0.22, 1.9, 0.17, GREEN)
        _new(axes, MIDDLE, y, 0.7, 0.17, GREEN)
        _new(axes, MIDDLE, y + 0.22, 1.9, 0.17, GREEN)


def _prefix(axes: Axes) -> None:
    """Two keys and two values that enter the attention from the side."""
    for row, name in enumerate(("K", "V")):
        y = 4.08 - 0.42 * row
        for x in (1.35, 1.75):
            _new(axes, x, y, 0.32, 0.32, PURPLE)
        axes.text(2.05, y - 0.02, name, color=PURPLE, fontsize=11, va="center", zorder=6)
    arrow(axes, (2.35, 3.9), (2.8, 3.9), color=PURPLE)


def _prompt(axes: Axes) -> None:
    """Two vectors in front of the words."""
    for x in (0.9, 2.1):
        _new(axes, x, 0.1, 0.95, 0.72, ORANGE)


_MARKS = {"LoRA": _lora, "adapter": _adapter, "prefix": _prefix, "prompt": _prompt}


@styled
def low_rank(
    b: Numbers, a: Numbers, product: Numbers, beside: Mapping[str, Numbers] | None = None
) -> Figure:
    """B and A, drawn to scale, and the matrix that they make; violet below zero, orange above.

    Args:
        b: [O r].
        a: [r I].
        product: what the two make, [O I].
        beside: a name -> another matrix [O I] to compare the product with, drawn at the right.

    Raises:
        CourseError: the shapes do not fit each other.
    """
    tall, flat, full = array(b), array(a), array(product)
    (outputs, rank), (_, inputs) = tall.shape, flat.shape
    if flat.shape[0] != rank or full.shape != (outputs, inputs):
        raise CourseError(f"{tall.shape} and {flat.shape} make no {full.shape}.")
    pictures = {"B": tall, "A": flat, "B A": full}
    pictures |= {name: array(matrix) for name, matrix in (beside or {}).items()}
    figure, axes = canvas(12.4, 4.2)
    axes.set_axis_off()
    x = 0.0
    thinnest = 0.045 * inputs  # so that rank 1 can be seen
    for number, (name, values) in enumerate(pictures.items()):
        wide = max(values.shape[1], thinnest)
        high = max(values.shape[0], thinnest)
        most = float(abs(values).max()) or 1.0
        place = (x, x + wide, (outputs - high) / 2, (outputs + high) / 2)
        look: dict[str, Any] = {"cmap": "PuOr_r", "vmin": -most, "vmax": most}
        axes.imshow(values, extent=place, aspect="equal", interpolation="nearest", **look)
        edge = Rectangle((place[0], place[2]), wide, high, fill=False, edgecolor=GREY, lw=1.2)
        axes.add_patch(edge)
        says = f"{name} [{values.shape[0]}, {values.shape[1]}]\n{values.size:,} numbers"
        middle = x + wide / 2
        axes.text(middle, place[3] + 0.03 * outputs, says, ha="center", va="bottom", fontsize=13)
        x += wide + 0.34 * inputs
        if number < len(pictures) - 1:
            centred(axes, x - 0.17 * inputs, outputs / 2, "×=≈"[number], fontsize=22, color=INK)
    axes.set(xlim=(-0.28 * inputs, x), ylim=(-0.02 * outputs, 1.28 * outputs))
    return figure
