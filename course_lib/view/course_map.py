"""The lessons and what builds on what, as a drawing and as a list, both from `data/course.json`."""

import functools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.view.display import Html, escape
from course_lib.view.style import GREY, INK, TINTS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
COURSE = ROOT / "data" / "course.json"

_TINTS = {
    "start": "dark",
    "attention": "blue",
    "words": "yellow",
    "decoders": "orange",
    "encoders": "green",
    "encoder-decoders": "purple",
}
_HALF, _TALL = 0.43, 0.33  # half a box, in columns and in rows
_END = "21"  # the last lesson is as wide as the map

Point = tuple[float, float]


@dataclass(frozen=True)
class Planned:
    """A lesson of the table: name of its file, title, short label on the map, family, what it builds on, place."""

    name: str
    title: str
    label: str
    family: str
    needs: tuple[str, ...]
    place: Point

    @property
    def number(self) -> str:
        """Its two digits."""
        return self.name[:2]

    @property
    def ready(self) -> bool:
        """Whether its notebook stands."""
        return (ROOT / "notebooks" / f"{self.name}.ipynb").exists()


def planned(path: Path | str = COURSE) -> dict[str, Planned]:
    """All lessons of the course by their names, in order, those to come too."""
    rows = read_json(path)["lessons"]
    return {
        row["name"]: Planned(
            row["name"],
            row["title"],
            row.get("label", row["title"]),
            row["family"],
            tuple(row["needs"]),
            (float(row["place"][0]), float(row["place"][1])),
        )
        for row in rows
    }


def arrows(lessons: dict[str, Planned]) -> Iterator[tuple[str, str]]:
    """What the map draws: (needed, lesson), without what follows (03 needs 02, which needs 01: no arrow from 01)."""

    @functools.cache
    def all_needs(name: str) -> frozenset[str]:
        direct = lessons[name].needs
        return frozenset(direct).union(*(all_needs(need) for need in direct))

    for name, lesson in lessons.items():
        for need in lesson.needs:
            if not any(need in all_needs(other) for other in lesson.needs):
                yield need, name


def route(start: Point, end: Point, boxes: Sequence[Point], *, wide: bool = False) -> tuple[list[Point], bool]:
    """An arrow from below one box to above another, bent where that keeps it out of the others.

    Args:
        start, end: the places of the two boxes (column, row); `wide`: the arrow goes straight down to a wide box.
        boxes: the places of all others.

    Returns:
        points of the curve, and whether it meets no box.
    """
    tail, tip = (start[0], start[1] + _TALL), (start[0] if wide else end[0], end[1] - _TALL - 0.02)
    curve: list[Point] = []
    for bend in (0.0, 0.4, -0.4, 0.8, -0.8, 1.2, -1.2, 1.6, -1.6, 2.2, -2.2, 3.0, -3.0):
        sides = (tail[0] + bend, tail[1] + 0.6 * (tip[1] - tail[1])), (tip[0] + bend, tip[1] - 0.6 * (tip[1] - tail[1]))
        curve = [_bezier((tail, *sides, tip), i / 60) for i in range(61)]
        if not any(abs(x - bx) < _HALF + 0.04 and abs(y - by) < _TALL + 0.02 for x, y in curve for bx, by in boxes):
            return curve, True
    return curve, False


@styled
def lesson_map(here: str = "", ready: Sequence[str] | None = None) -> "Figure":
    """The lessons and what builds on what, from the first at the top to the last at the bottom.

    Args:
        here: the lesson to frame, by its name or number ("09_bert", "09").
        ready: the lessons that stand already, named so too; others are dashed. Without it: those with a notebook.
    """
    from matplotlib.patches import FancyBboxPatch

    lessons = planned()
    if here and here[:2] not in {lesson.number for lesson in lessons.values()}:
        raise CourseError(f"There is no lesson {here!r}; they are {', '.join(lessons)}.")
    standing = {name[:2] for name in ready} if ready is not None else {x.number for x in lessons.values() if x.ready}
    figure, axes = canvas(11, 8.4)
    axes.set_xlim(-0.5, 5.5)
    axes.set_ylim(7.4, -0.4)
    axes.set_axis_off()
    for need, name in arrows(lessons):
        boxes = [x.place for x in lessons.values() if x.name not in (need, name) and x.number != _END]
        curve, _ = route(lessons[need].place, lessons[name].place, boxes, wide=name[:2] == _END)
        tip = curve[-1]
        axes.plot(*zip(*curve[:-1], strict=True), color="#7c8289", lw=1.8, zorder=1)
        head = {"arrowstyle": "-|>", "color": "#7c8289", "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", tip, curve[-2], arrowprops=head)
    names = read_json(COURSE)["families"]
    for lesson in lessons.values():
        (x, y), there = lesson.place, lesson.number in standing
        half = 2.93 if lesson.number == _END else _HALF
        box = FancyBboxPatch(
            (x - half + 0.06, y - _TALL + 0.06),
            2 * half - 0.12,
            2 * _TALL - 0.12,
            boxstyle="round,pad=0.06,rounding_size=0.1",
            facecolor=TINTS[_TINTS[lesson.family]] if there else "white",
            edgecolor=INK if lesson.number == here[:2] else GREY,
            linewidth=3.0 if lesson.number == here[:2] else 1.2,
            linestyle="-" if there else (0, (3, 2)),
            zorder=3,
        )
        axes.add_patch(box)
        above = f"{lesson.number} {names[lesson.family]}"
        axes.text(x, y - 0.2, above, ha="center", va="center", fontsize=10.5, zorder=4)
        wide = 13 if half == _HALF else 80
        label = "\n".join(textwrap.wrap(lesson.label, wide, break_on_hyphens=False, break_long_words=False))
        axes.text(x, y + 0.09, label, ha="center", va="center", weight="bold", zorder=4, linespacing=1.0)
    return figure


def lesson_list() -> Html:
    """The same in words: each lesson as a link, its family, the lessons that it builds on."""
    lessons, names = planned(), read_json(COURSE)["families"]
    head = "".join(f'<th style="text-align:left">{word}</th>' for word in ("lesson", "family", "builds on"))
    rows, plain = "", []
    for lesson in lessons.values():
        needs = ", ".join(lessons[need].number for need in lesson.needs) or "nothing"
        title = f"{lesson.number} {escape(lesson.title)}"
        link = f'<a href="{lesson.name}.ipynb">{title}</a>' if lesson.ready else f"{title} (to come)"
        cells = "".join(f'<td style="text-align:left">{cell}</td>' for cell in (link, names[lesson.family], needs))
        rows += f"<tr>{cells}</tr>"
        plain.append(f"{lesson.number} {lesson.title} ({names[lesson.family]}), builds on {needs}")
    return Html(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>", "\n".join(plain))


def _bezier(points: tuple[Point, ...], t: float) -> Point:
    (a, b, c, d), s = points, 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    x, y = (sum(w * p[i] for w, p in zip(weights, (a, b, c, d), strict=True)) for i in (0, 1))
    return x, y
