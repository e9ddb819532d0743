"""How attention learns the order: clocks, doors, biases as maps, and what is said beyond the
trained length.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    PALETTE,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    bare,
    canvas,
    centred,
    panels,
    styled,
)
from course_lib.errors import CourseError

MONO = "DejaVu Sans Mono"


@styled
def clocks(words: Sequence[str], hands: Numbers, names: Sequence[str]) -> Figure:
    """Each word has a row of clocks, each clock one hand: the pairs of a sinusoidal pattern.

    Args:
        words: T words, from left to right.
        hands: the sine and the cosine of each hand, [T C 2]. A hand at angle 0 points up.
        names: of the C clocks, from top to bottom.
    """
    pairs = array(hands)
    figure, axes = canvas(1.5 * len(words) + 2.0, 1.35 * len(names) + 0.6)
    for t, word in enumerate(words):
        centred(axes, t, 0.75, f"{t}  {word}", fontsize=14, color=INK)
        for c in range(len(names)):
            sine, cosine = pairs[t, c]
            colour = PALETTE[c % len(PALETTE)]
            axes.add_patch(Circle((t, -c), 0.4, facecolor="white", edgecolor="#9aa0a6", lw=1.4))
            arrow(axes, (t, -c), (t + 0.38 * sine, -c + 0.38 * cosine), color=colour, lw=2.6)
    for c, name in enumerate(names):
        colour = PALETTE[c % len(PALETTE)]
        axes.text(-0.65, -c, name, ha="right", va="center", fontsize=13, color=colour)
    axes.set(xlim=(-2.0, len(words) - 0.4), ylim=(-len(names) + 0.45, 1.0), aspect="equal")
    axes.set_axis_off()
    return figure


@styled
def position_doors() -> Figure:
    """One attention layer from word vectors to mixture, and the three places where a position can
    enter.
    """
    figure, axes = canvas(11.2, 4.9)
    boxes = {
        "word vectors": (0.0, "x", "plain"),
        "queries and keys": (3.1, "q, k", "blue"),
        "scores": (6.2, "q · k", "blue"),
        "mixture of values": (9.3, "softmax, then v", "plain"),
    }
    for name, (left, inside, tint) in boxes.items():
        box = FancyBboxPatch((left, 0), 1.9, 1.0, boxstyle="round,pad=0.02,rounding_size=0.12")
        box.set(facecolor=TINTS[tint], edgecolor="#9aa0a6", linewidth=1.4)
        axes.add_patch(box)
        centred(axes, left + 0.95, 0.5, inside, fontsize=15, color=INK)
        centred(axes, left + 0.95, -0.32, name, fontsize=13, color=GREY)
    for left in (1.98, 5.08, 8.18):
        arrow(axes, (left, 0.5), (left + 1.04, 0.5))
    doors = [
        (0.95, "1  add a pattern", "sinusoidal, learned", "word + position", "once, at the bottom"),
        (4.05, "3  turn", "rotary", "angle = position · speed", "in every layer"),
        (7.15, "2  add to the score", "Shaw, T5, ALiBi", "a term a distance", "in every layer"),
    ]
    for middle, title, schemes, what, often in doors:
        arrow(axes, (middle, 1.75), (middle, 1.1), color=VERMILION, lw=3)
        centred(axes, middle, 3.2, title, fontsize=16, color=VERMILION, weight="bold")
        centred(axes, middle, 2.82, schemes, fontsize=14, color=INK)
        centred(axes, middle, 2.44, what, fontsize=12, color=GREY)
        centred(axes, middle, 2.08, often, fontsize=12, color=GREY)
    axes.set(xlim=(-0.3, 11.5), ylim=(-0.6, 3.5))
    axes.set_axis_off()
    return figure


@styled
def bias_maps(rows: Mapping[str, Numbers], *, causal: bool = True) -> Figure:
    """What is added to the scores, one map a head; a row of maps for each scheme.

    Args:
        rows: name of a scheme -> its biases [H T T]; row of a map: a query, column: a key.
        causal: keys to the right of the query are left blank.
    """
    biases = {name: array(values) for name, values in rows.items()}
    heads = max(len(values) for values in biases.values())
    figure, grid = panels(2.7 * heads + 1.0, 2.75 * len(biases) + 0.4, len(biases), heads)
    for row, (name, values) in enumerate(biases.items()):
        size = values.shape[-1]
        hidden = np.triu(np.ones((size, size), bool), 1) & causal
        shown = np.where(hidden, np.nan, values)
        most = float(np.nanmax(abs(shown))) or 1.0
        cells = grid[row * heads : (row + 1) * heads]
        for head, axes in enumerate(cells):
            if head >= len(shown):
                axes.set_axis_off()
                continue
            image = axes.imshow(shown[head], cmap="PuOr_r", vmin=-most, vmax=most)
            axes.set_title(f"{name}, head {head}", loc="center", fontsize=13)
            axes.set_xticks([])
            axes.set_yticks([])
            bare(axes)
        cells[0].set_ylabel("query")
        cells[0].set_xlabel("key")
        figure.colorbar(image, ax=cells, shrink=0.85, label="added to the score")
    return figure


@styled
def by_position(shares: Mapping[str, Numbers], *, mark: int, label: str = "share right") -> Figure:
    """A strip of colour for each model: how well it does at each position, white 0 and blue 1.

    Args:
        shares: name -> a share for each position, [T]; NaN where nothing is asked.
        mark: the first position beyond the trained length; a line stands there.
    """
    matrix = np.stack([array(values) for values in shares.values()])
    figure, axes = canvas(10.6, 0.55 * len(shares) + 1.5)
    image = axes.imshow(
        matrix, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
    )
    axes.axvline(mark - 0.5, color=VERMILION, linewidth=3)
    axes.text(
        mark + 0.5, -0.75, "beyond the trained length →", color=VERMILION, fontsize=13, va="center"
    )
    axes.set_yticks(range(len(shares)), list(shares), fontsize=14)
    for row in range(1, len(shares)):
        axes.axhline(row - 0.5, color="white", linewidth=4)
    axes.set_xlabel("position")
    bare(axes)
    figure.colorbar(image, ax=axes, label=label)
    return figure


@styled
def echoes(wanted: str, said: Mapping[str, str], *, mark: int) -> Figure:
    """What several models say letter by letter, below what they should say.

    Right letters are blue, wrong ones orange. A space is drawn as a low line.

    Args:
        wanted: the right letters.
        said: name of a model -> its letters, as many.
        mark: the first position beyond the trained length; a line stands there.

    Raises:
        CourseError: a model says more or fewer letters than wanted.
    """
    for name, letters in said.items():
        if len(letters) != len(wanted):
            raise CourseError(f"{name} says {len(letters)} letters, {len(wanted)} are wanted.")
    figure, axes = canvas(11.6, 0.5 * (len(said) + 1) + 0.8)
    rows = {"wanted": wanted, **said}
    for row, (name, letters) in enumerate(rows.items()):
        for t, letter in enumerate(letters):
            right = letter == wanted[t]
            fill = TINTS["blue"] if right else TINTS["orange"]
            if row == 0:
                fill = PALE
            colour = INK if row == 0 else BLUE if right else VERMILION
            axes.add_patch(Rectangle((t, -row - 0.45), 1, 0.9, facecolor=fill, edgecolor="white"))
            shown = "_" if letter == " " else letter
            centred(axes, t + 0.5, -row, shown, fontsize=13, family=MONO, color=colour)
        axes.text(-0.6, -row, name, ha="right", va="center", fontsize=13, color=INK)
    if mark < len(wanted):
        axes.plot([mark, mark], [0.6, -len(said) - 0.5], color=VERMILION, linewidth=3)
        note = "beyond the trained length →"
        axes.text(mark + 0.4, 0.85, note, color=VERMILION, fontsize=13, va="center")
    axes.set(xlim=(-9, len(wanted)), ylim=(-len(said) - 0.6, 1.2))
    axes.set_axis_off()
    return figure
