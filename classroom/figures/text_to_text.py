"""Lesson 17: one model for many tasks, span corruption as boxes."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.drawings import Token, tokens
from classroom.figures.style import (
    GREY,
    INK,
    TINTS,
    arrow,
    bare,
    canvas,
    centred,
    rounded_box,
    styled,
)
from course_lib.errors import CourseError

TINT_OF_SPAN = ("blue", "orange", "green", "purple", "yellow")
EDGE = "#9aa0a6"
LONGEST = 46  # letters of a text that is drawn


@styled
def one_model(texts: Sequence[str], written: Sequence[str]) -> Figure:
    """Texts on the left, one model in the middle, what it writes on the right, task by task.

    Args:
        texts: each with its task's prefix, which ends in a colon and gets the task's tint.
        written: the model's answers.
    """
    figure, axes = canvas(12.4, 0.95 * len(texts) + 0.5)
    top = len(texts) - 1
    prefixes = list(dict.fromkeys(text.split(":")[0] for text in texts))
    for i, (text, answer) in enumerate(zip(texts, written, strict=True)):
        y = top - i
        fill = TINTS[_tint(prefixes.index(text.split(":")[0]))]
        _box(axes, (0.0, 5.0), y, _short(text), fill)
        _box(axes, (7.45, 5.0), y, _short(answer), fill)
        arrow(axes, (5.0, y), (5.4, y - 0.12 * (top / 2 - i)), lw=1.4)
        arrow(axes, (7.05, y - 0.12 * (top / 2 - i)), (7.45, y), lw=1.4)
    says = "one encoder,\none decoder,\none loss"
    rounded_box(
        axes,
        (6.22, top / 2),
        (1.6, top + 0.7),
        says,
        fill=TINTS["dark"],
        edge=INK,
        fontsize=14,
        color=INK,
    )
    for x, name in ((2.4, "text in"), (10.1, "text out")):
        centred(axes, x, top + 0.72, name, fontsize=13, color=GREY)
    axes.set(xlim=(-0.1, 12.5), ylim=(-0.6, top + 1.0))
    bare(axes)
    axes.set_axis_off()
    return figure


def corrupted(
    text: Sequence[str],
    spans: Sequence[tuple[int, int]],
    read: Sequence[str],
    target: Sequence[str],
    width: int = 84,
) -> Figure:
    """Span corruption as three lines of boxes. A span and its sentinel have one tint.

    Args:
        text: the tokens.
        spans: (start, length) of what is hidden, from left to right.
        read: the encoder's input, with a sentinel for each span.
        target: the decoder's output, each sentinel before its span, one more at the end.
        width: letters of a line.

    Raises:
        CourseError: input and target do not name each span by the same sentinel.
    """
    hidden = {}
    for number, (start, length) in enumerate(spans):
        hidden.update(dict.fromkeys(range(start, start + length), _tint(number)))
    marks = [token for token in read if token not in text]
    named = {mark: _tint(number) for number, mark in enumerate(marks)}
    if len(named) != len(spans) or not set(named) <= set(target):
        raise CourseError("Input and target need one sentinel of its own for each span.")
    written: list[Token] = []
    tint = "plain"
    for token in target:
        tint = named.get(token, "plain" if token not in text else tint)
        written.append((token, tint))
    rows: dict[str, list[Token]] = {
        "text": [(token, hidden.get(i, "plain")) for i, token in enumerate(text)],
        "input": [(token, named.get(token, "plain")) for token in read],
        "target": written,
    }
    return tokens(rows, width=width)


def _tint(number: int) -> str:
    return TINT_OF_SPAN[number % len(TINT_OF_SPAN)]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _box(axes: Axes, place: tuple[float, float], y: float, text: str, fill: str) -> None:
    left, width = place
    rounded_box(axes, (left + width / 2, y), (width, 0.6), fill=fill, edge=EDGE)
    axes.text(
        left + 0.12,
        y,
        text.replace("$", r"\$"),
        va="center",
        family="DejaVu Sans Mono",
        fontsize=12,
        color=INK,
    )
