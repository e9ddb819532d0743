"""Matrices as pictures: attention weights, all heads at once, masks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.view.style import BLUE, GREY, INK, PALE, Numbers, array, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def attention_map(
    weights: Numbers,
    rows: Sequence[str],
    cols: Sequence[str] | None = None,
    *,
    title: str = "",
    numbers: bool | None = None,
    x: str = "key: who is looked at",
    y: str = "query: who looks",
) -> "Figure":
    """One attention matrix [Tq Tk] as a heat map: a row a query, a column a key.

    Any other matrix of shares too, with `x` and `y` saying what its columns and rows are.
    numbers: write each weight in its cell; by default where there are at most ten columns.
    """
    matrix, cols = array(weights), list(rows if cols is None else cols)
    _check_matrix(matrix, rows, cols)
    height, width = matrix.shape
    cell = 0.72 if width <= 10 else max(0.34, 9 / width)
    longest = max((len(word) for word in [*rows, *cols]), default=1)
    figure, axes = canvas(width * cell + 0.115 * longest + 1.2, height * min(cell, 0.55) + 0.1 * longest + 0.9)
    _heat(axes, matrix, rows, cols)
    if numbers if numbers is not None else width <= 10:
        for i in range(height):
            for j in range(width):
                ink = "white" if matrix[i, j] > 0.55 * max(1.0, matrix.max()) else INK
                axes.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", color=ink, fontsize=11)
    axes.set_ylabel(y)
    axes.set_xlabel(x)
    if title:
        axes.set_title(title, pad=12)
    return figure


@styled
def heads_grid(weights: Numbers, words: Sequence[str], *, titles: Sequence[str] | None = None) -> "Figure":
    """Every head of a layer [H Tq Tk] as small heat maps on one colour scale."""
    from matplotlib.figure import Figure

    stack = array(weights)
    if stack.ndim != 3:
        raise CourseError(f"heads_grid needs weights [H Tq Tk]; these have shape {list(stack.shape)}.")
    heads = stack.shape[0]
    columns = heads if heads <= 4 else (heads + 1) // 2 if heads <= 8 else 4
    lines = -(-heads // columns)
    side = 3.0 if len(words) <= 12 else 3.6
    figure = Figure(figsize=(side * columns, (side + 0.25) * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for head, axes in enumerate(grid.flat):
        if head >= heads:
            axes.set_axis_off()
            continue
        _check_matrix(stack[head], words, words)
        _heat(axes, stack[head], words, words, top=False)
        axes.set_title(titles[head] if titles else f"head {head}")
        axes.tick_params(labelsize=10)
    return figure


@styled
def mask_picture(
    masks: Numbers | Mapping[str, Numbers],
    rows: Sequence[str] | None = None,
    cols: Sequence[str] | None = None,
) -> "Figure":
    """One or several boolean masks [Tq Tk]: blue where the query may attend, blank with a dot where it may not."""
    from matplotlib.figure import Figure

    named = dict(masks) if isinstance(masks, Mapping) else {"": masks}
    matrices = {name: array(mask) for name, mask in named.items()}
    width = sum(max(2.4, 0.42 * m.shape[-1] + 1.3) for m in matrices.values())
    height = max(0.42 * m.shape[-2] for m in matrices.values()) + (1.8 if rows else 1.0)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(1, len(matrices), squeeze=False)
    for axes, (name, matrix) in zip(grid.flat, matrices.items(), strict=True):
        if matrix.ndim != 2:
            raise CourseError(f"mask_picture needs masks [Tq Tk]; {name or 'this one'} has shape {list(matrix.shape)}.")
        axes.pcolormesh(matrix, cmap=_two_colours(), vmin=0, vmax=1, edgecolors="white", linewidth=2)
        blocked = [
            (j + 0.5, i + 0.5) for i in range(matrix.shape[0]) for j in range(matrix.shape[1]) if not matrix[i, j]
        ]
        if blocked:
            axes.scatter(*zip(*blocked, strict=True), s=9, color=GREY)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        _ticks(axes, rows or _numbers(matrix.shape[0]), cols or rows or _numbers(matrix.shape[1]), shift=0.5)
        axes.set_title(name)
        axes.spines[:].set_visible(False)
    grid[0, 0].set_ylabel("query")
    figure.supxlabel("key      (blue: may attend, dot: may not)", fontsize=12)
    return figure


def _heat(axes: "Axes", matrix: Any, rows: Sequence[str], cols: Sequence[str], top: bool = True) -> None:
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=max(1.0, matrix.max()), aspect="auto" if top else "equal")
    _ticks(axes, rows, cols)
    axes.spines[:].set_visible(False)
    axes.set_xticks([j - 0.5 for j in range(1, len(cols))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)


def _ticks(axes: "Axes", rows: Sequence[str], cols: Sequence[str], shift: float = 0.0) -> None:
    upright = max((len(word) for word in cols), default=0) <= 3
    axes.set_xticks([j + shift for j in range(len(cols))], list(cols), rotation=0 if upright else 90)
    axes.set_yticks([i + shift for i in range(len(rows))], list(rows))
    axes.tick_params(length=0)


def _two_colours() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([PALE, BLUE])


def _numbers(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def _check_matrix(matrix: Any, rows: Sequence[str], cols: Sequence[str]) -> None:
    if matrix.shape != (len(rows), len(cols)):
        raise CourseError(
            f"The weights have shape {list(matrix.shape)} but there are {len(rows)} row words and {len(cols)} column "
            "words; pick one example and one head, [Tq Tk], and its words."
        )
