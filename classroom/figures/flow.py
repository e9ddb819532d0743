"""What leads to what: named boxes with arrows between them."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    TINTS,
    arrow,
    canvas,
    centred,
    rounded_box,
    styled,
)
from course_lib.errors import CourseError

Box = tuple[float, float, str]  # its middle, and one of `style.TINTS`


@styled
def flow(
    boxes: Mapping[str, Box],
    arrows: Sequence[tuple[str, str, str]],
    *,
    box: tuple[float, float] = (2.3, 0.9),
) -> Figure:
    """Boxes with a text each, and arrows from one to another.

    One unit is an inch. An arrow leaves and enters in the middle of a side: left and right, unless
    one box stands above the other.

    Args:
        boxes: what stands in a box -> where it is, and its tint.
        arrows: from a box, to a box, and what is written at the middle of the way; may be "".
        box: width and height of all boxes.

    Raises:
        CourseError: an arrow begins or ends at no box.
    """
    missing = {name for start, end, _ in arrows for name in (start, end)} - set(boxes)
    if missing:
        raise CourseError(f"There is no box {', '.join(sorted(missing))}.")
    wide, high = box
    xs = [x for x, _, _ in boxes.values()]
    ys = [y for _, y, _ in boxes.values()]
    left, right = min(xs) - wide / 2 - 0.1, max(xs) + wide / 2 + 0.1
    low, top = min(ys) - high / 2 - 0.1, max(ys) + high / 2 + 0.1
    figure, axes = canvas(right - left, top - low)
    axes.set(xlim=(left, right), ylim=(low, top))
    axes.set_axis_off()
    for text, (x, y, tint) in boxes.items():
        rounded_box(axes, (x, y), box, text, fill=TINTS[tint], fontsize=14)
    for start, end, says in arrows:
        (x, y, _), (to_x, to_y, _) = boxes[start], boxes[end]
        if abs(to_x - x) > wide / 2:  # side by side
            step = wide / 2 if to_x > x else -wide / 2
            begin, stop = (x + step, y), (to_x - step, to_y)
        else:
            step = high / 2 if to_y > y else -high / 2
            begin, stop = (x, y + step), (to_x, to_y - step)
        arrow(axes, begin, stop, color=GREY if not says else BLUE, lw=2.2)
        middle = ((begin[0] + stop[0]) / 2, (begin[1] + stop[1]) / 2)
        back = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        if says:
            centred(axes, *middle, says, fontsize=13, color=INK, bbox=back, zorder=5)
    return figure
