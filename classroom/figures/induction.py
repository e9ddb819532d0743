"""Induction: one head looks one token back, another for what followed the last time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    TINTS,
    VERMILION,
    Numbers,
    array,
    canvas,
    centred,
    styled,
)

WIDEST = 11.2  # inches
LEAST = 0.03  # a smaller weight has no arc


@styled
def induction_circuit(
    tokens: Sequence[str], previous: Numbers, look: Numbers, answer: str = ""
) -> Figure:
    """Two heads over one text. Below: each token looks one token back. Above: the last one looks
    for the token that came after its like.

    Args:
        tokens: T of them; the last one asks.
        previous: for each token the weight that the first head gives to the token before it, [T].
        look: the weights of the second head from the last token on all tokens, [T].
        answer: the token that is likeliest to come next.
    """
    back, shares = array(previous).reshape(-1), array(look).reshape(-1)
    names = [token.strip() or "␣" for token in tokens]
    sizes = [0.115 * max(len(name), 2) + 0.3 for name in [*names, *([answer] if answer else [])]]
    squeeze = min(1.0, (WIDEST - 0.3) / (sum(sizes) + 0.16 * len(sizes)))
    figure, axes = canvas(WIDEST, 5.0)
    middles, left = list[float](), 0.0
    for number, width in enumerate(sizes):
        width *= squeeze
        middles.append(left + width / 2)
        fill, edge, style = TINTS["plain"], "#9aa0a6", "-"
        if number == len(names):
            fill, edge, style = "white", VERMILION, "--"
        elif number == len(names) - 1:
            fill = TINTS["yellow"]
        elif shares[number] >= 0.1:
            fill = TINTS["blue"]
        box = Rectangle((left, -0.2), width, 0.4, facecolor=fill, edgecolor=edge, linestyle=style)
        axes.add_patch(box)
        name = answer if number == len(names) else names[number]
        centred(axes, middles[-1], 0, name.replace("$", r"\$"), fontsize=13 * squeeze**0.7)
        left += width + 0.16 * squeeze
    asks = len(names) - 1
    for place in range(1, len(names)):
        if back[place] >= LEAST:
            _arc(axes, middles[place], middles[place - 1], -0.45, 7 * back[place], VERMILION)
    for place in range(asks):
        if shares[place] < LEAST:
            continue
        far = (middles[asks] - middles[place]) / max(middles[asks] - middles[0], 1e-9)
        _arc(axes, middles[asks], middles[place], 0.35 + 0.9 * far, 1 + 9 * shares[place], BLUE)
        centred(axes, middles[place], 0.34, f"{shares[place]:.2f}", fontsize=12, color=BLUE)
    axes.text(0, 2.2, "later layer: the last token looks for", color=BLUE, fontsize=13)
    axes.text(0, 1.98, "what followed a token like itself", color=BLUE, fontsize=13)
    axes.text(0, -1.1, "earlier layer: each token looks one back", color=VERMILION, fontsize=13)
    if answer:
        centred(axes, middles[-1], -0.36, "next?", fontsize=12, color=GREY)
    axes.set(xlim=(-0.1, max(left, WIDEST - 0.4)), ylim=(-1.25, 2.4))
    axes.set_axis_off()
    return figure


def _arc(axes: Axes, start: float, end: float, height: float, width: float, colour: str) -> None:
    """From one box to another; above them, or below with a negative height. Its head is a dot."""
    across = np.linspace(start, end, 60)
    middle, half = (start + end) / 2, abs(start - end) / 2
    side = np.sign(height)
    up = side * 0.22 + height * np.sqrt(np.clip(1 - ((across - middle) / half) ** 2, 0, 1))
    if height > 0:
        up += 0.25  # above the written weight
    axes.plot(across, up, color=colour, alpha=0.7, linewidth=width, solid_capstyle="butt")
    axes.plot([end], [up[-1]], marker="v" if height > 0 else "^", color=colour, markersize=7)
