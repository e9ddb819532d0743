"""Lesson 16: an encoder-decoder that writes a text again from a corrupted copy."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from classroom.figures.drawings import Token, named_tint
from classroom.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    TINTS,
    arrow,
    canvas,
    styled,
    token_box,
    token_width,
)
from course_lib.errors import CourseError

UP = 1.75  # from a row of tokens to the row of their vectors
RADIUS = 0.14
FAINT = "#cfd4d8"
Point = tuple[float, float]


@styled
def restoring(source: Sequence[Token], target: Sequence[Token], at: int) -> Figure:
    """Encoder and decoder at work: who sees whom while the token `at` of the target is predicted.

    Args:
        source: the corrupted text. A token is a string, or (string, tint) with a tint of
            `style.TINTS`.
        target: the whole text, U tokens. The decoder reads it one place later, behind [start].
        at: 0 to U - 1.

    Raises:
        CourseError: the target has no such token.
    """
    if not 0 <= at < len(target):
        raise CourseError(f"The target has {len(target)} tokens, so there is no token {at}.")
    below = [named_tint(token) for token in source]
    above = [named_tint(token) for token in target]
    read = [("[start]", "dark"), *above[:-1]]
    left = _middles(below, 0.0)
    columns = [
        (text if len(text) > len(other) else other, "")
        for (text, _), (other, _) in zip(read, above, strict=True)
    ]
    right = _middles(columns, left[-1] + token_width(below[-1][0]) / 2 + 0.7)
    floor = 1.55  # of the decoder
    figure, axes = canvas(right[-1] + 1.2, 6.4)

    for x in left:
        for above_x in left:
            axes.plot([x, above_x], [0.22, UP - RADIUS], color=FAINT, lw=1.1, zorder=0)
    for u, x in enumerate(right):
        for v, above_x in enumerate(right[u:], start=u):
            if v != at:
                ends = [floor + 0.22, floor + UP - RADIUS]
                axes.plot([x, above_x], ends, color=FAINT, lw=1.1, zorder=0)
    eye = (right[at], floor + UP)
    for x in left:
        arrow(axes, (x, UP + RADIUS), (eye[0] - RADIUS, eye[1]), color=GREEN, lw=2.0)
    for x in right[: at + 1]:
        arrow(axes, (x, floor + 0.22), (eye[0], eye[1] - RADIUS), color=BLUE, lw=2.4)

    for x, (text, tint) in zip(left, below, strict=True):
        token_box(axes, (x, 0.0), text, TINTS[tint])
        _vector(axes, (x, UP), chosen=False)
    top = floor + UP + 0.85
    for u, (x, (text, tint)) in enumerate(zip(right, above, strict=True)):
        seen, colour = read[u]
        token_box(axes, (x, floor), seen, TINTS[colour])
        _vector(axes, (x, floor + UP), chosen=u == at)
        color, lw = (INK, 2.4) if u == at else (GREY, 1.1)
        arrow(axes, (x, floor + UP + RADIUS), (x, top - 0.22), color=color, lw=lw)
        edge, line = (INK, 2.2) if u == at else (GREY, 1.0)
        token_box(axes, (x, top), text, TINTS[tint], edge=edge, line=line)
    start = left[0] - token_width(below[0][0]) / 2
    axes.text(start, -0.58, "encoder reads the corrupted text", fontsize=14, color=INK)
    begin = right[0] - token_width(columns[0][0]) / 2
    axes.text(begin, floor - 0.58, "decoder reads what was written so far", fontsize=14, color=BLUE)
    axes.text(begin, top + 0.4, "and predicts the next token", fontsize=14, color=INK)
    axes.text(start, UP + 0.55, "cross-attention", fontsize=14, color=GREEN)
    axes.set(xlim=(start - 0.1, right[-1] + 0.75), ylim=(-0.75, top + 0.75))
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def _middles(tokens: Sequence[tuple[str, str]], left: float) -> list[float]:
    """The middles of boxes side by side."""
    middles = []
    for text, _ in tokens:
        middles.append(left + token_width(text) / 2)
        left += token_width(text) + 0.14
    return middles


def _vector(axes: Axes, middle: Point, *, chosen: bool) -> None:
    face, edge = (INK, INK) if chosen else ("white", GREY)
    axes.add_patch(Circle(middle, RADIUS, facecolor=face, edgecolor=edge, lw=1.3, zorder=3))
