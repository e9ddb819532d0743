"""The course at a glance: its lessons and what builds on what, ten years of models."""

import functools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from classroom import course
from classroom.course import FAMILIES, Outline
from classroom.figures.display import Html
from classroom.figures.labels import place_labels
from classroom.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    TINTS,
    VERMILION,
    arrow,
    canvas,
    centred,
    panels,
    styled,
)
from classroom.templates import escape
from course_lib.files import DATA, read_json

TIMELINE = DATA / "timeline.json"

_TINTS = {
    "start": "dark",
    "attention": "blue",
    "words": "yellow",
    "decoders": "orange",
    "encoders": "green",
    "encoder-decoders": "purple",
}
_HALF, _TALL = 0.43, 0.33  # half a box, in columns and in rows

_Point = tuple[float, float]


def arrows(lessons: dict[str, Outline]) -> Iterator[tuple[str, str]]:
    """What the map draws: (needed, lesson), without what follows (03 needs 02, which needs 01: no
    arrow from 01). A lesson that needs none comes after the first.
    """
    first = min(lessons)

    @functools.cache
    def all_needs(name: str) -> frozenset[str]:
        direct = lessons[name].needs
        return frozenset(direct).union(*(all_needs(need) for need in direct))

    for name, lesson in lessons.items():
        if not lesson.needs and name != first:
            yield first, name
        for need in lesson.needs:
            if not any(need in all_needs(other) for other in lesson.needs):
                yield need, name


def route(
    start: _Point, end: _Point, boxes: Sequence[_Point], *, wide: bool = False
) -> tuple[list[_Point], bool]:
    """The points of an arrow from below one box to above another, bent where that keeps it out of
    the others, and whether it meets none of them. Boxes are given by their places; `wide`: straight
    down to a wide box."""
    tail, tip = (start[0], start[1] + _TALL), (start[0] if wide else end[0], end[1] - _TALL - 0.02)
    down = 0.6 * (tip[1] - tail[1])
    curve: list[_Point] = []
    for bend in (0.0, 0.4, -0.4, 0.8, -0.8, 1.2, -1.2, 1.6, -1.6, 2.2, -2.2, 3.0, -3.0):
        handles = (tail, (tail[0] + bend, tail[1] + down), (tip[0] + bend, tip[1] - down), tip)
        curve = [_bezier(handles, i / 60) for i in range(61)]
        if not any(
            abs(x - bx) < _HALF + 0.04 and abs(y - by) < _TALL + 0.02
            for x, y in curve
            for bx, by in boxes
        ):
            return curve, True
    return curve, False


def _bezier(points: tuple[_Point, ...], t: float) -> _Point:
    (a, b, c, d), s = points, 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    x, y = (sum(w * p[i] for w, p in zip(weights, (a, b, c, d), strict=True)) for i in (0, 1))
    return x, y


@styled
def lesson_map(here: str = "") -> Figure:
    """The lessons and what builds on what, from the first at the top to the last at the bottom;
    `here`, the name or number of one, frames it."""
    lessons = course.lessons()
    last = max(lesson.place[1] for lesson in lessons.values())
    figure, axes = canvas(11, 8.4 * ((last + 0.8) / 7.8))  # as high as the map has rows
    axes.set(xlim=(-0.5, 5.5), ylim=(last + 0.4, -0.4))
    axes.set_axis_off()
    for need, name in arrows(lessons):
        boxes = [x.place for x in lessons.values() if x.name not in (need, name) and not x.wide]
        curve, _ = route(lessons[need].place, lessons[name].place, boxes, wide=lessons[name].wide)
        axes.plot(*zip(*curve[:-1], strict=True), color="#7c8289", lw=1.8, zorder=1)
        arrow(axes, curve[-2], curve[-1], color="#7c8289")
    for lesson in lessons.values():
        (x, y), framed = lesson.place, lesson.number == here[:2]
        half, wide = (2.93, 80) if lesson.wide else (_HALF, 13)
        look: dict[str, Any] = {
            "facecolor": TINTS[_TINTS[lesson.family]],
            "edgecolor": INK if framed else GREY,
            "linewidth": 3.0 if framed else 1.2,
        }
        corner, style = (x - half + 0.06, y - _TALL + 0.06), "round,pad=0.06,rounding_size=0.1"
        axes.add_patch(
            FancyBboxPatch(
                corner, 2 * half - 0.12, 2 * _TALL - 0.12, boxstyle=style, zorder=3, **look
            )
        )
        centred(
            axes, x, y - 0.2, f"{lesson.number} {FAMILIES[lesson.family]}", fontsize=10.5, zorder=4
        )
        label = "\n".join(
            textwrap.wrap(lesson.label, wide, break_on_hyphens=False, break_long_words=False)
        )
        centred(axes, x, y + 0.09, label, weight="bold", zorder=4, linespacing=1.0)
    return figure


def lesson_list() -> Html:
    """The same in words: each lesson as a link, its family, the lessons that it builds on."""
    lessons = course.lessons()
    head = "".join(
        f'<th style="text-align:left">{word}</th>' for word in ("lesson", "family", "builds on")
    )
    rows, plain = "", []
    for lesson in lessons.values():
        needs = ", ".join(lessons[need].number for need in lesson.needs) or "nothing"
        link = f'<a href="{lesson.name}.ipynb">{lesson.number} {escape(lesson.title)}</a>'
        cells = "".join(
            f'<td style="text-align:left">{cell}</td>'
            for cell in (link, FAMILIES[lesson.family], needs)
        )
        rows += f"<tr>{cells}</tr>"
        family = FAMILIES[lesson.family]
        plain.append(f"{lesson.number} {lesson.title} ({family}), builds on {needs}")
    return Html(
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>", "\n".join(plain)
    )


# family -> (colour, marker, name in the legend)
_MODELS = {
    "static": (GREY, "o", "word vectors"),
    "recurrent": (ORANGE, "D", "recurrent"),
    "encoder": (BLUE, "s", "encoder"),
    "decoder": (VERMILION, "^", "decoder"),
    "encoder-decoder": (GREEN, "v", "encoder-decoder"),
}


@styled
def timeline() -> Figure:
    """Models of 2013 to 2023: parameters above, training text below, both logarithmic, where the
    paper says it.
    """
    models = read_json(TIMELINE)["models"]
    figure, (upper, lower) = panels(11, 8.2, 2, 1, sharex=True)
    for axes, field, name in (
        (upper, "parameters", "parameters"),
        (lower, "data", "words or tokens of training text"),
    ):
        known = [(_year(m["date"]), m[field], m["family"], m["model"]) for m in models if m[field]]
        for family, (colour, marker, title) in _MODELS.items():
            years, sizes = zip(
                *((year, size) for year, size, its, _ in known if its == family), strict=True
            )
            axes.scatter(years, sizes, s=60, color=colour, marker=marker, label=title)
        every = [size for _, size, *_ in known]
        axes.set(
            yscale="log", xlim=(2012.7, 2024.2), ylim=(min(every) / 3, max(every) * 5), title=name
        )
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        axes.grid(True)
        axes.set_axisbelow(True)
        points, colours = (
            [(year, float(size)) for year, size, *_ in known],
            [_MODELS[its][0] for *_, its, _ in known],
        )
        place_labels(axes, points, [model for *_, model in known], colours)
    lower.set_xticks(range(2013, 2025))
    upper.legend(loc="upper left", ncols=2)
    return figure


def _year(date: str) -> float:
    year, month = date.split("-")
    return int(year) + (int(month) - 0.5) / 12


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
