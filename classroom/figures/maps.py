"""Matrices as pictures: attention weights, masks, numbers with a sign, who was taken for whom, a
suite's scores.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    Numbers,
    array,
    bare,
    blue,
    canvas,
    centred,
    panels,
    styled,
)
from course_lib.errors import CourseError


@styled
def attention_map(
    weights: Numbers,
    rows: Sequence[str],
    cols: Sequence[str] | None = None,
    *,
    numbers: bool | None = None,
    x: str = "key: who is looked at",
    y: str = "query: who looks",
) -> Figure:
    """One attention matrix [Tq Tk] as a heat map: a row a query, a column a key.

    Any other matrix of shares too, with `x` and `y` saying what its columns and rows are.
    numbers: write each weight in its cell; by default where there are at most ten columns.
    """
    matrix, cols = array(weights), list(rows if cols is None else cols)
    if matrix.shape != (len(rows), len(cols)):
        raise CourseError(
            f"The weights have shape {list(matrix.shape)} but there are {len(rows)} row words and"
            f" {len(cols)} column words; pick one example and one head, [Tq Tk], and its words."
        )
    height, width = matrix.shape
    cell = 0.72 if width <= 10 else max(0.34, 9 / width)
    longest = max((len(word) for word in [*rows, *cols]), default=1)
    figure, axes = canvas(
        width * cell + 0.115 * longest + 1.2, height * min(cell, 0.55) + 0.1 * longest + 0.9
    )
    _heat(axes, matrix, rows, cols, "auto")
    if numbers if numbers is not None else width <= 10:
        for i in range(height):
            for j in range(width):
                ink = "white" if matrix[i, j] > 0.55 * max(1.0, matrix.max()) else INK
                centred(axes, j, i, f"{matrix[i, j]:.2f}", color=ink, fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    return figure


@styled
def heads_grid(
    weights: Numbers, words: Sequence[str], *, titles: Sequence[str] | None = None
) -> Figure:
    """Every head of a layer [H Tq Tk] as small heat maps on one colour scale."""
    stack = array(weights)
    heads = stack.shape[0]
    columns = 4
    if heads <= 4:  # one line
        columns = heads
    elif heads <= 8:  # two lines
        columns = (heads + 1) // 2
    lines = -(-heads // columns)
    side = 3.0 if len(words) <= 12 else 3.6
    figure, grid = panels(
        side * columns, (side + 0.25) * lines, lines, columns, sharex=True, sharey=True
    )
    for head, axes in enumerate(grid):
        if head >= heads:
            axes.set_axis_off()
            continue
        _heat(axes, stack[head], words, words, "equal")
        axes.set_title(titles[head] if titles else f"head {head}")
        axes.tick_params(labelsize=10)
    return figure


@styled
def mask_picture(
    masks: Mapping[str, Numbers],
    rows: Sequence[str] | None = None,
    cols: Sequence[str] | None = None,
) -> Figure:
    """One or several boolean masks [Tq Tk]: blue where the query may attend, blank with a dot where
    it may not.
    """
    matrices = {name: array(mask) for name, mask in masks.items()}
    width = sum(max(2.4, 0.42 * m.shape[1] + 1.3) for m in matrices.values())
    height = max(0.42 * m.shape[0] for m in matrices.values()) + (1.8 if rows else 1.0)
    figure, grid = panels(width, height, 1, len(matrices))
    for axes, (name, matrix) in zip(grid, matrices.items(), strict=True):
        axes.pcolormesh(
            matrix,
            cmap=ListedColormap([PALE, BLUE]),
            vmin=0,
            vmax=1,
            edgecolors="white",
            linewidth=2,
        )
        query, key = (matrix == 0).nonzero()
        axes.scatter(key + 0.5, query + 0.5, s=9, color=GREY)
        axes.invert_yaxis()
        down, across = ([str(i) for i in range(count)] for count in matrix.shape)
        _ticks(axes, rows or down, cols or rows or across, shift=0.5)
        axes.set(title=name, aspect="equal")
    grid[0].set_ylabel("query")
    figure.supxlabel("key      (blue: may attend, dot: may not)", fontsize=12)
    return figure


@styled
def signed_map(
    matrix: Numbers,
    *,
    x: str = "",
    y: str = "",
    size: tuple[float, float] = (8.5, 4.0),
    bar: str = "",
) -> Figure:
    """A matrix of numbers with a sign: violet below zero, white at it, orange above.

    bar: what the colours mean, written at the scale beside; no scale without it.
    """
    values = array(matrix)
    figure, axes = canvas(*size)
    most = float(abs(values).max()) or 1.0
    picture = axes.imshow(
        values, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest"
    )
    if bar:
        figure.colorbar(picture, ax=axes, label=bar)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[:].set_visible(False)
    return figure


@styled
def number_map(
    matrices: Mapping[str, Numbers],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    x: str = "key",
    y: str = "query",
) -> Figure:
    """Small matrices of whole numbers, each written in its cell, on the same scale of colour within
    each; rows and columns are numbered from 0 where they have no names."""
    named = {name: array(matrix) for name, matrix in matrices.items()}
    figure, grid = panels(sum(0.62 * m.shape[1] + 1.0 for m in named.values()), 4.4, 1, len(named))
    for axes, (name, values) in zip(grid, named.items(), strict=True):
        most = float(abs(values).max()) or 1.0
        axes.imshow(values, cmap="PuOr_r", vmin=-2.2 * most, vmax=2.2 * most)
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                centred(axes, j, i, f"{value:+.0f}" if value else "0", fontsize=12, color=INK)
        axes.set_xticks(range(values.shape[1]), columns)
        axes.set_yticks(range(values.shape[0]), rows)
        bare(axes)
        axes.tick_params(labelcolor=GREY)
        axes.set(title=name, xlabel=x, ylabel=y)
    return figure


@styled
@styled
def score_grid(rows: Mapping[str, Mapping[str, float | None]], *, digits: int = 1) -> Figure:
    """Systems against tasks: each score in its cell, deeper blue the nearer to its column's best,
    the best in bold.

    Colours compare within a column only: tasks have different measures. A score that is None stays
    blank."""
    tasks = list(dict.fromkeys(task for row in rows.values() for task in row))
    figure, axes = canvas(
        0.88 * len(tasks) + 0.115 * max(map(len, rows)) + 0.6, 0.46 * len(rows) + 1.35
    )
    axes.set(xlim=(-0.5, len(tasks) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    for j, task in enumerate(tasks):
        column = [row.get(task) for row in rows.values()]
        shown = [value for value in column if value is not None]
        low, high = min(shown, default=0.0), max(shown, default=0.0)
        for i, value in enumerate(column):
            if value is None:
                continue
            fill = blue(0.62 * (value - low) / (high - low) if high > low else 0.3)
            axes.add_patch(Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, facecolor=fill))
            weight = "bold" if value == high else "normal"
            centred(axes, j, i, f"{value:.{digits}f}", fontsize=12, weight=weight, color=INK)
    axes.set_xticks(range(len(tasks)), tasks, rotation=35, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), list(rows))
    bare(axes)
    return figure


def _heat(axes: Axes, matrix: Any, rows: Sequence[str], cols: Sequence[str], aspect: Any) -> None:
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=max(1.0, matrix.max()), aspect=aspect)
    _ticks(axes, rows, cols)
    axes.set_xticks([j - 0.5 for j in range(1, len(cols))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)


def _ticks(axes: Axes, rows: Sequence[str], cols: Sequence[str], shift: float = 0.0) -> None:
    upright = max((len(word) for word in cols), default=0) <= 3
    axes.set_xticks(
        [j + shift for j in range(len(cols))], list(cols), rotation=0 if upright else 90
    )
    axes.set_yticks([i + shift for i in range(len(rows))], list(rows))
    bare(axes)
