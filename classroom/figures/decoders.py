"""A decoder that predicts the next token at every position."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    MONO,
    TINTS,
    Numbers,
    array,
    arrow,
    blue,
    canvas,
    centred,
    ink_on,
    styled,
)

LETTER, GAP = 0.155, 0.45  # inches: a letter at 14 points, from box to box
INPUT, STACK, TARGET = 0.0, 1.55, 3.1  # heights of the three rows


@styled
def next_tokens(
    tokens: Sequence[str], probabilities: Numbers | None = None, *, focus: int = 3
) -> Figure:
    """Inputs below, targets above, one place to the left: each position predicts the next token.

    Args:
        tokens: of one text, in order. The first is only read, the last is only predicted.
        probabilities: [T - 1], what the model gave to each target; drawn below it.
        focus: the position whose view is drawn: lines from all inputs that it may look at.
    """
    shares = None if probabilities is None else array(probabilities).reshape(-1)
    widths = [LETTER * max(len(a), len(b), 4) + 0.3 for a, b in pairwise(tokens)]
    middles = [0.5 * width + sum(widths[:i]) + GAP * i for i, width in enumerate(widths)]
    right = middles[-1] + 0.5 * widths[-1]
    figure, axes = canvas(right + 2.2, 4.4)
    axes.set(xlim=(-1.9, right + 0.3), ylim=(-0.6, 4.1))
    axes.set_axis_off()
    stack = FancyBboxPatch(
        (-0.1, STACK - 0.5),
        right + 0.2,
        1.0,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=TINTS["yellow"],
        edgecolor="#9aa0a6",
    )
    axes.add_patch(stack)
    for height, name in ((INPUT, "it reads"), (STACK, "decoder"), (TARGET, "right token")):
        axes.text(-1.9, height, name, va="center", fontsize=14, color=INK)
    focus = min(focus, len(middles) - 1)
    for t, x in enumerate(middles):
        strong = t == focus
        _box(axes, x, INPUT, widths[t], tokens[t], TINTS["blue" if t <= focus else "plain"])
        share = 0.0 if shares is None else float(shares[t])
        _box(axes, x, TARGET, widths[t], tokens[t + 1], blue(0.8 * share), bold=strong)
        arrow(axes, (x, INPUT + 0.32), (x, STACK - 0.5), color=GREY, lw=1.6)
        colour = BLUE if strong else GREY
        arrow(axes, (x, STACK + 0.5), (x, TARGET - 0.32), color=colour, lw=3 if strong else 1.6)
        if t <= focus:
            axes.plot([x, middles[focus]], [STACK - 0.5, STACK + 0.5], color=BLUE, lw=2.4, zorder=3)
        if shares is not None:
            centred(axes, x, TARGET + 0.58, f"{share:.2f}", fontsize=13, color=INK)
    if shares is not None:
        axes.text(-1.9, TARGET + 0.58, "probability", va="center", fontsize=14, color=INK)
    return figure


def _box(
    axes: Axes, x: float, y: float, width: float, text: str, fill: str, *, bold: bool = False
) -> None:
    """A token in a box with its middle at (x, y)."""
    edge, line = (BLUE, 2.6) if bold else ("#9aa0a6", 1.0)
    axes.add_patch(
        Rectangle((x - width / 2, y - 0.3), width, 0.6, facecolor=fill, edgecolor=edge, lw=line)
    )
    centred(
        axes,
        x,
        y - 0.01,
        text.replace("$", r"\$"),
        fontsize=14,
        family=MONO,
        color=ink_on(fill),
    )
