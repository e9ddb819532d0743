"""Vectors as arrows in the plane, and matrices whose numbers have a sign or are whole."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.view.style import GREY, INK, PALETTE, Numbers, array, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def arrows(
    panels: Mapping[str, Mapping[str, Numbers]], *, reach: float = 1.25, groups: Mapping[str, int] | None = None
) -> "Figure":
    """Arrows from the origin, in one or several panels side by side, with the unit circle.

    Args:
        panels: title -> (name -> vector of two numbers).
        reach: half of a panel's side.
        groups: name -> number of its colour; by default every arrow has its own.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    if not panels or not all(panels.values()):
        raise CourseError("arrows needs at least one panel with at least one vector; something is empty.")
    figure = Figure(figsize=(3.4 * len(panels), 3.7), layout="constrained")
    for axes, (title, vectors) in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels.items(), strict=True):
        axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor="#c8ccd0", linewidth=1.2))
        for spot in (axes.axhline, axes.axvline):
            spot(0, color="#e0e3e6", linewidth=1, zorder=0)
        for index, (name, vector) in enumerate(vectors.items()):
            xy = array(vector).reshape(-1)
            if xy.shape != (2,):
                raise CourseError(f"arrows draws vectors of two numbers; {name!r} has {xy.size}.")
            x, y = float(xy[0]), float(xy[1])
            colour = PALETTE[(groups or {}).get(name, index) % len(PALETTE)]
            axes.annotate(
                "",
                (x, y),
                (0, 0),
                arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2.4, "shrinkA": 0, "shrinkB": 0},
            )
            size = (x * x + y * y) ** 0.5 or 1.0
            axes.text(
                x + 0.14 * x / size, y + 0.12 * y / size, name, color=colour, ha="center", va="center", fontsize=13
            )
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(title, loc="center")
    return figure


@styled
def signed_map(
    matrix: Numbers, *, x: str = "", y: str = "", size: tuple[float, float] = (8.5, 4.0), bar: str = ""
) -> "Figure":
    """A matrix of numbers with a sign: violet below zero, white at it, orange above.

    bar: what the colours mean, written at the scale beside; no scale without it.
    """
    values = array(matrix)
    if values.ndim != 2:
        raise CourseError(f"signed_map needs a matrix; this has shape {list(values.shape)}.")
    figure, axes = canvas(*size)
    most = float(abs(values).max()) or 1.0
    picture = axes.imshow(values, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    if bar:
        figure.colorbar(picture, ax=axes, label=bar)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
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
) -> "Figure":
    """Small matrices of whole numbers, each written in its cell, on the same scale of colour within each; rows and
    columns are numbered from 0 where they have no names."""
    from matplotlib.figure import Figure

    named = {name: array(matrix) for name, matrix in matrices.items()}
    figure = Figure(figsize=(sum(0.62 * m.shape[1] + 1.0 for m in named.values()), 4.4), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, len(named), squeeze=False).flat, named.items(), strict=True):
        most = float(abs(values).max()) or 1.0
        axes.imshow(values, cmap="PuOr_r", vmin=-2.2 * most, vmax=2.2 * most)
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                axes.text(j, i, f"{value:+.0f}" if value else "0", ha="center", va="center", fontsize=12, color=INK)
        axes.set_xticks(range(values.shape[1]), columns or [str(j) for j in range(values.shape[1])])
        axes.set_yticks(range(values.shape[0]), rows or [str(i) for i in range(values.shape[0])])
        axes.tick_params(length=0, labelcolor=GREY)
        axes.spines[:].set_visible(False)
        axes.set_title(name)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
    return figure
