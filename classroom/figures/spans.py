"""The answers that a reader of questions compares: every pair of a start and an end."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    GREY,
    INK,
    PALE,
    VERMILION,
    Numbers,
    array,
    blue,
    canvas,
    centred,
    styled,
)
from course_lib.errors import CourseError

CELL = 1.0  # the side of a cell; the drawing's unit


@styled
def span_table(tokens: Sequence[str], start: Numbers, end: Numbers) -> Figure:
    """The sum start[i] + end[j] of every answer from token i to token j, the best one framed.

    A row is a first token, a column a last token. Below the diagonal the answer would end before
    it starts, so these cells are struck out.

    Args:
        tokens: the T tokens of the passage.
        start: [T], the start logits.
        end: [T], the end logits.
    """
    first, last = array(start), array(end)
    count = len(tokens)
    if first.shape != (count,) or last.shape != (count,):
        raise CourseError(
            f"There are {count} tokens but {list(first.shape)} start and {list(last.shape)} end"
            " logits; give one of each for every token."
        )
    sums = first[:, None] + last[None, :]
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    best = max(pairs, key=lambda pair: float(sums[pair]))
    low = min(float(sums[pair]) for pair in pairs)
    spread = max(float(sums[best]) - low, 1e-6)

    figure, axes = canvas(2.6 + 1.05 * count, 1.5 + 0.62 * count)
    for i in range(count):
        for j in range(count):
            corner = (j * CELL, -i * CELL)
            if j < i:
                axes.add_patch(Rectangle(corner, 1, 1, facecolor=PALE, edgecolor="white"))
                ends = [corner[0] + 0.3, corner[0] + 0.7], [corner[1] + 0.3, corner[1] + 0.7]
                axes.plot(*ends, color=GREY, lw=1.2)
                continue
            share = (float(sums[i, j]) - low) / spread
            fill = blue(0.85 * share)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=fill, edgecolor="white"))
            ink = "white" if share > 0.7 else INK
            text = f"{sums[i, j]:.1f}"
            centred(axes, j + 0.5, 0.5 - i, text, color=ink, fontsize=13)
    frame = Rectangle((best[1], -best[0]), 1, 1, fill=False, edgecolor=VERMILION, linewidth=3)
    frame.set_zorder(5)
    axes.add_patch(frame)
    for i, token in enumerate(tokens):
        place: dict[str, Any] = {"va": "center", "fontsize": 13, "color": INK}
        axes.text(-0.2, 0.5 - i, f"{token}  {first[i]:+.1f}", ha="right", **place)
        axes.text(i + 0.5, 1.25, token, ha="center", **place)
        axes.text(i + 0.5, 1.65, f"{last[i]:+.1f}", ha="center", **place)
    axes.text(count / 2, 2.2, "the answer's last token", ha="center", fontsize=13, color=GREY)
    axes.text(-0.2, 1.25, "its first token", ha="right", va="center", fontsize=13, color=GREY)
    axes.set(xlim=(-2.3, count + 0.1), ylim=(1 - count - 0.1, 2.6))
    axes.set_axis_off()
    return figure
