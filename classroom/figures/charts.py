"""Curves, bars, arrows: every series labelled where it ends, no legend to look up."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from classroom.figures.style import (
    DASHES,
    GREY,
    INK,
    PALE,
    PALETTE,
    Numbers,
    array,
    arrow,
    canvas,
    centred,
    note,
    panels,
    styled,
)

Curve = Numbers | tuple[Numbers, Numbers]
_Size = tuple[float, float]
DOTTED: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1.6}


class AxesOptions(TypedDict, total=False):
    """How the axes of `curves` look, each by its name.

    Attributes:
        x: what stands below the horizontal axis; "step" if it is not given.
        y: what stands beside the vertical one; "loss" if it is not given.
        log_x: a logarithmic horizontal axis.
        log_y: a logarithmic vertical axis.
        limits: of the vertical axis, where two pictures are to be compared.
        size: width and height in inches.
    """

    x: str
    y: str
    log_x: bool
    log_y: bool
    limits: tuple[float, float]
    size: _Size


@styled
def curves(
    series: Mapping[str, Curve],
    *,
    bands: Mapping[str, tuple[Numbers, Numbers]] | None = None,
    marks: Mapping[float, str] | None = None,
    levels: Mapping[str, float] | None = None,
    smooth: int = 1,
    **look: Unpack[AxesOptions],
) -> Figure:
    """Several lines with their names at the right end.

    Args:
        series: name -> y values, or name -> (x values, y values).
        bands: name -> (lower, upper) of a shaded band, the interval over seeds for instance.
        marks: x position -> note, a dotted vertical line.
        levels: note -> y, a dotted horizontal line (chance, a baseline).
        smooth: running mean over this many points; the raw line stays, pale.
        look: of the axes; `AxesOptions` says what there is.
    """
    unknown = look.keys() - AxesOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"curves() knows no option {min(unknown)!r}")
    figure, axes = canvas(*look.get("size", (8.5, 4.6)))
    points = {name: _points(curve) for name, curve in series.items()}
    ends: list[tuple[float, str, str]] = []
    for index, (name, (xs, ys)) in enumerate(points.items()):
        colour = PALETTE[index % len(PALETTE)]
        dashes = DASHES[index % len(DASHES)]
        if smooth > 1 and len(ys) > smooth:
            axes.plot(xs, ys, color=colour, alpha=0.25, linewidth=1)
            ys = _running_mean(ys, smooth)
        if bands and name in bands:
            lower, upper = bands[name]
            axes.fill_between(xs, array(lower), array(upper), color=colour, alpha=0.18, linewidth=0)
        marker = "o" if len(ys) <= 8 else None
        axes.plot(xs, ys, color=colour, linestyle=dashes, marker=marker, markersize=5)
        ends.append((float(ys[-1]), name, colour))

    places = sorted({float(place) for xs, _ in points.values() for place in xs})
    _scale_x(axes, places, log=look.get("log_x", False))
    if look.get("log_y"):
        axes.set_yscale("log")
    _notes(axes, marks or {})
    ends += _levels(axes, levels or {})
    axes.set(xlabel=look.get("x", "step"), ylabel=look.get("y", "loss"))
    axes.margins(x=0.01)
    limits = look.get("limits")
    if limits is not None:
        axes.set_ylim(*limits)

    # The names at the ends; a line without a name has none.
    right = max(float(xs[-1]) for xs, _ in points.values())
    named = [end for end in ends if end[1]]
    lines = 1 + max(name.count("\n") for name in series)
    _label_ends(axes, right, named, lines)
    return figure


def _notes(axes: Axes, marks: Mapping[float, str]) -> None:
    """Dotted vertical lines, each with its note at the top."""
    above = axes.get_xaxis_transform()
    for place, says in marks.items():
        axes.axvline(place, **DOTTED)
        axes.text(
            place, 0.98, f" {says}", color=GREY, fontsize=12, ha="left", va="top", transform=above
        )


@styled
def bars(
    values: Mapping[str, Any],
    *,
    paper: Mapping[str, float] | None = None,
    y: str = "accuracy (%)",
    levels: Mapping[str, float] | None = None,
    digits: int = 1,
    size: _Size | None = None,
) -> Figure:
    """Bars side by side, with the spread over seeds and the paper's figure beside.

    Args:
        values: name -> number; or name -> list of seeds' numbers (bar at the mean, a dot a seed, a
            whisker for the 95% interval of the mean); or group -> {name: either of these}.
        paper: name (or "group / name") -> the published figure, drawn as a hollow diamond.
        levels: note -> height of a dotted line (chance, a baseline).
    """
    grouped = isinstance(next(iter(values.values())), Mapping)
    groups: Mapping[str, Mapping[str, Any]] = (
        values if grouped else {name: {name: values[name]} for name in values}
    )
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    gap, wide = (0.8, 14) if grouped else (0.0, 11)  # between groups; letters of a label's line
    count = sum(len(group) for group in groups.values()) + (len(groups) - 1 if grouped else 0)
    figure, axes = canvas(*(size or (max(5.0, 0.95 * count + 1.5), 4.8)))
    near = 0.1 * max(
        abs(float(array(value).mean())) for group in groups.values() for value in group.values()
    )
    ticks = []
    place = 0.0
    for group_name, group in groups.items():
        first = place
        for name, value in group.items():
            colour = PALETTE[names.index(name) % len(PALETTE)] if grouped else PALETTE[0]
            published = (paper or {}).get(f"{group_name} / {name}" if grouped else name)
            _bar(axes, place, array(value).reshape(-1), colour, published, digits, near)
            place += 1
        ticks.append((first + place - 1) / 2)
        place += gap
    axes.set_xticks(
        ticks,
        ["\n".join(textwrap.wrap(name, wide, break_long_words=False)) or name for name in groups],
    )
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(y)
    axes.margins(y=0.14)
    if levels:
        for label in axes.texts:
            # no level strikes it out
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    for height, says, colour in _levels(axes, levels or {}):
        axes.text(
            1.01,
            height,
            says,
            color=colour,
            fontsize=12,
            va="center",
            transform=axes.get_yaxis_transform(),
        )
    if grouped or paper:
        _legend(axes, names if grouped else [], bool(paper), above=bool(levels))
    return figure


@styled
def arrows(
    vectors: Mapping[str, Mapping[str, Numbers]], *, groups: Mapping[str, int] | None = None
) -> Figure:
    """Arrows from the origin, in one or several panels side by side, with the unit circle.

    vectors: title of a panel -> (name -> vector of two numbers). groups: name -> number of its
        colour; by default every arrow has its own.
    """
    figure, grid = panels(3.4 * len(vectors), 3.7, 1, len(vectors))
    for axes, (title, named) in zip(grid, vectors.items(), strict=True):
        axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor="#c8ccd0", linewidth=1.2))
        for spot in (axes.axhline, axes.axvline):
            spot(0, color="#e0e3e6", linewidth=1, zorder=0)
        for index, (name, vector) in enumerate(named.items()):
            x, y = (float(value) for value in array(vector).reshape(-1))
            colour = PALETTE[(groups or {}).get(name, index) % len(PALETTE)]
            arrow(axes, (0, 0), (x, y), color=colour, lw=2.4)
            size = math.hypot(x, y) or 1.0
            centred(axes, x + 0.14 * x / size, y + 0.12 * y / size, name, color=colour, fontsize=13)
        axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, loc="center")
    return figure


def _points(curve: Curve) -> tuple[Any, Any]:
    """x and y values; x counts from 1 where it is not given."""
    if isinstance(curve, tuple):
        return array(curve[0]), array(curve[1])
    ys = array(curve)
    return np.arange(1, len(ys) + 1, dtype=float), ys


def _scale_x(axes: Axes, places: Sequence[float], *, log: bool) -> None:
    """Ticks that fit the places of the points."""
    if log:
        axes.set_xscale("log")
        if len(places) <= 10:  # where the points are few, they are the ticks
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xticks([], minor=True)
    elif all(place.is_integer() for place in places):
        axes.locator_params(axis="x", integer=True)  # no half epochs


def _running_mean(ys: Any, window: int) -> Any:
    """Mean over the last `window` points, over as many as there are at the start."""
    total = np.cumsum(np.insert(ys, 0, 0.0))
    last = np.arange(1, len(ys) + 1)
    first = np.maximum(0, last - window)
    return (total[last] - total[first]) / (last - first)


def _label_ends(
    axes: Axes, right: float, ends: list[tuple[float, str, str]], lines: int = 1
) -> None:
    """Names at the right ends of the lines, pushed apart where they would overlap.

    ends: (y, name, colour) of each line. lines: of text in a name.
    """
    from scipy.optimize import isotonic_regression

    spec = axes.get_subplotspec()
    rows = spec.get_gridspec().nrows if spec is not None else 1
    gap = lines * 0.24 / (0.8 * axes.figure.get_size_inches()[1] / rows)  # type: ignore[union-attr]
    scale = axes.yaxis.get_transform()
    low, high = scale.transform(axes.get_ylim())  # get_ylim first brings the limits up to date
    wanted = sorted(
        ((float(scale.transform([y])[0]) - low) / (high - low), name, colour)
        for y, name, colour in ends
    )
    steps = gap * np.arange(len(wanted))  # a crowd stays centred on its lines
    placed = isotonic_regression([height for height, _, _ in wanted] - steps).x
    placed = np.clip(placed, 0.02, (1.02 if lines == 1 else 0.97) - steps[-1:]) + steps
    for height, (_, name, colour) in zip(placed, wanted, strict=True):
        look: dict[str, Any] = {"color": colour, "va": "center", "annotation_clip": False}
        note(axes, (right, height), name, (8, 0), xycoords=("data", "axes fraction"), **look)


def _levels(axes: Axes, levels: Mapping[str, float]) -> list[tuple[float, str, str]]:
    """Dotted lines at these heights; (height, name, colour) of each."""
    for height in levels.values():
        axes.axhline(height, zorder=3, **DOTTED)
    return [(height, name, GREY) for name, height in levels.items()]


def half_interval(seeds: Any) -> float:
    """Half the width of the mean's 95% interval, by Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(len(seeds) - 1, 0.975)) * float(seeds.std(ddof=1)) / math.sqrt(len(seeds))


def _bar(
    axes: Axes,
    place: float,
    seeds: Any,
    colour: str,
    published: float | None,
    digits: int,
    near: float,
) -> None:
    """near: how far beyond the bar a diamond still meets the label."""
    mean = float(seeds.mean())
    axes.bar(place, mean, width=0.72, color=colour, zorder=2)
    low = top = mean
    if len(seeds) > 1:
        interval = half_interval(seeds)
        axes.errorbar(place, mean, yerr=interval, color=INK, capsize=5, linewidth=1.6, zorder=4)
        axes.scatter(
            [place + 0.2] * len(seeds),
            seeds,
            s=22,
            color="white",
            edgecolors=INK,
            linewidths=1,
            zorder=5,
        )
        low = min(mean - interval, float(seeds.min()))
        top = max(mean + interval, float(seeds.max()))
    if published is not None:
        look: dict[str, Any] = {
            "marker": "D",
            "facecolors": "white",
            "edgecolors": INK,
            "linewidths": 1.6,
        }
        axes.scatter([place - 0.2], [published], s=70, zorder=6, **look)
        if published - top < near:
            top = max(top, published)
        if low - published < near:
            low = min(low, published)
    spot, offset, side = (top, 9, "bottom") if mean >= 0 else (low, -9, "top")
    note(
        axes,
        (place, spot),
        f"{mean:.{digits}f}",
        (0, offset),
        ha="center",
        va=side,
        fontsize=12,
        zorder=7,
    )


def _legend(axes: Axes, names: Sequence[str], paper: bool, above: bool) -> None:
    """Beside the axes, or above them where their right side bears the notes of levels."""
    handles: list[Any] = [
        Patch(color=PALETTE[i % len(PALETTE)], label=name) for i, name in enumerate(names)
    ]
    if paper:
        look: dict[str, Any] = {"marker": "D", "markerfacecolor": "white", "markeredgecolor": INK}
        handles.append(Line2D([], [], linestyle="", label="the paper's figure", **look))
    if above:
        axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles)
        )
    else:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.yaxis.grid(True, color=PALE, zorder=0)
    axes.set_axisbelow(True)
