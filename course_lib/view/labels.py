"""Words beside points, moved until none covers another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib.view.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]

# Where a label may stand, in points from its point, best first: (dx, dy, horizontal alignment).
_PLACES: tuple[tuple[float, float, str], ...] = (
    (7, 0, "left"),
    (-7, 0, "right"),
    (0, 11, "center"),
    (0, -12, "center"),
    (6, 10, "left"),
    (6, -11, "left"),
    (-6, 10, "right"),
    (-6, -11, "right"),
    (4, 24, "left"),
    (-4, -25, "right"),
    (4, -25, "left"),
    (-4, 24, "right"),
    (3, 38, "left"),
    (3, -39, "left"),
)


def place_labels(
    axes: "Axes",
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    *,
    colours: Sequence[str] | None = None,
    size: float = 12,
) -> None:
    """Write each label beside its point (data coordinates), greedily in the first place that is free.

    Call it when the axes' limits are final.
    """
    figure = axes.figure
    figure.canvas.draw()
    dots = axes.transData.transform(list(points))
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    order = sorted(range(len(points)), key=lambda i: (-dots[i][0], dots[i][1]))
    for i in order:
        width, height = 0.6 * size * scale * len(labels[i]), 1.15 * size * scale
        others = taken[:i] + taken[i + 1 :]
        best: tuple[float, int] = (float("inf"), 0)
        for k, place in enumerate(_PLACES):
            box = _box(dots[i], place, width, height, scale)
            outside = box[2] > frame.x1 + 120 or box[1] < frame.y0 or box[3] > frame.y1 or box[0] < frame.x0
            cost = sum(_overlap(box, other) for other in others) + (1e6 if outside else 0) + k
            best = min(best, (cost, k))
        dx, dy, align = _PLACES[best[1]]
        taken.append(_box(dots[i], _PLACES[best[1]], width, height, scale))
        axes.annotate(
            labels[i],
            points[i],
            xytext=(dx, dy),
            textcoords="offset points",
            ha=align,
            va="center",
            fontsize=size,
            color=colours[i] if colours else INK,
            arrowprops={"arrowstyle": "-", "color": "#9aa0a6", "lw": 0.8} if abs(dy) > 15 else None,
            annotation_clip=False,
        )


def _box(dot: Sequence[float], place: tuple[float, float, str], width: float, height: float, scale: float) -> Box:
    x, y = dot[0] + place[0] * scale, dot[1] + place[1] * scale
    left = {"left": x, "right": x - width, "center": x - width / 2}[place[2]]
    return left, y - height / 2, left + width, y + height / 2


def _overlap(a: Box, b: Box) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return wide * high if wide > 0 and high > 0 else 0.0
