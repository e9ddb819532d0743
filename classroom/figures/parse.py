"""Arcs over sentences: a document's gold annotations, and where an attention head looks beside the
parse.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALETTE,
    PURPLE,
    Numbers,
    array,
    centred,
    styled,
)
from course_lib.errors import CourseError

LETTER = 0.125  # inches, a letter of 13 points, on average
SMALL = 0.093  # a letter of 10 points
GAP = 0.16
LEVEL = 0.3  # height of an arc over those inside it
ARROW: dict[str, Any] = {"arrowstyle": "-|>", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
ROWS = 0.95  # below the words: parts of speech, bars, names


class WordPlaces(NamedTuple):
    """One sentence: its tokens' numbers in the document, and the middles of its words in inches."""

    first: int
    last: int
    middles: list[float]
    width: float


@styled
def annotations(document: Mapping[str, Any], first: int = 0, count: int = 2) -> Figure:
    """The gold annotations of some sentences: arcs from head to dependent with their relations,
    parts of speech, and bars under the words that name or stand for something, one colour and one
    name for all mentions of an entity.

    document: a row with the columns of `World.document`. first: the number of the first sentence,
    from 0."""
    ends = [i + 1 for i, token in enumerate(document["tokens"]) if token in (".", "?", "!")]
    if not 0 <= first < first + count <= len(ends):
        raise CourseError(
            f"The document has {len(ends)} sentences; first={first}, count={count} asks for others."
        )
    sentences = [
        _measure(document, start, end) for start, end in zip([0, *ends], ends, strict=False)
    ]
    chosen = sentences[first : first + count]
    levels = [_levels(document["heads"], words) for words in chosen]
    heights = [LEVEL * (max(level.values(), default=0) + 1) + 0.35 + ROWS for level in levels]
    width, top = max(words.width for words in chosen), sum(heights)
    figure = Figure(figsize=(width, top))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, top))  # inches
    axes.set_axis_off()
    names = list(dict.fromkeys(mention["entity"] for mention in document["mentions"]))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    for words, level, height in zip(chosen, levels, heights, strict=True):
        base = top - height + ROWS
        _arcs(axes, document, words, level, base)
        _below(axes, document, words, base, colours)
        top -= height
    return figure


def _measure(document: Mapping[str, Any], first: int, last: int) -> WordPlaces:
    """Where the words of a sentence stand, so that neither they nor what is written at them
    touch.
    """
    middles, x = [], 0.15
    for word, *small in list(
        zip(document["tokens"], document["tags"], document["deprels"], strict=True)
    )[first:last]:
        width = max(LETTER * len(word), *(SMALL * len(text) for text in small)) + GAP
        middles.append(x + width / 2)
        x += width
    return WordPlaces(first, last, middles, x + 0.15)


def _levels(heads: Sequence[int], words: WordPlaces) -> dict[int, int]:
    """Of each dependent how high its arc is: one more than the highest arc inside it."""
    arcs = sorted(
        (i for i in range(words.first, words.last) if heads[i] >= 0),
        key=lambda i: abs(heads[i] - i),
    )
    levels: dict[int, int] = {}
    for i in arcs:
        left, right = sorted((i, heads[i]))
        inside = [
            levels[k] for k in levels if left <= min(k, heads[k]) and max(k, heads[k]) <= right
        ]
        levels[i] = 1 + max(inside, default=0)
    return levels


def _arcs(
    axes: Axes, document: Mapping[str, Any], words: WordPlaces, levels: dict[int, int], base: float
) -> None:
    """Arcs from each head to its dependents; the root hangs from above."""
    foot = base + 0.17
    for i in range(words.first, words.last):
        x, head = words.middles[i - words.first], document["heads"][i]
        relation = document["deprels"][i]
        if head < 0:
            top = foot + LEVEL * (max(levels.values(), default=0) + 0.6)
            axes.text(
                x + 0.05,
                top - 0.02,
                relation,
                ha="left",
                va="top",
                fontsize=9.5,
                color=INK,
                weight="bold",
            )
        else:
            side = 1 if head < i else -1
            x -= 0.045 * side  # arcs to and from a word do not share a foot
            start = words.middles[head - words.first] + 0.045 * side
            top = foot + LEVEL * levels[i]
            bend = min(0.18, abs(x - start) / 2) * (1 if x > start else -1)
            path = [(start, foot), (start, top - 0.1), (start + bend, top), (x - bend, top)]
            path += [(x, top - 0.1), (x, foot + 0.05)]
            axes.plot(*zip(*path, strict=True), color=GREY, linewidth=1.2, solid_joinstyle="round")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            centred(axes, (start + x) / 2, top, relation, fontsize=9.5, color=INK, bbox=box)
        colour, above = (INK, top) if head < 0 else (GREY, foot + 0.1)
        axes.annotate("", (x, foot), (x, above), arrowprops=ARROW | {"color": colour})


def _below(
    axes: Axes,
    document: Mapping[str, Any],
    words: WordPlaces,
    base: float,
    colours: Mapping[str, str],
) -> None:
    """The words, their parts of speech, and the bars of mentions and senses."""
    senses = {sense["token"]: sense["sense"] for sense in document["senses"]}
    for i in range(words.first, words.last):
        x = words.middles[i - words.first]
        centred(axes, x, base, document["tokens"][i], fontsize=13, color=INK)
        centred(axes, x, base - 0.23, document["tags"][i], fontsize=9.5, color=GREY)
        if i in senses:
            centred(axes, x, base - 0.5, f"sense: {senses[i]}", fontsize=9.5, color=PURPLE)
    for mention in document["mentions"]:
        start, end = mention["start"], mention["end"]
        if not words.first <= start < words.last:
            continue
        left, right = words.middles[start - words.first], words.middles[end - 1 - words.first]
        half = [LETTER * len(document["tokens"][i]) / 2 for i in (start, end - 1)]
        colour = colours[mention["entity"]]
        axes.plot(
            [left - half[0], right + half[1]],
            [base - 0.4] * 2,
            color=colour,
            linewidth=4,
            solid_capstyle="butt",
        )
        name = mention["entity"].partition("/")[2]
        centred(axes, (left + right) / 2, base - 0.56, name, fontsize=9.5, color=colour)


PIXELS, BETWEEN, ARC_HEIGHT = 9.4, 20, 26  # of a letter, between words, of an arc
RELATIONS = {"governor": BLUE, "dependent": GREEN, "neither": ORANGE, "unparsed": BLUE}


@styled
def head_arcs(
    weights: Numbers, words: Sequence[str], governors: Sequence[int], *, title: str = ""
) -> Figure:
    """One head over one sentence: above in grey the parse, from each word to its governor; below
    where the head looks, from each word to the other one that gets its largest weight. Blue: its
    governor; green, dashed: a dependent of its own; orange, dotted: neither. Without any governor
    there is no parse, and all arcs are blue.

    weights: [W W], attention between words. governors: of each word the place of its governor, -1
    at the root."""
    matrix = checked_arcs(array(weights)[None, None], words, governors)[0, 0]
    middles, wide = word_places(words)
    looked = largest_other(matrix)
    top = (
        max((arc_height(middles, i, g) for i, g in enumerate(governors) if g >= 0), default=0)
        + 12.0
    )
    bottom = max(arc_height(middles, i, j) for i, j in enumerate(looked)) + 12.0
    high = top + bottom + 44
    whole = high + (22 if title else 0)
    figure = Figure(figsize=(wide / 100, whole / 100))
    axes = figure.add_axes((0, 0, 1, high / whole), xlim=(0, wide), ylim=(-bottom - 22, top + 22))
    axes.set_axis_off()
    for word, x in zip(words, middles, strict=True):
        centred(axes, x, 0, word, fontsize=13, color=INK)
    for i, governor in enumerate(governors):
        if governor >= 0:
            _arc(
                axes,
                middles[i],
                middles[governor],
                16,
                arc_height(middles, i, governor),
                GREY,
                "-",
                1.2,
            )
    dashes = {"dependent": (0, (4, 1.5)), "neither": (0, (1, 1.2))}
    for i, j in enumerate(looked):
        kind = relation(i, j, governors)
        thick = 1.2 + 2.4 * float(matrix[i, j])
        height = -arc_height(middles, i, j)
        dash = dashes.get(kind, "-")
        _arc(axes, middles[i], middles[j], -16, height, RELATIONS[kind], dash, thick)
    if title:
        figure.text(0.01, 0.995, title, ha="left", va="top", fontsize=13)
    return figure


def checked_arcs(stack: Any, words: Sequence[str], governors: Sequence[int]) -> Any:
    """The weights [L H W W] as they are, if there is one for each pair of words, and a governor for
    each.
    """
    count = len(words)
    if stack.shape[2:] != (count, count) or len(governors) != count:
        raise CourseError(
            f"Arcs need weights [.. {count} {count}] and {count} governors; got"
            f" {list(stack.shape)}."
        )
    return stack


def largest_other(matrix: Any) -> list[int]:
    """Of each word the other one that gets its largest weight."""
    others = np.where(np.eye(len(matrix), dtype=bool), -1.0, matrix)
    return [int(j) for j in others.argmax(axis=-1)]


def relation(word: int, looked: int, governors: Sequence[int]) -> str:
    """What the other word is to this one, a key of `RELATIONS`."""
    if max(governors) < 0:
        return "unparsed"
    if governors[word] == looked:
        return "governor"
    return "dependent" if governors[looked] == word else "neither"


def word_places(words: Sequence[str]) -> tuple[list[float], float]:
    """The middles of the words in pixels, and the width of the line."""
    middles, x = [], 8.0
    for word in words:
        wide = PIXELS * max(2, len(word)) + BETWEEN
        middles.append(x + wide / 2)
        x += wide
    return middles, x + 8


def arc_height(middles: Sequence[float], i: int, j: int) -> float:
    """Of the arc between two words, in pixels."""
    return float(ARC_HEIGHT * (abs(middles[i] - middles[j]) / 80) ** 0.6)


def _arc(
    axes: Any, x: float, to: float, foot: float, height: float, colour: str, dash: Any, thick: float
) -> None:
    """Half of an ellipse with an arrow at its end."""
    side = 4 if to > x else -4  # arcs to and from a word do not share a foot
    x, to = x + side, to - side
    turn = np.linspace(0, np.pi, 40)
    xs, ys = (x + to) / 2 - (to - x) / 2 * np.cos(turn), foot + height * np.sin(turn)
    axes.plot(xs, ys, color=colour, linestyle=dash, linewidth=thick, solid_capstyle="butt")
    head = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 0,
        "mutation_scale": 11,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", (to, foot - (2 if height > 0 else -2)), (xs[-4], ys[-4]), arrowprops=head)
