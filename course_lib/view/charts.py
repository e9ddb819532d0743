"""Curves, bars, points: every series labelled where it ends, no legend to look up."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.view.style import DASHES, GREY, INK, PALE, PALETTE, Numbers, array, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = Numbers | tuple[Numbers, Numbers]


@styled
def curves(
    series: Mapping[str, Curve],
    *,
    x: str = "step",
    y: str = "loss",
    bands: Mapping[str, tuple[Numbers, Numbers]] | None = None,
    marks: Mapping[float, str] | None = None,
    levels: Mapping[str, float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    smooth: int = 1,
    size: tuple[float, float] = (8.5, 4.6),
) -> "Figure":
    """Several lines with their names at the right end.

    Args:
        series: name -> y values, or name -> (x values, y values).
        bands: name -> (lower, upper) of a shaded band, the interval over seeds for instance.
        marks: x position -> note, a dotted vertical line.
        levels: note -> y, a dotted horizontal line (chance, a baseline).
        smooth: running mean over this many points; the raw line stays, pale.
    """
    if not series:
        raise CourseError("curves needs at least one series; the mapping is empty.")
    figure, axes = canvas(*size)
    ends: list[tuple[float, str, str]] = []
    right = -math.inf
    for index, (name, curve) in enumerate(series.items()):
        xs, ys = _points(name, curve)
        colour = PALETTE[index % len(PALETTE)]
        if smooth > 1 and len(ys) > smooth:
            axes.plot(xs, ys, color=colour, alpha=0.25, linewidth=1)
            ys = _running_mean(ys, smooth)
        if bands and name in bands:
            lower, upper = bands[name]
            axes.fill_between(xs, array(lower), array(upper), color=colour, alpha=0.18, linewidth=0)
        marker = "o" if len(ys) <= 8 else None
        axes.plot(xs, ys, color=colour, linestyle=DASHES[index % len(DASHES)], marker=marker, markersize=5)
        ends.append((float(ys[-1]), name, colour))
        right = max(right, float(xs[-1]))
    places = {float(v) for name, curve in series.items() for v in _points(name, curve)[0]}
    if log_x:
        _log_ticks(axes, sorted(places))
    elif all(place.is_integer() for place in places):
        axes.locator_params(axis="x", integer=True)  # no half epochs
    if log_y:
        axes.set_yscale("log")
    _marks(axes, marks or {}, levels or {})
    ends += [(height, note, GREY) for note, height in (levels or {}).items()]
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(x=0.01)
    _label_ends(axes, right, [end for end in ends if end[1]])
    return figure


@styled
def scaling(
    series: Mapping[str, tuple[Numbers, Numbers]],
    *,
    x: str = "length",
    y: str = "cost",
    size: tuple[float, float] = (8.5, 4.8),
) -> "Figure":
    """Cost against length on two logarithmic axes, each line with the slope of its upper half: y ~ x^slope."""
    import numpy as np

    figure, axes = canvas(*size)
    ends: list[tuple[float, str, str]] = []
    right = 0.0
    for index, (name, (xs_in, ys_in)) in enumerate(series.items()):
        xs, ys = array(xs_in), array(ys_in)
        if (xs <= 0).any() or (ys <= 0).any():
            raise CourseError(f"scaling draws logarithms; {name!r} has a value that is not positive.")
        half = len(xs) // 2 if len(xs) > 3 else 0
        slope = float(np.polyfit(np.log(xs[half:]), np.log(ys[half:]), 1)[0])
        colour = PALETTE[index % len(PALETTE)]
        axes.plot(xs, ys, color=colour, linestyle=DASHES[index % len(DASHES)], marker="o", markersize=5)
        ends.append((float(ys[-1]), f"{name}\n(slope {slope:.1f})", colour))
        right = max(right, float(xs[-1]))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True)
    _label_ends(axes, right, ends, lines=2)
    return figure


@styled
def learning_curve(
    loss: Curve,
    skill: Mapping[str, Curve],
    *,
    phase: tuple[float, str] | None = None,
    x: str = "step",
    chance: float | None = None,
) -> "Figure":
    """Loss above, what the model can do below, on one time axis: the moment when the one falls and the other rises.

    skill: name -> share of right answers (0 to 1). phase: (step, what happens there).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 5.8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    xs, ys = _points("loss", loss)
    upper.plot(xs, ys, color=INK)
    upper.set_ylabel("loss")
    right, ends = float(xs[-1]), []
    for index, (name, curve) in enumerate(skill.items()):
        xs, ys = _points(name, curve)
        lower.plot(xs, 100 * ys, color=PALETTE[index], linestyle=DASHES[index % len(DASHES)])
        ends.append((100 * float(ys[-1]), name, PALETTE[index]))
    lower.set_ylim(-2, 104)
    lower.set_ylabel("right (%)")
    lower.set_xlabel(x)
    if chance is not None:
        _marks(lower, {}, {"chance": 100 * chance})
        ends.append((100 * chance, "chance", GREY))
    if phase is not None:
        for axes in (upper, lower):
            axes.axvline(phase[0], color=GREY, linestyle=":", linewidth=1.6)
        _, top = upper.get_ylim()
        upper.text(phase[0], top, " " + phase[1], va="top", ha="left", fontsize=12, color=GREY)
    _label_ends(lower, right, ends)
    return figure


@styled
def bars(
    values: Mapping[str, Any],
    *,
    paper: Mapping[str, float] | None = None,
    y: str = "accuracy (%)",
    levels: Mapping[str, float] | None = None,
    digits: int = 1,
    size: tuple[float, float] | None = None,
) -> "Figure":
    """Bars side by side, with the spread over seeds and the paper's figure beside.

    Args:
        values: name -> number; or name -> list of seeds' numbers (bar at the mean, a dot a seed, a whisker for
            the 95% interval of the mean); or group -> {name: either of these}.
        paper: name (or "group / name") -> the published figure, drawn as a hollow diamond.
        levels: note -> height of a dotted line (chance, a baseline).
    """
    if not values:
        raise CourseError("bars needs at least one value; the mapping is empty.")
    grouped = isinstance(next(iter(values.values())), Mapping)
    groups: dict[str, Mapping[str, Any]] = dict(values) if grouped else {"": values}
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    count = sum(len(group) for group in groups.values()) + len(groups) - 1
    figure, axes = canvas(*(size or (max(5.0, 0.95 * count + 1.5), 4.8)))
    near = 0.1 * max(abs(float(array(value).mean())) for group in groups.values() for value in group.values())
    place, ticks, labels = 0.0, [], []
    for group_name, group in groups.items():
        first = place
        for name, value in group.items():
            colour = PALETTE[names.index(name) % len(PALETTE)] if grouped else PALETTE[0]
            published = (paper or {}).get(f"{group_name} / {name}" if grouped else name)
            _bar(axes, place, array(value).reshape(-1), colour, published, digits, near)
            if not grouped:
                ticks.append(place)
                labels.append(name)
            place += 1
        if grouped:
            ticks.append((first + place - 1) / 2)
            labels.append(group_name)
            place += 0.8
    axes.set_xticks(ticks, [_wrap(label, 14 if grouped else 11) for label in labels])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(y)
    axes.margins(y=0.14)
    if levels:
        for label in axes.texts:
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # no level strikes it out
    _marks(axes, {}, levels or {})
    for note, height in (levels or {}).items():
        axes.text(1.01, height, note, color=GREY, fontsize=12, va="center", transform=axes.get_yaxis_transform())
    if grouped or paper:
        _legend(axes, names if grouped else [], bool(paper), above=bool(levels))
    return figure


@styled
def scatter(
    points: Numbers,
    labels: Sequence[str] | None = None,
    *,
    groups: Sequence[str] | None = None,
    x: str = "",
    y: str = "",
    size: tuple[float, float] = (8.0, 5.6),
) -> "Figure":
    """Points [N 2] with their words beside them; points of a group share colour and marker."""
    xy = array(points)
    if xy.ndim != 2 or xy.shape[1] != 2:
        raise CourseError(f"scatter needs points [N 2]; these have shape {list(xy.shape)}.")
    kinds = list(groups) if groups is not None else [""] * len(xy)
    figure, axes = canvas(*size)
    for index, kind in enumerate(dict.fromkeys(kinds)):
        chosen = [i for i, k in enumerate(kinds) if k == kind]
        marker = "osD^vP*X"[index % 8]
        axes.scatter(
            xy[chosen, 0], xy[chosen, 1], s=46, color=PALETTE[index % len(PALETTE)], marker=marker, label=kind or None
        )
    axes.margins(0.12)
    if labels is not None:
        from course_lib.view.labels import place_labels

        place_labels(axes, [(float(a), float(b)) for a, b in xy], list(labels))
    if groups is not None:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure


@styled
def histogram(
    values: Mapping[str, Numbers],
    *,
    x: str = "",
    bins: int = 30,
    y: str = "share (%)",
    size: tuple[float, float] = (8.5, 4.4),
) -> "Figure":
    """Distributions over one axis, as outlines that may overlap."""
    import numpy as np

    data = {name: array(v).reshape(-1) for name, v in values.items()}
    edges = np.linspace(min(v.min() for v in data.values()), max(v.max() for v in data.values()), bins + 1)
    figure, axes = canvas(*size)
    for index, (name, v) in enumerate(data.items()):
        share = 100 * np.histogram(v, edges)[0] / max(1, len(v))
        style: dict[str, Any] = {"color": PALETTE[index], "label": name, "linestyle": DASHES[index % len(DASHES)]}
        axes.stairs(share, edges, linewidth=2.2, **style)
        axes.stairs(share, edges, fill=True, alpha=0.12, color=PALETTE[index])
    if len(data) > 1:
        axes.legend()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure


def _points(name: str, curve: Curve) -> tuple[Any, Any]:
    import numpy as np

    xs, ys = (array(curve[0]), array(curve[1])) if isinstance(curve, tuple) else (None, array(curve))
    if xs is None:
        xs = np.arange(1, len(ys) + 1, dtype=float)
    if len(xs) != len(ys) or not len(ys):
        raise CourseError(
            f"The series {name!r} has {len(xs)} x values and {len(ys)} y values; it needs as many of both."
        )
    return xs, ys


def _log_ticks(axes: "Axes", values: Sequence[float]) -> None:
    """A logarithmic x axis; where the points are few, they are the ticks."""
    axes.set_xscale("log")
    if len(values) <= 10:
        axes.set_xticks(list(values), [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)


def _running_mean(ys: Any, window: int) -> Any:
    """Mean over the last `window` points, over as many as there are at the start."""
    import numpy as np

    total = np.cumsum(np.insert(ys, 0, 0.0))
    last = np.arange(1, len(ys) + 1)
    first = np.maximum(0, last - window)
    return (total[last] - total[first]) / (last - first)


def _label_ends(axes: "Axes", right: float, ends: list[tuple[float, str, str]], lines: int = 1) -> None:
    """Names at the right ends of the lines, pushed apart where they would overlap."""
    figure_height = axes.figure.get_size_inches()[1]  # type: ignore[union-attr]
    gap = lines * 0.24 / (0.8 * figure_height / _rows(axes))
    scale = axes.yaxis.get_transform()
    low, high = scale.transform(axes.get_ylim())  # get_ylim first brings the limits up to date
    wanted = sorted(((float(scale.transform([y])[0]) - low) / (high - low), name, colour) for y, name, colour in ends)
    placed: list[float] = []
    if not wanted:
        return
    for height, _, _ in wanted:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    roof = 1.02 if lines == 1 else 0.97
    for i in reversed(range(len(placed))):  # what stands too high comes down, and pushes only what it meets
        placed[i] = min(placed[i], roof)
        roof = placed[i] - gap
    for height, (_, name, colour) in zip(placed, wanted, strict=True):
        axes.annotate(
            name,
            (right, height),
            xycoords=("data", "axes fraction"),
            xytext=(8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def _rows(axes: "Axes") -> int:
    spec = axes.get_subplotspec()
    return spec.get_gridspec().nrows if spec is not None else 1


def _marks(axes: "Axes", marks: Mapping[float, str], levels: Mapping[str, float]) -> None:
    for place, note in marks.items():
        axes.axvline(place, color=GREY, linestyle=":", linewidth=1.6)
        axes.text(
            place, 0.98, f" {note}", color=GREY, fontsize=12, ha="left", va="top", transform=axes.get_xaxis_transform()
        )
    for height in levels.values():
        axes.axhline(height, color=GREY, linestyle=":", linewidth=1.6, zorder=3)


def _bar(
    axes: "Axes", place: float, seeds: Any, colour: str, published: float | None, digits: int, near: float
) -> None:
    """near: how far beyond the bar a diamond still meets the label."""
    mean = float(seeds.mean())
    axes.bar(place, mean, width=0.72, color=colour, zorder=2)
    low = top = mean
    if len(seeds) > 1:
        interval = _t95(len(seeds)) * float(seeds.std(ddof=1)) / math.sqrt(len(seeds))
        axes.errorbar(place, mean, yerr=interval, color=INK, capsize=5, linewidth=1.6, zorder=4)
        axes.scatter([place + 0.2] * len(seeds), seeds, s=22, color="white", edgecolors=INK, linewidths=1, zorder=5)
        low, top = min(mean - interval, float(seeds.min())), max(mean + interval, float(seeds.max()))
    if published is not None:
        axes.scatter(
            [place - 0.2], [published], marker="D", s=70, facecolors="white", edgecolors=INK, linewidths=1.6, zorder=6
        )
        if published - top < near:
            top = max(top, published)
        if low - published < near:
            low = min(low, published)
    above = mean >= 0
    axes.annotate(
        f"{mean:.{digits}f}",
        (place, top if above else low),
        xytext=(0, 9 if above else -9),
        textcoords="offset points",
        ha="center",
        va="bottom" if above else "top",
        fontsize=12,
        zorder=7,
    )


def _t95(count: int) -> float:
    """Two-sided 95% quantile of Student's t with count - 1 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 0.975))


def _legend(axes: "Axes", names: Sequence[str], paper: bool, above: bool) -> None:
    """Beside the axes, or above them where their right side bears the notes of levels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=PALETTE[i % len(PALETTE)], label=name) for i, name in enumerate(names)]
    if paper:
        handles.append(
            Line2D(
                [],
                [],
                marker="D",
                linestyle="",
                markerfacecolor="white",
                markeredgecolor=INK,
                label="the paper's figure",
            )
        )
    if above:
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles))
    else:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_facecolor("white")
    axes.yaxis.grid(True, color=PALE, zorder=0)
    axes.set_axisbelow(True)


def _wrap(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width, break_long_words=False)) or text
