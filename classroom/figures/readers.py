"""ELMo in pictures: filters that slide over letters, an LSTM, two readers, their layers' mix."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    SKY,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    bare,
    canvas,
    centred,
    panels,
    rounded_box,
    styled,
)
from course_lib.errors import CourseError

STEP = 2.0  # from word to word
LEVELS = (0.0, 1.05, 2.45, 3.85)  # word, letters, layer 1, layer 2
LIFT = 0.2  # a forward box stands this much above the middle of its level, a backward box below
SIDE = 0.46  # and this much left or right of its word


@styled
def letter_filters(characters: Sequence[str], answers: Mapping[str, Numbers]) -> Figure:
    """Filters slide over a word's characters: a bar for each window, the largest one coloured.

    Args:
        characters: C of them.
        answers: name of a filter -> its answers at C - w + 1 windows of w characters. A bar stands
            over the middle of its window.

    Raises:
        CourseError: a filter has more answers than there are characters.
    """
    figure, axes = panels(11.5, 3.6, 1, len(answers), sharey=True)
    for one, (name, values) in zip(axes, answers.items(), strict=True):
        heights = array(values).reshape(-1)
        wide = len(characters) - len(heights) + 1
        if wide < 1:
            raise CourseError(f"{name}: {len(heights)} answers for {len(characters)} characters.")
        best = int(heights.argmax())
        middles = [place + (wide - 1) / 2 for place in range(len(heights))]
        colours = [VERMILION if place == best else SKY for place in range(len(heights))]
        one.bar(middles, heights, color=colours, width=0.6)
        one.axhline(0, color=GREY, lw=1)
        label = f"{heights[best]:.2f}"
        one.annotate(
            label,
            (middles[best], heights[best]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=14,
            color=VERMILION,
        )
        one.set_xticks(range(len(characters)), characters, fontsize=15)
        for tick, letter in enumerate(one.get_xticklabels()):
            letter.set_color(VERMILION if best <= tick < best + wide else INK)
        one.set_yticks([])
        one.set_xlim(-0.9, len(characters) - 0.1)
        one.margins(y=0.15)
        bare(one)
        one.set_title(f"filter “{name}”", fontsize=15)
    return figure


@styled
def lstm_steps(words: Sequence[str]) -> Figure:
    """An LSTM from word to word: the memory c with its three gates, and h, what it shows.

    Args:
        words: one step each.
    """
    wide, memory, shown, below = 5.6, 3.1, 0.9, -0.6  # of a step; heights of c, h and the words
    figure, axes = canvas(12.6, 5.6)
    for place, word in enumerate(words):
        x = wide * place
        forget, add, show = x + 1.5, x + 3.0, x + 4.5
        arrow(axes, (x, memory), (x + wide, memory), color=VERMILION, lw=4)
        arrow(axes, (x, shown), (forget - 0.6, shown), color=BLUE, lw=2)
        arrow(axes, (forget, below + 0.3), (forget, shown - 0.3), lw=1.6)
        _box(axes, forget, below, 1.5, word, "plain")
        rounded_box(axes, (x + 2.25, shown), (2.7, 0.6), "four products", fill=TINTS["blue"])
        for gate, sign, name in (
            (forget, "×", "forget gate:\nwhat stays"),
            (add, "+", "input gate:\nwhat is added"),
            (show, "×", "output gate:\nwhat is shown"),
        ):
            y = memory if gate != show else 1.95
            start = (min(gate, x + 3.3), shown + 0.3)
            arrow(axes, start, (gate, y - 0.28), lw=1.4)
            axes.plot(gate, y, "o", markersize=25, color="white", markeredgecolor=INK, zorder=4)
            centred(axes, gate, y, sign, fontsize=17, zorder=5)
            side = ("center", gate, memory + 0.45) if gate != show else ("left", gate + 0.3, y)
            axes.text(
                side[1],
                side[2],
                name,
                ha=side[0],
                va="bottom" if gate != show else "center",
                fontsize=13,
            )
        axes.plot([show, show], [memory, 2.2], color=VERMILION, lw=2)
        arrow(axes, (show, 1.68), (show, shown + 0.02), color=BLUE, lw=2)
        arrow(axes, (show, shown), (x + wide, shown), color=BLUE, lw=2)
        arrow(axes, (show, shown), (show, below - 0.25), color=BLUE, lw=2)
        axes.text(show + 0.12, below, f"vector of\n“{word}”", va="center", fontsize=13, color=BLUE)
    axes.text(-0.15, memory, "memory c", ha="right", va="center", fontsize=14, color=VERMILION)
    axes.text(
        -0.15,
        shown,
        "h, shown at\nthe word before",
        ha="right",
        va="center",
        fontsize=13,
        color=BLUE,
    )
    axes.set(xlim=(-2.3, wide * len(words) + 0.3), ylim=(-1.0, 4.5))
    axes.set_axis_off()
    return figure


@styled
def two_readers(words: Sequence[str], chosen: int) -> Figure:
    """ELMo over a sentence: letters, two LSTM layers from each side, the mix of one word's layers.

    Args:
        words: T of them.
        chosen: the word whose three layers are mixed.
    """
    last = STEP * (len(words) - 1)
    figure, axes = canvas(12.6, 5.9)
    for place, word in enumerate(words):
        x = STEP * place
        edge = VERMILION if place == chosen else "#9aa0a6"
        _box(axes, x, LEVELS[0], 1.5, word, "plain", edge)
        _box(axes, x, LEVELS[1], 1.5, "letters", "purple", edge)
        arrow(axes, (x, LEVELS[0] + 0.27), (x, LEVELS[1] - 0.27), lw=1.4)
        below = LEVELS[1] + 0.27
        for level in LEVELS[2:]:
            for side, tint, ink in ((-1, "blue", BLUE), (1, "green", GREEN)):
                middle = level - side * LIFT
                start = below if level == LEVELS[2] else LEVELS[2] - side * LIFT + 0.24
                arrow(axes, (x + side * SIDE, start), (x + side * SIDE, middle - 0.24), lw=1.4)
                following = place - side  # the word that this direction reads next
                if 0 <= following < len(words):
                    begin = x + side * SIDE - side * 0.36
                    end = STEP * following + side * SIDE + side * 0.36
                    arrow(axes, (begin, middle), (end, middle), color=ink, lw=2.0)
                _box(axes, x + side * SIDE, middle, 0.72, "→" if side < 0 else "←", tint, edge)
            below = level
    _mix(axes, STEP * chosen, last + 2.3, words[chosen])
    for level, name in zip(LEVELS[1:], ("layer 0", "layer 1", "layer 2"), strict=True):
        axes.text(-1.25, level, name, ha="right", va="center", fontsize=13, color=GREY)
    axes.set(xlim=(-2.6, last + 4.7), ylim=(-0.45, 4.95))
    axes.set_axis_off()
    return figure


def _box(
    axes: Axes, x: float, y: float, width: float, text: str, tint: str, edge: str = "#9aa0a6"
) -> None:
    line = 2.0 if edge == VERMILION else 1.1
    rounded_box(axes, (x, y), (width + 0.04, 0.48), text, fill=TINTS[tint], edge=edge, line=line)


def _mix(axes: Axes, column: float, x: float, word: str) -> None:
    """From the word's column over the top to its three layers with their shares, and the sum."""
    top = LEVELS[3] + 0.8
    axes.plot([column, column], [LEVELS[3] + 0.45, top], color=VERMILION, lw=2)
    axes.plot([column, x], [top, top], color=VERMILION, lw=2)
    low, high = LEVELS[1] - 0.36, LEVELS[3] + 0.36  # a frame: all three layers are taken
    arrow(axes, (x, top), (x, high), color=VERMILION, lw=2)
    frame = (1.85, high - low)
    rounded_box(axes, (x, (low + high) / 2), frame, fill="none", edge=VERMILION, line=2)
    for number, (level, tint) in enumerate(
        zip(LEVELS[1:], ("purple", "yellow", "yellow"), strict=True)
    ):
        _box(axes, x, level, 1.5, rf"$s_{number}\cdot$ layer {number}", tint)
        if number:
            centred(axes, x, (level + LEVELS[number]) / 2, "+", fontsize=17, color=GREY)
    arrow(axes, (x, low), (x, LEVELS[0] + 0.27), color=VERMILION, lw=2)
    centred(axes, x + 0.55, (LEVELS[0] + LEVELS[1]) / 2, r"$\times\,\gamma$", fontsize=15)
    _box(axes, x, LEVELS[0], 2.4, f"ELMo of “{word}”", "orange", VERMILION)
