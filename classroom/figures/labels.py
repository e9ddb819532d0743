"""Words beside points, moved until none covers another."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from classroom.figures.style import INK, note

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
    axes: Axes,
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    colours: Sequence[str] | None = None,
    size: float = 12,
) -> None:
    """Write each label beside its point (data coordinates), in the first free place. The limits
    must be final. size: of the letters, in points.
    """
    figure = axes.figure.figure
    figure.draw_without_rendering()
    dots = axes.transData.transform(list(points))
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    taken = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    for i in sorted(range(len(points)), key=lambda i: (-dots[i][0], dots[i][1])):
        width, height = 0.6 * size * scale * len(labels[i]), 1.15 * size * scale
        others = taken[:i] + taken[i + 1 :]
        costs: list[float] = []
        for k, place in enumerate(_PLACES):
            box = _box(dots[i], place, width, height, scale)
            outside = (
                box.x1 > frame.x1 + 120
                or box.y0 < frame.y0
                or box.y1 > frame.y1
                or box.x0 < frame.x0
            )
            common = (Bbox.intersection(box, other) for other in others)
            costs.append(
                sum(each.width * each.height for each in common if each)
                + (1e6 if outside else 0)
                + k
            )
        place = dx, dy, align = _PLACES[costs.index(min(costs))]
        taken.append(_box(dots[i], place, width, height, scale))
        line = {"arrowstyle": "-", "color": "#9aa0a6", "lw": 0.8} if abs(dy) > 15 else None
        look: dict[str, Any] = {"ha": align, "va": "center", "fontsize": size, "arrowprops": line}
        colour = colours[i] if colours else INK
        note(axes, points[i], labels[i], (dx, dy), color=colour, annotation_clip=False, **look)


def _box(
    dot: Sequence[float], place: tuple[float, float, str], width: float, height: float, scale: float
) -> Bbox:
    x, y = dot[0] + place[0] * scale, dot[1] + place[1] * scale
    left = {"left": x, "right": x - width, "center": x - width / 2}[place[2]]
    return Bbox.from_extents(left, y - height / 2, left + width, y + height / 2)
