"""What a prediction is made from: who sees whom in a network, and what it says at a gap."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch
from numpy.typing import NDArray

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    bare,
    centred,
    panels,
    styled,
)
from course_lib.errors import CourseError

Mask = NDArray[np.float64]
Guesses = Sequence[tuple[str, float]]
UP = 2.3  # from the row of inputs to the row of outputs


@styled
def who_sees_whom(
    tokens: Sequence[str], masks: Mapping[str, Sequence[Numbers]], gap: int
) -> Figure:
    """Networks side by side: which inputs reach the output that must say the token at `gap`.

    Args:
        tokens: T tokens; at `gap` a question mark is drawn.
        masks: name -> the network's attention masks Bool[T T], one for each direction in which it
            reads. Row: an output, column: an input that it sees.
        gap: the position that is asked for. A network that sees both sides answers there; one that
            reads from the left answers one position before, one that reads from the right one
            position after.

    Raises:
        CourseError: a mask does not fit the tokens.
    """
    matrices = {name: [array(mask) for mask in several] for name, several in masks.items()}
    count = len(tokens)
    for name, several in matrices.items():
        for matrix in several:
            if matrix.shape != (count, count):
                raise CourseError(f"{name}: a mask {matrix.shape} for {count} tokens.")
    figure, axes = panels(
        4.3 * len(masks), 6.2, 2, len(masks), gridspec_kw={"height_ratios": [3.4, 2]}
    )
    for column, (name, several) in enumerate(matrices.items()):
        _arrows(axes[column], name, tokens, several, gap)
        _masks(axes[len(masks) + column], several)
    return figure


def answering(matrix: Numbers | Mask, gap: int) -> int:
    """The output that must say the token at `gap`, given who sees whom."""
    mask = array(matrix)
    sees_left, sees_right = mask[gap, :gap].any(), mask[gap, gap + 1 :].any()
    if sees_left and sees_right:
        return gap
    return gap - 1 if sees_left else gap + 1


def _arrows(
    axes: Axes, name: str, tokens: Sequence[str], several: Sequence[Mask], gap: int
) -> None:
    shifts = [0.0] if len(several) == 1 else [-0.17, 0.17]
    used: dict[int, str] = {}
    for mask, shift in zip(several, shifts, strict=True):
        out = answering(mask, gap)
        for query, key in zip(*mask.nonzero(), strict=True):
            if query != out:
                axes.plot([key, query + shift], [0.36, UP - 0.17], color=PALE, lw=1.1, zorder=0)
        for key in mask[out].nonzero()[0]:
            side = BLUE if key < gap else VERMILION if key > gap else GREY
            arrow(axes, (key, 0.36), (out + shift, UP - 0.17), color=side, lw=2.4)
            used[int(key)] = "blue" if key < gap else "orange" if key > gap else "yellow"
        for query in range(len(tokens)):
            chosen = query == out
            axes.add_patch(
                Circle(
                    (query + shift, UP),
                    0.15,
                    facecolor=INK if chosen else "white",
                    edgecolor=INK if chosen else GREY,
                    lw=1.2,
                )
            )
        arrow(axes, (out + shift, UP + 0.17), (gap, UP + 0.78), color=INK, lw=1.6)
    axes.text(gap, UP + 0.82, "?", ha="center", va="bottom", fontsize=19, color=INK)
    for place, token in enumerate(tokens):
        tint = TINTS[used.get(place, "plain")]
        axes.add_patch(
            FancyBboxPatch(
                (place - 0.4, -0.26),
                0.8,
                0.56,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor=tint,
                edgecolor="#9aa0a6",
            )
        )
        shown = "?" if place == gap and place not in used else token
        ink = INK if place in used else GREY
        centred(axes, place, 0.0, shown, fontsize=12.5, color=ink)
    axes.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(-0.4, UP + 1.5), aspect="equal")
    axes.set_title(name, fontsize=17)
    axes.set_axis_off()


def _masks(axes: Axes, several: Sequence[Mask]) -> None:
    """The masks beside each other, a row an output, a column an input, coloured by its side."""
    left = 0.0
    for mask in several:
        count = len(mask)
        distance = np.arange(count) - np.arange(count)[:, None]  # below 0: an input on the left
        sides = np.sign(distance) * mask
        if not (sides < 0).any() or not (sides > 0).any():  # one side only, and the token itself
            sides = np.where(mask, np.sign(sides.sum()), 0)
        own = (mask > 0) & (sides == 0)
        edges = [left + i for i in range(count + 1)]
        axes.pcolormesh(
            edges,
            range(count + 1),
            np.where(own, 2, sides),
            cmap=ListedColormap([BLUE, PALE, VERMILION, GREY]),
            vmin=-1,
            vmax=2,
            edgecolors="white",
            linewidth=1.6,
        )
        left += count + 1
    axes.invert_yaxis()
    axes.set(aspect="equal", xticks=[], yticks=[], xlabel="input", ylabel="output")
    bare(axes)


@styled
def gap_guesses(sentence: str, guesses: Mapping[str, tuple[str, Guesses]]) -> Figure:
    """What several models say at a gap, as bars, the likeliest on top.

    Args:
        sentence: the whole sentence, the title.
        guesses: model -> (what it reads, [(token, probability), ...]).
    """
    figure, axes = panels(11.5, 4.4, 1, len(guesses))
    for place, (name, (reads, rows)) in enumerate(guesses.items()):
        one = axes[place]
        words = [word for word, _ in rows][::-1]
        shares = [100 * share for _, share in rows][::-1]
        one.barh(range(len(rows)), shares, color=BLUE, height=0.66)
        for height, share in enumerate(shares):
            one.text(share + 1.5, height, f"{share:.0f}%", va="center", fontsize=13)
        one.set_yticks(range(len(rows)), words, fontsize=15)
        one.set(xlim=(0, 112), xticks=[])
        bare(one)
        seen = "\n".join(textwrap.wrap(f"reads: {reads}", 44))
        one.set_title(f"{name}\n{seen}", fontsize=13, loc="left")
    figure.suptitle("\n".join(textwrap.wrap(sentence, 90)), fontsize=15)
    return figure
