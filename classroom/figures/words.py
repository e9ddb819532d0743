"""Word vectors drawn: their numbers as colours, a step of negative sampling, cosines of groups of
words, pairs as sides of a parallelogram.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.labels import place_labels
from classroom.figures.style import (
    BLUE,
    GREEN,
    INK,
    PALETTE,
    VERMILION,
    Numbers,
    array,
    arrow,
    canvas,
    panels,
    styled,
)


@styled
def vector_strips(words: Sequence[str], vectors: Numbers) -> Figure:
    """Each word's vector as a row of colours: violet below zero, white at it, orange above.

    Args:
        words: N of them.
        vectors: [N D], all on one scale.
    """
    values = array(vectors)
    count, width = values.shape
    figure, axes = canvas(10.5, 0.55 * count + 0.9)
    most = float(np.quantile(abs(values), 0.98)) or 1.0
    axes.imshow(
        values, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest"
    )
    for row in range(1, count):
        axes.axhline(row - 0.5, color="white", linewidth=5)
    axes.set_yticks(range(count), list(words), fontsize=15)
    axes.set_xticks([0, width - 1], ["number 1", f"number {width}"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


@styled
def push_pull(
    centre: str,
    others: Mapping[str, int],
    moments: Mapping[str, tuple[Numbers, Numbers]],
    move: Numbers | None = None,
) -> Figure:
    """A centre's input vector among the output vectors of a real neighbour and of drawn words.

    Args:
        centre: the word that is given.
        others: word -> 1 for a real neighbour, 0 for a drawn word.
        moments: title of a panel -> (v [2], u [N 2]), the vectors at that time.
        move: where the first panel's v goes next, [2]; drawn at its tip.
    """
    drawn = {title: (array(v), array(u)) for title, (v, u) in moments.items()}
    reach = 1.3 * max(abs(np.vstack([v[None], u])).max() for v, u in drawn.values())
    figure, grid = panels(5.4 * len(drawn), 5.2, 1, len(drawn))
    for place, (axes, (title, (v, u))) in enumerate(zip(grid, drawn.items(), strict=True)):
        for spot in (axes.axhline, axes.axvline):
            spot(0, color="#e0e3e6", linewidth=1, zorder=0)
        for (word, label), vector in zip(others.items(), u, strict=True):
            chance = 1 / (1 + np.exp(-float(vector @ v)))
            colour = GREEN if label else VERMILION
            _vector(axes, vector, f"{word} {chance:.2f}", colour, reach)
        _vector(axes, v, centre, BLUE, reach)
        if move is not None and place == 0:
            arrow(axes, v, v + array(move), color=INK, lw=3.0)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, loc="center")
    return figure


def _vector(axes: Axes, vector: np.ndarray, name: str, colour: str, reach: float) -> None:
    """An arrow from the origin with its name behind the tip."""
    arrow(axes, (0, 0), vector, color=colour, lw=2.6)
    length = float(np.linalg.norm(vector)) or 1.0
    x, y = vector + 0.1 * reach * vector / length
    side = "left" if x > 0.25 * reach else "right" if x < -0.25 * reach else "center"
    x -= 0.06 * reach * np.sign(x) * (side != "center")
    axes.text(x, y, name, ha=side, va="center", color=colour, fontsize=14, weight="bold")


@styled
def word_matrix(
    matrices: Mapping[str, Numbers], words: Sequence[str], groups: Sequence[str]
) -> Figure:
    """The cosines of words of several groups; what belongs to one group is framed.

    Args:
        matrices: title -> cosines [N N].
        words: N of them, those of one group side by side.
        groups: of each word.
    """
    named = {title: array(matrix) for title, matrix in matrices.items()}
    figure, grid = panels(4.1 * len(named) + 0.9, 4.9, 1, len(named))
    kinds = list(dict.fromkeys(groups))
    for place, (axes, (title, matrix)) in enumerate(zip(grid, named.items(), strict=True)):
        if len(matrix):
            axes.imshow(matrix, cmap="Blues", vmin=0, vmax=0.8)
        for kind in kinds:
            own = [i for i, group in enumerate(groups) if group == kind]
            low, high = own[0] - 0.5, own[-1] + 0.5
            axes.plot(
                [low, high, high, low, low],
                [low, low, high, high, low],
                color=VERMILION,
                linewidth=2,
                zorder=3,
            )
        axes.set_xticks([])
        axes.set_yticks(range(len(words)), words if place == 0 else [""] * len(words), fontsize=12)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="center")
    return figure


@styled
def parallelogram(
    pairs: Sequence[tuple[str, str]],
    vectors: Mapping[str, Numbers],
    *,
    moved: tuple[str, str, str] | None = None,
) -> Figure:
    """Pairs of words as arrows, in the plane that keeps most of the words' differences (PCA).

    Args:
        pairs: the words of each arrow, from, to.
        vectors: word -> vector, of every word that occurs; length 1 is given to all.
        moved: (a, b, c) draws the arrow from a to b once more, dashed, at c; its end is a star.
    """
    words = list(dict.fromkeys(word for pair in pairs for word in pair))
    table = np.stack([array(vectors[word]) for word in words])
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    table -= table.mean(0)
    _, _, directions = np.linalg.svd(table, full_matrices=False)
    at = dict(zip(words, table @ directions[:2].T, strict=True))
    figure, axes = canvas(9.8, 5.6)
    points, labels, colours = [], [], []
    for index, (one, other) in enumerate(pairs):
        colour = PALETTE[index % len(PALETTE)]
        arrow(axes, at[one], at[other], color=colour, lw=2.8)
        xs, ys = np.stack([at[one], at[other]]).T
        axes.scatter(xs, ys, color=colour, s=42, zorder=3)
        points += [at[one], at[other]]
        labels += [one, other]
        colours += [colour, colour]
        # Points without a name keep the names off the arrow.
        points += [at[one] + share * (at[other] - at[one]) for share in np.linspace(0.15, 0.85, 7)]
        labels += [""] * 7
        colours += [colour] * 7
    if moved is not None:
        a, b, c = moved
        end = at[c] + at[b] - at[a]
        axes.plot(*np.stack([at[c], end]).T, color=INK, lw=2.2, linestyle=(0, (4, 2)), zorder=2)
        axes.scatter(end[0], end[1], color="#FFD23F", edgecolor=INK, marker="*", s=330, zorder=4)
        points.append(end)
        labels.append(f"  {c} - {a} + {b}")
        colours.append(INK)
    axes.margins(0.12)
    place_labels(axes, [(float(x), float(y)) for x, y in points], labels, colours, size=15)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    return figure
