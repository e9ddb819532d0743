"""Lesson 12: masks over the epochs, layers with and without weights of their own, and a score that
is a sum of three terms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    bare,
    canvas,
    centred,
    ink_on,
    panels,
    rounded_box,
    styled,
)
from course_lib.analysis import cost
from course_lib.errors import CourseError
from course_lib.model.config import StackConfig

TALL, WIDE = 5.2, 2.5  # of the drawn table of token vectors: its rows, 768 columns


@styled
def masks_by_epoch(
    tokens: Sequence[str], masks: Mapping[str, Numbers], epochs: Sequence[int]
) -> Figure:
    """Which tokens of a row are hidden in which epoch, a panel for each way to choose.

    Args:
        tokens: T tokens.
        masks: way -> Bool[E T], True where a token is hidden.
        epochs: E numbers.

    Raises:
        CourseError: a mask does not fit the tokens.
    """
    figure, axes = panels(12.6, 4.2, 1, len(masks))
    for one, (name, mask) in zip(axes, masks.items(), strict=True):
        hidden = array(mask) > 0
        if hidden.shape != (len(epochs), len(tokens)):
            raise CourseError(f"{name}: masks {hidden.shape} for {len(tokens)} tokens.")
        for epoch, row in enumerate(hidden):
            for place, covered in enumerate(row):
                fill = VERMILION if covered else TINTS["plain"]
                one.add_patch(
                    Rectangle((place - 0.47, epoch - 0.42), 0.94, 0.84, facecolor=fill, lw=0)
                )
                text = "?" if covered else tokens[place]
                centred(one, place, epoch, text, fontsize=13, color=ink_on(fill))
        one.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(len(hidden) - 0.45, -0.6), xticks=[])
        one.set_yticks(range(len(hidden)), [str(epoch) for epoch in epochs])
        one.set_title(name, fontsize=16)
        bare(one)
    axes[0].set_ylabel("epoch")
    return figure


def block_weights(config: StackConfig) -> int:
    """Parameters of one block of a stack."""
    one, two = (cost.parameters(replace(config, shared=False, layers=layers)) for layers in (1, 2))
    return two - one


@styled
def shared_layers(models: Mapping[str, StackConfig]) -> Figure:
    """Encoders side by side: the table of token vectors, drawn to scale, and the blocks above it.
    Blocks with the same weights have the same colour.

    Args:
        models: name -> its configuration.
    """
    figure, grid = panels(12.4, 6.3, 1, len(models))
    for axes, (name, config) in zip(grid, models.items(), strict=True):
        _table(axes, config)
        weights = block_weights(config)
        for layer in range(config.layers):
            low = 0.2 + layer * 0.5
            fill = TINTS["orange"] if config.shared else ("#c7dcef", "#e9f2fa")[layer % 2]
            said = "block 1 again" if config.shared and layer else f"block {layer + 1}"
            rounded_box(axes, (6.3, low + 0.2), (3.4, 0.4), said, fill=fill, fontsize=12)
        count = 1 if config.shared else config.layers
        top = 0.2 + config.layers * 0.5
        told = f"{count} × {weights / 1e6:.1f} million weights\nused {config.layers} times"
        if not config.shared:
            told = f"{count} × {weights / 1e6:.1f} million weights\neach used once"
        axes.text(6.3, top + 0.1, told, ha="center", va="bottom", fontsize=13.5)
        arrow(axes, (3.75, 3.0), (4.5, 0.4))
        axes.set(xlim=(-0.3, 8.3), ylim=(-0.75, top + 1.15))
        total = cost.parameters(config) / 1e6
        axes.set_title(f"{name}: {total:.0f} million weights", fontsize=17)
        axes.set_axis_off()
    return figure


def _table(axes: Axes, config: StackConfig) -> None:
    """The table of token vectors, and the projection to the stack's width if there is one."""
    embed = config.embed.width or config.width
    width = WIDE * embed / 768
    left = 0.9
    look: dict[str, Any] = {"facecolor": TINTS["green"], "edgecolor": GREY, "lw": 1.0}
    axes.add_patch(Rectangle((left, 0.6), width, TALL, **look))
    axes.text(left - 0.15, 0.6 + TALL / 2, f"{config.embed.vocab:,} tokens", fontsize=13,
              rotation=90, ha="right", va="center")  # fmt: skip
    axes.text(left + width / 2, 0.7 + TALL, f"{embed}", ha="center", va="bottom", fontsize=13)
    count = config.embed.vocab * embed
    if embed != config.width:
        count += embed * config.width
        tall = WIDE * embed / 768
        axes.add_patch(Rectangle((left + width + 0.3, 3.0), WIDE * 0.8, tall, **look))
        middle = left + width + 0.3 + WIDE * 0.4
        axes.text(middle, 3.1 + tall, f"{embed} × {config.width}", ha="center", va="bottom",
                  fontsize=13)  # fmt: skip
    axes.text(2.1, 0.35, f"token vectors:\n{count / 1e6:.1f} million weights", ha="center",
              va="top", fontsize=13.5)  # fmt: skip


@styled
def disentangled(query: str, key: str, distance: int) -> Figure:
    """DeBERTa's score of two tokens: each has a vector for what it says, the pair has two vectors
    for their distance, and three products are added.
    """
    figure, axes = canvas(11.6, 4.6)
    axes.set(xlim=(0, 11.6), ylim=(0, 4.6))
    axes.set_axis_off()
    apart = f"distance {distance:+d}".replace("-", "−")
    boxes = {
        (1.7, 3.4): (query, "what it says: $Q_i$", TINTS["blue"]),
        (9.9, 3.4): (key, "what it says: $K_j$", TINTS["blue"]),
        (3.9, 0.8): (apart, "as a key: $K^r$", TINTS["orange"]),
        (7.7, 0.8): (apart, "as a query: $Q^r$", TINTS["orange"]),
    }
    for (x, y), (title, what, fill) in boxes.items():
        rounded_box(axes, (x, y), (2.9, 1.2), fill=fill)
        centred(axes, x, y + 0.25, title, fontsize=16, weight="bold")
        centred(axes, x, y - 0.25, what, fontsize=14)
    joins = [
        ((3.15, 3.4), (8.45, 3.4), BLUE, (5.8, 3.75), "1  content to content"),
        ((2.2, 2.8), (3.4, 1.4), ORANGE, (1.35, 1.95), "2  content\nto position"),
        ((8.2, 1.4), (9.4, 2.8), VERMILION, (10.35, 1.95), "3  position\nto content"),
    ]
    for start, end, colour, (x, y), name in joins:
        axes.plot(*zip(start, end, strict=True), color=colour, lw=4, solid_capstyle="round")
        centred(axes, x, y, name, fontsize=15)
    return figure
