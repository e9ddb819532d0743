"""A teacher beside its student: what is copied at the start, and where the three losses stand."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    canvas,
    centred,
    rounded_box,
    styled,
)
from course_lib.errors import CourseError

TEACHER, STUDENT, LABEL = 0.0, 5.6, 9.6  # the middles of the three columns
HIGH, STEP = 0.5, 0.68  # a layer, and from one to the next
CELLS = 10  # numbers of a vector that are shown


@styled
def three_losses(
    text: str,
    layers: tuple[int, int],
    words: Sequence[str],
    probabilities: Mapping[str, Numbers],
    vectors: tuple[Numbers, Numbers],
    label: str,
) -> Figure:
    """DistilBERT's teacher and student on one text, and what each of the three losses compares.

    Args:
        text: what both read.
        layers: the number of the teacher's layers and of the student's, which are copies of evenly
            taken ones.
        words: with a row each.
        probabilities: the teacher's, then the student's: name -> one for each of the words.
        vectors: the last hidden state of one token in the teacher and in the student.
        label: the word that stood at the gap.

    Raises:
        CourseError: the teacher's layers are no multiple of the student's.
    """
    large, small = layers
    if small < 1 or large % small:
        raise CourseError(f"{small} layers cannot be taken evenly from {large}.")
    rows = max(len(words), 1)
    top = STEP * large
    figure, axes = canvas(12.4, 2.9 + 0.5 * (large + 0.62 * rows))
    heights = {number: STEP * number for number in range(large)}

    for name, x, numbers in (
        ("teacher", TEACHER, list(heights)),
        ("student", STUDENT, list(heights)[:: large // small]),
    ):
        tint = "plain" if name == "teacher" else "blue"
        centred(axes, x, -0.95, text, fontsize=13, color=INK)
        before = -0.72
        for place, number in enumerate(numbers):
            y = heights[number]
            arrow(axes, (x, before), (x, y - HIGH / 2), color=GREY, lw=1.5)
            layer = f"layer {place + 1}"
            rounded_box(axes, (x, y), (2.3, HIGH), layer, fill=TINTS[tint], fontsize=14)
            before = y + HIGH / 2
            if name == "student":
                start, end = (TEACHER + 1.2, y), (STUDENT - 1.2, y)
                axes.annotate("", end, start, arrowprops=_dashed())
        arrow(axes, (x, before), (x, top - 0.16), color=GREY, lw=1.5)
    centred(axes, (TEACHER + STUDENT) / 2, heights[0] + 0.2, "copied once", fontsize=13, color=GREY)

    for x, vector in zip((TEACHER, STUDENT), vectors, strict=True):
        _strip(axes, x, top + 0.08, array(vector).reshape(-1)[:CELLS])
        arrow(axes, (x, top + 0.3), (x, top + 0.62), color=GREY, lw=1.5)
    _loss(axes, (TEACHER + 1.35, top + 0.08), (STUDENT - 1.35, top + 0.08), GREEN, "cosine loss")

    foot = top + 0.85
    peak = max(float(array(shares).max()) for shares in probabilities.values())
    for x, (name, shares) in zip((TEACHER, STUDENT), probabilities.items(), strict=True):
        for row, (word, share) in enumerate(zip(words, array(shares), strict=True)):
            y = foot + 0.42 * (rows - 1 - row)
            _bar(axes, x, y, word, float(share), peak, bold=word == label)
        centred(axes, x, foot + 0.42 * rows + 0.16, name, fontsize=16, color=INK)
    middle = foot + 0.21 * (rows - 1)
    _loss(axes, (TEACHER + 1.6, middle), (STUDENT - 1.6, middle), BLUE, "soft loss")
    _loss(axes, (STUDENT + 1.6, middle), (LABEL - 0.75, middle), VERMILION, "hard loss")
    size = 1.4, HIGH
    rounded_box(axes, (LABEL, middle), size, label, fill=TINTS["orange"], fontsize=14)
    centred(axes, LABEL, middle + 0.5, "label", fontsize=13, color=GREY)
    axes.set(xlim=(-1.8, LABEL + 0.9), ylim=(-1.2, foot + 0.42 * rows + 0.45))
    axes.set_axis_off()
    return figure


def _dashed() -> dict[str, object]:
    """The look of an arrow from a layer to its copy."""
    shape = {"arrowstyle": "-|>", "linestyle": (0, (5, 3)), "shrinkA": 0, "shrinkB": 0}
    return {**shape, "color": "#9aa0a6", "lw": 1.4}


def _loss(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, name: str
) -> None:
    """An arrow between the two things that a loss compares."""
    look = {"arrowstyle": "<|-|>", "color": colour, "lw": 2.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=look)
    x = (start[0] + end[0]) / 2
    axes.text(x, start[1] + 0.1, name, ha="center", va="bottom", fontsize=15, color=colour)


def _strip(axes: Axes, x: float, y: float, numbers: np.ndarray) -> None:
    """A vector as small squares: red above 0, blue below."""
    scale = max(1e-9, float(np.abs(numbers).max()))
    wide = 2.5 / len(numbers)
    for i, value in enumerate(numbers):
        depth = 0.1 + 0.9 * (abs(float(value)) / scale)
        fill = (0.0, 0.45, 0.7, depth) if value < 0 else (0.77, 0.31, 0.0, depth)
        corner = (x - 1.25 + i * wide, y - 0.2)
        axes.add_patch(Rectangle(corner, wide, 0.4, facecolor=fill, edgecolor="white", lw=1.2))


def _bar(
    axes: Axes, x: float, y: float, word: str, share: float, peak: float, *, bold: bool
) -> None:
    """A word with the bar of its probability."""
    weight = "bold" if bold else "normal"
    axes.text(x - 0.3, y, word, ha="right", va="center", fontsize=13.5, color=INK, weight=weight)
    axes.add_patch(Rectangle((x - 0.2, y - 0.14), 1.1 * share / peak, 0.28, facecolor=BLUE))
    axes.text(x - 0.12 + 1.1 * share / peak, y, f"{share:.0%}", va="center", fontsize=12, color=INK)
