"""Attention as a picture: who looks at whom, one query's way to its answer, how heads are split,
and what a mask does to scores and weights.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
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
    blue,
    canvas,
    centred,
    panels,
    styled,
)

MONO = "DejaVu Sans Mono"
CHARACTER = 0.602 / 72  # inches that a character of this font takes at one point
WIDEST = 11.2  # inches
HUES = ("blue", "orange", "green", "purple", "yellow")


@styled
def looks(tokens: Sequence[str], weights: Numbers, answer: str = "") -> Figure:
    """The last token looks back: an arc to each token, as wide as the weight is large.

    A text that is too long for one line loses its beginning.

    Args:
        tokens: T of them.
        weights: of the last token on all T, [T].
        answer: the token that the model would write next.
    """
    shares = array(weights).reshape(-1)
    names = [token or " " for token in tokens]
    room = 150 - len(answer)  # characters at nine points
    start = len(names) - 1
    used = 0
    while start >= 0 and used + len(names[start]) + 2 <= room:
        used += len(names[start]) + 2
        start -= 1
    names, shares = names[start + 1 :], shares[start + 1 :]
    written = [*names, *([answer] if answer else [])]
    size = min(13.0, (WIDEST - 0.3) / (CHARACTER * sum(len(name) + 2 for name in written)))
    unit = CHARACTER * size
    figure, axes = canvas(WIDEST, 3.4)
    middles = []
    left = 0.0
    for name in written:
        width = unit * (len(name) + 1.4)
        middles.append(left + width / 2)
        fill, edge, look = TINTS["plain"], "#9aa0a6", "-"
        if len(middles) == len(names):
            fill = TINTS["yellow"]
        elif len(middles) > len(names):
            fill, edge, look = "white", VERMILION, "--"
        elif shares[len(middles) - 1] >= 0.1:
            fill = TINTS["blue"]
        tall = 0.4 * size / 13
        box = Rectangle(
            (left, -tall / 2), width, tall, facecolor=fill, edgecolor=edge, linestyle=look
        )
        axes.add_patch(box)
        centred(axes, middles[-1], 0, name.replace("$", r"\$"), fontsize=size, family=MONO)
        left += unit * (len(name) + 2)
    asks = len(names) - 1
    top = 0.6
    for place, share in enumerate(shares[:-1]):
        if share < 0.02:
            continue
        far = middles[asks] - middles[place]
        height = 0.35 + 1.55 * far / max(middles[asks] - middles[0], 1e-9)
        top = max(top, 0.35 + height)
        _arc(axes, middles[asks], middles[place], height, 0.5 + 9 * share)
    for place, share in enumerate(shares):
        if share >= 0.02:
            colour = BLUE if share >= 0.1 else GREY
            centred(axes, middles[place], -0.42, f"{share:.2f}", fontsize=12, color=colour)
    axes.set(xlim=(-0.1, max(left, WIDEST - 0.3)), ylim=(-0.65, max(top, 1.4) + 0.15))
    axes.set_axis_off()
    return figure


def _arc(axes: Axes, start: float, end: float, height: float, width: float) -> None:
    """From the top of one box to the top of another."""
    across = np.linspace(start, end, 60)
    middle, half = (start + end) / 2, abs(start - end) / 2
    up = 0.22 + height * np.sqrt(np.clip(1 - ((across - middle) / half) ** 2, 0, 1))
    axes.plot(across, up, color=BLUE, alpha=0.75, linewidth=width, solid_capstyle="butt")


@styled
def one_query(
    words: Sequence[str], asks: int, q: Numbers, k: Numbers, v: Numbers, weights: Numbers
) -> Figure:
    """One word's way to its new vector: its query meets all keys, the weights mix the values.

    Args:
        words: T of them.
        asks: the number of the word that asks.
        q: its query, [d] with a small d; every number is written in its cell.
        k: all keys, [T d].
        v: all values, [T d].
        weights: of this query on all keys, [T].
    """
    query, keys, values, shares = array(q), array(k), array(v), array(weights)
    mixture = shares @ values
    figure, axes = canvas(WIDEST, 5.7)
    gap = 1.75
    middle = gap * (len(words) - 1) / 2
    for y, name in ((5.2, "query"), (3.25, "keys"), (2.25, "weights"), (1.25, "values")):
        axes.text(-2.3, y, name, va="center", fontsize=14, color=INK, weight="bold")
    axes.text(-2.3, -0.6, "mixture", va="center", fontsize=14, color=INK, weight="bold")
    _strip(axes, middle, 5.2, query, "yellow")
    said = f"“{words[asks]}” asks"
    axes.text(middle + 0.95, 5.2, said, va="center", fontsize=13, color=INK)
    for j, word in enumerate(words):
        x = gap * j
        arrow(axes, (middle, 4.95), (x, 4.12), color=GREY, lw=1.2)
        weight = "bold" if j == asks else "normal"
        centred(axes, x, 3.82, word, fontsize=14, weight=weight)
        _strip(axes, x, 3.25, keys[j], "orange")
        arrow(axes, (x, 2.98), (x, 2.62), color=GREY, lw=1.2)
        share = float(shares[j])
        circle = Rectangle((x - 0.45, 1.98), 0.9, 0.54, facecolor=blue(share), edgecolor="#9aa0a6")
        axes.add_patch(circle)
        ink = "white" if share > 0.55 else INK
        centred(axes, x, 2.25, f"{share:.2f}", fontsize=13, color=ink)
        _strip(axes, x, 1.25, values[j], "green")
        line = FancyArrowPatch(
            (x, 1.0), (middle + 0.12 * (x - middle), -0.32), arrowstyle="-", color=BLUE, alpha=0.75
        )
        line.set_linewidth(0.4 + 18 * share)
        axes.add_patch(line)
    _strip(axes, middle, -0.6, mixture, "blue")
    axes.text(middle + 0.95, -0.6, f"the new “{words[asks]}”", va="center", fontsize=13)
    axes.set(xlim=(-2.4, gap * len(words) - 0.75), ylim=(-0.95, 5.5))
    axes.set_axis_off()
    return figure


def _strip(axes: Axes, x: float, y: float, vector: NDArray[np.float64], tint: str) -> None:
    """A vector as a row of cells with its middle at (x, y)."""
    width = 1.5 / len(vector)
    for i, value in enumerate(vector):
        left = x - 0.75 + i * width
        axes.add_patch(
            Rectangle((left, y - 0.23), width, 0.46, facecolor=TINTS[tint], edgecolor="#9aa0a6")
        )
        centred(axes, left + width / 2, y, f"{value:.1f}", fontsize=12)


@styled
def heads_split(positions: int, heads: int, width: int) -> Figure:
    """Numbers of [T D] in their heads [H T Dh], and where a `view` alone puts them.

    Args:
        positions: T, rows of the left matrix.
        heads: H.
        width: Dh, of one head.
    """
    x = np.arange(positions * heads * width).reshape(positions, heads * width)
    owner = np.broadcast_to(np.arange(heads * width) // width, x.shape)

    def right(of: NDArray[np.int64]) -> NDArray[np.int64]:
        return of.reshape(positions, heads, width).transpose(1, 0, 2)

    def wrong(of: NDArray[np.int64]) -> NDArray[np.int64]:
        return of.reshape(heads, positions, width)

    figure, (first, second, third) = panels(WIDEST, 4.3, 1, 3)
    _grid(first, 0, 0, x, owner)
    for axes, split in ((second, right), (third, wrong)):
        for head in range(heads):
            top = -head * (positions + 1.3)
            axes.text(0, top + 0.25, f"head {head}", fontsize=12, color=INK, va="bottom")
            _grid(axes, 0, top, split(x)[head], split(owner)[head])
    first.set_title("x: [T D]", loc="center")
    second.set_title("right: view, then transpose", loc="center")
    third.set_title("wrong: view alone", loc="center")
    depth = heads * (positions + 1.3)
    for axes in (first, second, third):
        wide = heads * width if axes is first else width
        axes.set(xlim=(-4 + wide / 2, 4 + wide / 2), ylim=(-depth, 1.4))
        axes.set_aspect("equal")
        axes.set_axis_off()
    return figure


def _grid(
    axes: Axes, left: float, top: float, numbers: NDArray[np.int64], owner: NDArray[np.int64]
) -> None:
    """Numbered cells below `top`, each in the colour of the head that it belongs to."""
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            tint = TINTS[HUES[int(owner[row, column]) % len(HUES)]]
            spot = (left + column, top - row - 1)
            axes.add_patch(Rectangle(spot, 1, 1, facecolor=tint, edgecolor=GREY, linewidth=0.8))
            centred(axes, spot[0] + 0.5, spot[1] + 0.5, f"{numbers[row, column]}", fontsize=12)


@styled
def heads_layer(looks: Numbers) -> Figure:
    """A whole attention layer with several heads: split, look, mix, merge, `out`.

    Args:
        looks: the weights of its heads, [H T T].
    """
    maps = array(looks)
    heads = len(maps)
    figure, axes = canvas(WIDEST, 0.9 + 1.1 * heads)
    top = 1.2 * heads
    strip = 0.22  # the width Dh of one head
    titles = {0.5: "x\n[T D]", 2.95: "q    k    v\n[H T Dh]", 5.0: "weights\n[H T T]"}
    titles |= {6.9: "mixtures\n[H T Dh]", 8.75: "merged\n[T D]", 10.5: "through out\n[T D]"}
    for at, title in titles.items():
        centred(axes, at, top + 0.35, title, fontsize=12)
    middle = (top - 0.2) / 2
    wide = heads * strip
    for left in (0.5 - wide / 2, 10.5 - wide / 2):
        _block(axes, left, middle - 0.5, wide, PALE)
    arrow(axes, (8.75 + wide / 2 + 0.1, middle), (10.5 - wide / 2 - 0.1, middle))
    for head in range(heads):
        bottom = top - 1.2 * (head + 1) + 0.1
        height = bottom + 0.5
        tint = TINTS[HUES[head % len(HUES)]]
        for part in (2.45, 2.95, 3.45):
            _block(axes, part - strip / 2, bottom, strip, tint)
        spot = (4.5, 5.5, bottom, bottom + 1)
        axes.imshow(maps[head], extent=spot, cmap="Blues", vmin=0, vmax=1, zorder=2)
        axes.add_patch(Rectangle((4.5, bottom), 1, 1, fill=False, edgecolor=GREY, zorder=3))
        _block(axes, 6.9 - strip / 2, bottom, strip, tint)
        _block(axes, 8.75 - wide / 2 + head * strip, middle - 0.5, strip, tint)
        arrow(axes, (0.5 + wide / 2 + 0.1, middle), (2.2, height))
        arrow(axes, (3.7, height), (4.4, height))
        arrow(axes, (5.6, height), (6.65, height))
        arrow(axes, (7.15, height), (8.75 - wide / 2 - 0.1, middle))
        axes.text(2.15, bottom + 1.02, f"head {head}", fontsize=11, color=INK, va="bottom")
    axes.set(xlim=(-0.3, 11.3), ylim=(-0.1, top + 0.9))
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def _block(axes: Axes, left: float, bottom: float, width: float, tint: str) -> None:
    """A matrix of T rows, as a block one unit high."""
    axes.add_patch(Rectangle((left, bottom), width, 1, facecolor=tint, edgecolor=GREY))


@styled
def staircase(words: Sequence[str], scores: Numbers, mask: Numbers) -> Figure:
    """What a mask does: the scores, the scores that are left, and the weights after the softmax.

    Args:
        words: T of them.
        scores: of the queries (rows) with the keys (columns), [T T].
        mask: True where the query may look, [T T].
    """
    matrix, may = array(scores), array(mask).astype(bool)
    left = np.where(may, matrix, -np.inf)
    powers = np.exp(left - left.max(1, keepdims=True))
    shares = powers / powers.sum(1, keepdims=True)
    figure, grid = panels(WIDEST, 4.4, 1, 3, sharey=True)
    largest = max(float(np.abs(matrix).max()), 1e-9)
    size = len(words)
    titles = ("1. scores", "2. the mask takes the future away", "3. softmax: rows add up to 1")
    for panel, (axes, title) in enumerate(zip(grid, titles, strict=True)):
        for i in range(size):
            for j in range(size):
                share = shares[i, j] if panel == 2 else 0.5 * max(matrix[i, j], 0) / largest
                text = f"{shares[i, j]:.2f}" if panel == 2 else f"{matrix[i, j]:.1f}"
                fill = blue(float(share))
                if panel > 0 and not may[i, j]:
                    text, fill = "−∞" if panel == 1 else "0", PALE
                axes.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="white"))
                ink = "white" if panel == 2 and share > 0.55 and may[i, j] else INK
                if fill == PALE:
                    ink = GREY
                centred(axes, j + 0.5, i + 0.5, text, fontsize=11, color=ink)
        if panel > 0:
            _stairs(axes, may)
        axes.set(xlim=(0, size), ylim=(size, 0))
        axes.set_aspect("equal")
        axes.set_title(title, loc="center", fontsize=13)
        axes.set_xticks(np.arange(size) + 0.5, words, rotation=45, ha="right")
        axes.set_yticks(np.arange(size) + 0.5, words)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    grid[0].set_ylabel("query: who looks")
    grid[1].set_xlabel("key: who is looked at")
    return figure


def _stairs(axes: Axes, may: NDArray[np.bool_]) -> None:
    """A strong line between what may be seen and what may not."""
    for i, row in enumerate(may):
        for j, open_ in enumerate(row):
            if j + 1 < len(row) and open_ != row[j + 1]:
                axes.plot([j + 1, j + 1], [i, i + 1], color=VERMILION, linewidth=3)
            if i + 1 < len(may) and open_ != may[i + 1][j]:
                axes.plot([j, j + 1], [i + 1, i + 1], color=VERMILION, linewidth=3)
