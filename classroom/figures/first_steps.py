"""Lesson 00's pictures: questions that a text asks by itself, one network in four uses, the next
words at several temperatures, a text between two means, methods over the number of labels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALETTE,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    canvas,
    centred,
    note,
    panels,
    rounded_box,
    styled,
)


@styled
def free_questions(words: Sequence[str]) -> Figure:
    """The questions that one text asks by itself: what comes next, and what is in the gap.

    Args:
        words: six short ones. A row for each hidden word but the first, which has nothing before
            it.
    """
    figure, both = panels(12, 4.6, 1, 2)
    titles = ("gpt-english: what comes next?", "bert-english: what is in the gap?")
    for axes, title, sees_right in zip(both, titles, (False, True), strict=True):
        axes.set_title(title, loc="center", pad=12)
        for row in range(1, len(words)):
            for column, word in enumerate(words):
                tint = "blue"
                if column == row:
                    tint = "orange"
                elif column > row and not sees_right:
                    tint = "plain"
                _box(axes, column, -row, 0.92, 0.74, tint)
                is_unseen = tint == "plain"
                said = "" if is_unseen else word
                centred(axes, column, -row, said, fontsize=13, color=INK, zorder=4)
        axes.set(xlim=(-0.6, len(words) - 0.4), ylim=(0.5 - len(words), -0.4))
        axes.set_axis_off()
    return figure


class _Use(NamedTuple):
    """A row of `one_network`: the whole network, or the network without its last layer."""

    name: str
    reads: str
    network: str
    adds: str
    gives: str
    lessons: str


_USES = (
    _Use("1  as it is", "She opened\nthe [MASK].", "unchanged", "", "door", "08, 09, 18"),
    _Use(
        "2  its vectors",
        "a text",
        "unchanged",
        "comparing\nvectors",
        "a similar text\nor a label",
        "04, 06, 15",
    ),
    _Use(
        "3  fine-tuning",
        "a text",
        "trained on,\nwith labels",
        "a new\nlast layer",
        "a label",
        "07, 10, 20",
    ),
    _Use("4  a prompt", "the task in words,\nand a text", "unchanged", "", "an answer", "18, 19"),
)


@styled
def one_network() -> Figure:
    """Pretrain once, use many times: one network, four uses; what is new or trained is orange."""
    figure, axes = canvas(12, 6.2)
    _box(axes, 4.2, 1.75, 2.5, 0.8, "yellow")
    centred(axes, 4.2, 1.75, "much text, no labels", fontsize=13, zorder=4)
    arrow(axes, (5.5, 1.75), (6.0, 1.75))
    _box(axes, 7.35, 1.75, 2.6, 0.8, "blue")
    centred(axes, 7.35, 1.75, "a network that\nguesses words", fontsize=13, zorder=4)
    look: dict[str, Any] = {"fontsize": 15, "weight": "bold", "color": BLUE}
    centred(axes, 1.4, 1.75, "Pretrain once", **look)
    centred(axes, 1.4, 0.75, "Use many times", **look)
    arrow(axes, (7.35, 1.32), (7.35, 0.98))
    headings = ("reads", "the network", "and then", "gives", "lessons")
    for x, heading in zip((4.2, 7.35, 9.75, 11.95, 13.6), headings, strict=True):
        centred(axes, x, 0.75, heading, fontsize=13, color=GREY)
    for row, use in enumerate(_USES):
        y = -float(row)
        axes.text(0.2, y, use.name, fontsize=15, weight="bold", va="center")
        _box(axes, 4.2, y, 2.5, 0.74, "yellow")
        centred(axes, 4.2, y, use.reads, fontsize=12.5, zorder=4)
        arrow(axes, (5.5, y), (6.25, y))
        is_trained = use.network != "unchanged"
        _box(axes, 7.35, y, 2.1, 0.74, "orange" if is_trained else "blue")
        centred(axes, 7.35, y, use.network, fontsize=12.5, zorder=4)
        if use.adds:
            arrow(axes, (8.45, y), (8.75, y))
            _box(axes, 9.75, y, 1.9, 0.74, "orange")
            centred(axes, 9.75, y, use.adds, fontsize=12.5, zorder=4)
        arrow(axes, (10.75 if use.adds else 8.45, y), (11.05, y))
        _box(axes, 11.95, y, 1.7, 0.74, "green")
        centred(axes, 11.95, y, use.gives, fontsize=12.5, zorder=4)
        centred(axes, 13.6, y, use.lessons, fontsize=12.5)
    axes.set(xlim=(0.0, 14.4), ylim=(-3.55, 2.3))
    axes.set_axis_off()
    return figure


_OTHERS = "all others"


@styled
def next_words(words: Mapping[str, tuple[Sequence[str], Numbers]], top: float = 0.0) -> Figure:
    """The likeliest next words as bars, a panel for each list.

    Args:
        words: title -> (words, likeliest first; their probabilities). What is missing to 1 is the
            grey bar of all other words.
        top: the largest probability that has room; of all bars if it is 0.
    """
    figure, grid = panels(4.0 * len(words) + 0.3, 4.1, 1, len(words))
    bars = {title: _with_others(*given) for title, given in words.items()}
    room = 100 * (top or max(max(shares) for _, shares in bars.values()))
    for axes, (title, (names, probabilities)) in zip(grid, bars.items(), strict=True):
        shares = 100 * array(probabilities)
        rows = range(len(names))
        colours = [TINTS["dark"] if name == _OTHERS else BLUE for name in names]
        axes.barh(rows, shares, color=colours, height=0.7)
        for row, share in zip(rows, shares, strict=True):
            digits = 0 if 9.5 <= share < 99 else 1
            axes.text(share + 0.02 * room, row, f"{share:.{digits}f}%", va="center", fontsize=12)
        axes.set_yticks(rows, [name.strip() or repr(name) for name in names], fontsize=13)
        axes.set_xticks([])
        axes.set(xlim=(0, 1.25 * room), title=title)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure


def _with_others(names: Sequence[str], probabilities: Numbers) -> tuple[list[str], list[float]]:
    """The words and their probabilities, and what is left for all others if it is 0.1% or more."""
    shares = [float(share) for share in array(probabilities)]
    rest = 1 - sum(shares)
    if rest < 0.001:
        return [*names], shares
    return [*names, _OTHERS], [*shares, rest]


@styled
def two_means(
    names: Sequence[str], vectors: Numbers, labels: Sequence[int], new: Numbers, label: str
) -> Figure:
    """Labelled texts as points in the plane, the mean of each label, and a new text between them.

    Args:
        names: of the texts, short.
        vectors: [N 2].
        labels: 0 or 1 for each.
        new: [2], the vector of the new text.
        label: what is written at the new text.
    """
    points, kinds, asked = array(vectors), array(labels), array(new)
    figure, axes = canvas(8.6, 4.6)
    star = (float(asked[0]), float(asked[1]))
    looks = ((VERMILION, "o", "negative"), (BLUE, "s", "positive"))
    for kind, (colour, marker, title) in enumerate(looks):
        own = points[kinds == kind]
        axes.scatter(own[:, 0], own[:, 1], s=70, color=colour, marker=marker, alpha=0.55)
        x, y = (float(value) for value in own.mean(0))
        axes.scatter(x, y, s=240, color=colour, marker="X", edgecolor="white", zorder=3)
        bold: dict[str, Any] = {"ha": "center", "weight": "bold", "color": colour, "fontsize": 12}
        note(axes, (x, y), f"mean of\n{title}", (0, 13), linespacing=1.0, **bold)
        # the distance, on a dotted line from the mean to the new text
        axes.plot([x, star[0]], [y, star[1]], color=colour, lw=1.6, ls=":", zorder=0)
        gap = math.hypot(x - star[0], y - star[1])
        white: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        middle = ((x + star[0]) / 2, (y + star[1]) / 2)
        centred(axes, *middle, text=f"{gap:.2f}", fontsize=13, color=colour, bbox=white)
    for name, (x, y) in zip(names, points, strict=True):
        note(axes, (float(x), float(y)), name, (0, -17), ha="center", fontsize=12)
    axes.scatter(*star, 330, marker="*", color="#FFD23F", edgecolor=INK, zorder=4)
    note(axes, star, label, (12, -16), fontsize=13, weight="bold")
    axes.margins(0.16, 0.2)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    return figure


@styled
def over_labels(
    results: Mapping[str, Sequence[tuple[float, float, float]]],
    sizes: Sequence[int],
    guessing: float,
) -> Figure:
    """How often each method is right after so many labels: dots with their intervals, side by side.

    Args:
        results: method -> (mean, low, high) in percent, one for each size.
        sizes: numbers of labelled examples, one group of dots each.
        guessing: of whoever guesses, in percent; a dotted line.
    """
    figure, axes = canvas(10, 5)
    step = 0.8 / len(results)  # between two dots of a group
    for index, (name, rows) in enumerate(results.items()):
        colour = PALETTE[index % len(PALETTE)]
        offset = step * (index - (len(results) - 1) / 2)
        xs = [group + offset for group in range(len(sizes))]
        means, lows, highs = (list(column) for column in zip(*rows, strict=True))
        axes.plot(xs, means, color=colour, linewidth=1.4, alpha=0.6)
        axes.vlines(xs, lows, highs, color=colour, linewidth=2.6)
        look: dict[str, Any] = {"marker": "osD^"[index % 4], "linestyle": ""}
        axes.plot(xs, means, color=colour, markersize=10, label=name, **look)
    axes.axhline(guessing, color=GREY, linestyle=":", linewidth=1.6, zorder=0)
    axes.annotate(
        "guessing",
        (1.0, guessing),
        (6, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        color=GREY,
        fontsize=12,
    )
    axes.set_xticks(range(len(sizes)), [f"{size} labels" for size in sizes])
    axes.tick_params(axis="x", length=0)
    axes.set(ylabel="right (%)", xlim=(-0.55, len(sizes) - 0.45))
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(results),
        frameon=False,
        handletextpad=0.2,
        columnspacing=1.6,
    )
    return figure


def _box(axes: Axes, x: float, y: float, width: float, height: float, tint: str) -> None:
    """An empty box; what is trained has an orange line."""
    edge = {"orange": ORANGE, "plain": "#d9dcdf"}.get(tint, GREY)
    line = 2 if tint == "orange" else 1
    rounded_box(axes, (x, y), (width, height), fill=TINTS[tint], edge=edge, line=line)
