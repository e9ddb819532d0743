"""Whole models drawn from their configuration, with every token's path: in which parts the tokens
meet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    MONO,
    TINTS,
    arrow,
    canvas,
    centred,
    rounded_box,
    styled,
)
from course_lib.model.config import Learned, NoPosition, Sinusoidal, StackConfig

LANE, STEP = 1.05, 0.62  # inches: from token to token, from row to row
TINT = {
    "attention": "blue",
    "encoder": "green",
    "LSTM": "blue",
    "norm": "yellow",
    "feed-forward": "orange",
}

Branch = tuple[str, ...]  # rows whose sum with what entered the first of them goes on


def names(row: str | Branch) -> Branch:
    """The parts of a row."""
    return (row,) if isinstance(row, str) else row


@dataclass
class Tower:
    """One stack as it is drawn, from below: tokens, rows, a frame of rows that is repeated, rows,
    what a head says.

    A row is the name of a part that is applied to every token by itself; "| name" is a part in
    which the tokens meet; a tuple of rows has a residual connection around it. gives: position ->
    what the head says there."""

    tokens: Sequence[str]
    before: Sequence[str | Branch]
    block: Sequence[str | Branch]
    times: str
    after: Sequence[str | Branch] = ()
    head: str = ""
    gives: Mapping[int, str] = field(default_factory=dict)


def tower(
    config: StackConfig,
    tokens: Sequence[str],
    head: str = "",
    gives: Mapping[int, str] | None = None,
) -> Tower:
    """A stack of this configuration over these tokens; head: what stands on top, where `gives` has
    places.
    """
    norm = "RMS norm" if config.rms else "layer norm"
    added = {Learned: " + position", Sinusoidal: " + sine of position"}.get(
        type(config.position), ""
    )
    scores = (
        ""
        if added or isinstance(config.position, NoPosition)
        else f", {type(config.position).__name__}"
    )
    mixing = "| attention, causal" if config.causal else "| attention, both sides"
    parts = [
        mixing + scores,
        *(["| attention to the encoder"] if config.cross else []),
        "feed-forward",
    ]
    block: list[str | Branch] = []
    for part in parts:
        block += [(norm, part)] if config.norm == "pre" else [(part,), norm]
    embed = [
        "token" + (" + segment" if config.embed.segments else "") + added,
        *([norm] if config.embed.norm else []),
    ]
    after = [norm] if config.final_norm else []
    return Tower(tokens, embed, block, f"× {config.layers}", after, head, gives or {})


@styled
def model(towers: Sequence[Tower]) -> Figure:
    """One stack, or an encoder and the decoder that reads it as its memory, bottom to top with
    every token's path.
    """
    lefts, x = [], 0.0
    for each in towers:
        lefts.append(x + 2.05)
        x += 2.05 + LANE * len(each.tokens) + 0.45
    most = max(
        sum(len(names(r)) for r in (*t.before, *t.block, *t.after)) + bool(t.head) for t in towers
    )
    figure, axes = canvas(x, (most + 2.2) * STEP)
    axes.set(xlim=(0, x), ylim=(-0.3, (most + 1.6) * STEP))
    axes.set_axis_off()
    above = None
    for each, left in zip(towers, lefts, strict=True):
        above = _tower(axes, each, left, above)
    return figure


def _tower(
    axes: Axes, one: Tower, left: float, memory: tuple[float, float] | None
) -> tuple[float, float]:
    """Draw it; the point of its top from which another reads it."""
    lanes = [left + LANE * (i + 0.5) for i in range(len(one.tokens))]
    right, y = left + LANE * len(lanes), 0.0
    for x, token in zip(lanes, one.tokens, strict=True):
        _box(axes, x, y, 0.95 * LANE, token, "dark" if token[:1] in "[<" else "plain", mono=True)

    def rows(several: Sequence[str | Branch]) -> None:
        nonlocal y
        for row in several:
            low = y + 0.5 * STEP
            for name in names(row):
                y += STEP
                _row(axes, name, lanes, left, y)
                if "encoder" in name and memory:
                    bend = left - 2.0
                    axes.plot(
                        [memory[0], memory[0], bend, bend],
                        [memory[1], memory[1] + 0.2, memory[1] + 0.2, y],
                        **LINE,
                    )
                    arrow(axes, (bend, y), (left, y))
            if not isinstance(row, str):  # the residual connection, once for all lanes
                high = y + 0.5 * STEP
                axes.plot(
                    [lanes[0], left - 0.16, left - 0.16, lanes[0]],
                    [low + 0.04, low + 0.04, high, high],
                    **LINE,
                )
                for x in lanes:
                    axes.scatter([x], [high], s=90, facecolor="white", edgecolor=GREY, zorder=5)
                    centred(axes, x, high - 0.01, "+", fontsize=11, color=INK, zorder=6)

    rows(one.before)
    low = y + 0.42 * STEP
    rows(one.block)
    frame: dict[str, Any] = {
        "fill": False,
        "edgecolor": BLUE,
        "linewidth": 1.3,
        "linestyle": (0, (5, 3)),
    }
    axes.add_patch(
        Rectangle((left - 0.28, low), right - left + 0.36, y + 0.66 * STEP - low, **frame)
    )
    axes.text(right + 0.12, (low + y) / 2, one.times, fontsize=13, color=BLUE, va="center")
    rows(one.after)
    top = ((left + right) / 2, y + (0.34 if one.after else 0.66) * STEP)
    if one.head:
        y += STEP
        _row(axes, one.head, [lanes[i] for i in one.gives], left, y)
    for i, said in one.gives.items():
        arrow(axes, (lanes[i], y + 0.36 * STEP), (lanes[i], y + 0.72 * STEP), lw=1.3)
        _box(axes, lanes[i], y + 1.1 * STEP, 0.95 * LANE, said, "orange", mono=True)
    return top


LINE: dict[str, Any] = {"color": GREY, "linewidth": 1.5, "zorder": 2, "solid_capstyle": "butt"}


def _row(axes: Axes, name: str, lanes: Sequence[float], left: float, y: float) -> None:
    """One part: a box for every token, named on the left, or one box for all, named inside."""
    tint = next(
        (
            TINT[key]
            for key in ("encoder", "attention", "LSTM", "norm", "feed-forward")
            if key in name
        ),
        "purple",
    )
    for x in lanes:
        arrow(axes, (x, y - 0.66 * STEP), (x, y - 0.34 * STEP), lw=1.1)
    if name.startswith("| "):
        _box(axes, sum(lanes) / len(lanes), y, LANE * len(lanes) - 0.08, name[2:], tint)
        return
    axes.text(left - 0.36, y, name, ha="right", va="center", fontsize=12, color=INK)
    for x in lanes:
        _box(axes, x, y, 0.8 * LANE, "", tint)


def _box(
    axes: Axes, x: float, y: float, width: float, text: str, tint: str, mono: bool = False
) -> None:
    family: dict[str, Any] = {"family": MONO} if mono else {}
    size = width, 0.68 * STEP
    rounded_box(axes, (x, y), size, text, fill=TINTS[tint], fontsize=12, **family)
