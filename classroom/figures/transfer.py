"""Lesson 07's pictures: where the weights of a network come from and what the labels change, layers
that are unfrozen one after the other, scores over the number of labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from classroom.figures.style import (
    GREY,
    INK,
    ORANGE,
    PALETTE,
    TINTS,
    Numbers,
    array,
    canvas,
    centred,
    panels,
    styled,
)

# name -> (the body comes from text, it is trained; the same of the layer on top, what it scores;
# labels)
_WAYS: dict[str, tuple[tuple[bool, bool], tuple[bool, bool, str], str]] = {
    "from scratch": ((False, True), (False, True, "head"), "very many"),
    "features": ((True, False), (False, True, "head"), "few"),
    "fine-tuning": ((True, True), (False, True, "head"), "few to many"),
    "prompting": ((True, False), (True, False, "words"), "none, or a few\nin the prompt"),
}


@styled
def weight_origins(blocks: int) -> Figure:
    """Four ways to a classifier: the fill says where weights come from, the edge what labels
    train.

    Args:
        blocks: of the network.
    """
    figure, axes = canvas(12.4, 6.2)
    names = ["token\nvectors", *(f"block {i + 1}" for i in range(blocks))]
    gap, left = 1.75, 3.9
    head = left + gap * len(names) + 0.5
    for row, (way, (body, top, labels)) in enumerate(_WAYS.items()):
        y = -1.5 * row
        axes.text(0.0, y, way, fontsize=16, weight="bold", va="center")
        for column, name in enumerate(names):
            _part(axes, left + gap * column, y, name, *body)
        _part(axes, head, y, top[2], *top[:2])
        centred(axes, head + 2.4, y, labels, fontsize=13)
    centred(axes, left + gap * (len(names) - 1) / 2, 1.05, "body", fontsize=14, color=GREY)
    centred(axes, head, 1.05, "last layer", fontsize=14, color=GREY)
    centred(axes, head + 2.4, 1.05, "labels", fontsize=14, color=GREY)
    y = -1.5 * len(_WAYS) - 0.1
    legend = (
        ("from text", True, False),
        ("random", False, False),
        ("trained on labels", None, True),
    )
    for place, (says, from_text, is_trained) in zip((1.2, 5.2, 9.2), legend, strict=True):
        _part(axes, place, y, "", from_text, is_trained, width=0.8, height=0.6)
        axes.text(place + 0.6, y, says, fontsize=14, va="center")
    axes.set(xlim=(-0.2, head + 3.9), ylim=(y - 0.6, 1.5))
    axes.set_axis_off()
    return figure


def _part(
    axes: Axes,
    x: float,
    y: float,
    name: str,
    from_text: bool | None,
    is_trained: bool,
    *,
    width: float = 1.5,
    height: float = 0.95,
) -> None:
    """A box for some weights. from_text: None for a box without a fill."""
    fill = {True: TINTS["blue"], False: "white", None: "white"}[from_text]
    corner = (x - width / 2, y - height / 2)
    box = "round,pad=0,rounding_size=0.1"
    dots: dict[str, Any] = {"hatch": "..." if from_text is False else None, "edgecolor": GREY}
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=box, facecolor=fill, lw=0, **dots)
    )
    edge: dict[str, Any] = {"edgecolor": ORANGE, "lw": 4} if is_trained else {"edgecolor": GREY}
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=box, fill=False, **edge))
    look: dict[str, Any] = {"facecolor": fill, "edgecolor": "none", "pad": 1.5}
    if name:
        centred(axes, x, y, name, fontsize=12.5, color=INK, bbox=look)


@styled
def unfreezing(rates: Numbers, layers: Sequence[str]) -> Figure:
    """Which layer is trained in which epoch, and at which learning rate.

    Args:
        rates: [epochs, layers], 0 where a layer is frozen.
        layers: names, from the lowest to the top one.
    """
    values = array(rates)
    epochs, count = values.shape
    figure, axes = canvas(1.35 * epochs + 3.0, 0.62 * count + 1.3)
    for epoch in range(epochs):
        for layer in range(count):
            rate = values[epoch, layer]
            tint = TINTS["orange"] if rate else TINTS["plain"]
            axes.add_patch(
                Rectangle((epoch + 0.04, layer + 0.06), 0.92, 0.88, facecolor=tint, lw=0)
            )
            says = f"{rate:.5f}" if rate else "frozen"
            centred(axes, epoch + 0.5, layer + 0.5, says, fontsize=13, color=INK if rate else GREY)
    axes.set(xlim=(0, epochs), ylim=(0, count), xlabel="epoch")
    axes.set_xticks([epoch + 0.5 for epoch in range(epochs)], [f"{e + 1}" for e in range(epochs)])
    axes.set_yticks([layer + 0.5 for layer in range(count)], layers, fontsize=13)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


# as `records.curve` returns it: (x, means), (lower ends, upper ends)
Measured = tuple[tuple[Sequence[float], Sequence[float]], tuple[Sequence[float], Sequence[float]]]


@styled
def label_curves(
    tasks: Mapping[str, Mapping[str, Measured]],
    level: tuple[str, float] | None = None,
    guess: float | None = None,
    scale: float = 100,
) -> Figure:
    """Scores over the number of labels, a panel for each task, with their intervals.

    Args:
        tasks: title -> name -> a curve as `records.curve` returns it. All panels have the same
            names.
        level: (name, x): a dotted line goes right from this point of each panel.
        guess: percent that are right without learning; a grey line of each panel.
        scale: times this, the curves' values are percent.
    """
    figure, grid = panels(12.6, 5.9, 1, len(tasks))
    for axes, (title, curves) in zip(grid, tasks.items(), strict=True):
        for index, (name, ((xs, means), (lows, highs))) in enumerate(curves.items()):
            colour = PALETTE[index % len(PALETTE)]
            ys, lower, upper = (scale * array(values) for values in (means, lows, highs))
            axes.vlines(xs, lower, upper, color=colour, linewidth=3, alpha=0.75)
            look: dict[str, Any] = {"marker": "osD^"[index % 4], "markersize": 7}
            axes.plot(xs, ys, color=colour, linewidth=1.8, label=name, **look)
            if level and name == level[0]:
                height = ys[list(xs).index(level[1])]
                axes.plot([level[1], xs[-1]], [height, height], color=colour, ls=":", lw=2)
        if guess is not None:
            axes.axhline(guess, color=GREY, ls="--", lw=1.5, zorder=0)
            axes.annotate(
                "guess",
                (0.25, guess),
                (0, -4),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="center",
                va="top",
                color=GREY,
                fontsize=12,
            )
        axes.set_xscale("log")
        axes.set_xticks(list(xs), [f"{x:,.0f}" for x in xs], fontsize=12)
        axes.minorticks_off()
        axes.set(title=title, xlabel="labelled sentences")
    grid[0].set_ylabel("right (%)")
    handles, names = grid[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure
