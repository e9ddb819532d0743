"""What a document of the world carries: dependency arcs, parts of speech, who is meant by which words, senses."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from course_lib.errors import CourseError
from course_lib.view.style import GREY, INK, PALETTE, PURPLE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("tokens", "tags", "heads", "deprels", "mentions", "senses")
LETTER = 0.125  # inches, a letter of 13 points, on average
SMALL = 0.093  # a letter of 10 points
GAP = 0.16
LEVEL = 0.3  # height of an arc over those inside it
ARROW: dict[str, Any] = {"arrowstyle": "-|>", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
ROWS = 0.95  # below the words: parts of speech, bars, names


class Words(NamedTuple):
    """One sentence: its tokens' numbers in the document, and the middles of its words in inches."""

    first: int
    last: int
    middles: list[float]
    width: float


@styled
def annotations(document: Mapping[str, Any], first: int = 0, count: int = 2) -> "Figure":
    """The gold annotations of some sentences: arcs from head to dependent with their relations, parts of speech, and
    bars under the words that name or stand for something, one colour and one name for all mentions of an entity.

    Args:
        document: a row with the columns of `World.document`: tokens, tags, heads, deprels, mentions, senses.
        first: the number of the first sentence, from 0.
        count: how many sentences, one below the other.

    Raises:
        CourseError: a column is missing, or the document has no such sentence.
    """
    missing = [name for name in COLUMNS if name not in document]
    if missing:
        raise CourseError(f"annotations needs the column {missing[0]!r}; give it a document of the world.")
    ends = [i + 1 for i, token in enumerate(document["tokens"]) if token in (".", "?", "!")]
    if not 0 <= first < first + count <= len(ends):
        raise CourseError(f"The document has {len(ends)} sentences; first={first}, count={count} asks for others.")
    sentences = [_measure(document, start, end) for start, end in zip([0, *ends], ends, strict=False)]
    chosen = sentences[first : first + count]
    levels = [_levels(document["heads"], words) for words in chosen]
    heights = [LEVEL * (max(level.values(), default=0) + 1) + 0.35 + ROWS for level in levels]
    figure, axes = _paper(max(words.width for words in chosen), sum(heights))
    names = list(dict.fromkeys(mention["entity"] for mention in document["mentions"]))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    top = sum(heights)
    for words, level, height in zip(chosen, levels, heights, strict=True):
        base = top - height + ROWS
        _arcs(axes, document, words, level, base)
        _below(axes, document, words, base, colours)
        top -= height
    return figure


def _paper(width: float, height: float) -> "tuple[Figure, Axes]":
    """A figure whose axes measure inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    return figure, axes


def _measure(document: Mapping[str, Any], first: int, last: int) -> Words:
    """Where the words of a sentence stand, so that neither they nor what is written at them touch."""
    widths = [
        max(LETTER * len(document["tokens"][i]), SMALL * len(document["tags"][i]), SMALL * len(document["deprels"][i]))
        + GAP
        for i in range(first, last)
    ]
    middles, x = [], 0.15
    for width in widths:
        middles.append(x + width / 2)
        x += width
    return Words(first, last, middles, x + 0.15)


def _levels(heads: Sequence[int], words: Words) -> dict[int, int]:
    """Of each dependent how high its arc is: one more than the highest arc inside it."""
    arcs = sorted((i for i in range(words.first, words.last) if heads[i] >= 0), key=lambda i: abs(heads[i] - i))
    levels: dict[int, int] = {}
    for i in arcs:
        left, right = sorted((i, heads[i]))
        inside = [levels[k] for k in levels if left <= min(k, heads[k]) and max(k, heads[k]) <= right]
        levels[i] = 1 + max(inside, default=0)
    return levels


def _arcs(axes: "Axes", document: Mapping[str, Any], words: Words, levels: dict[int, int], base: float) -> None:
    """Arcs from each head to its dependents; the root hangs from above."""
    foot = base + 0.17
    for i in range(words.first, words.last):
        x, head = words.middles[i - words.first], document["heads"][i]
        relation = document["deprels"][i]
        if head < 0:
            top = foot + LEVEL * (max(levels.values(), default=0) + 0.6)
            start = (x, top)
            axes.text(x + 0.05, top - 0.02, relation, ha="left", va="top", fontsize=9.5, color=INK, weight="bold")
        else:
            side = 1 if head < i else -1
            x -= 0.045 * side  # arcs to and from a word do not share a foot
            start = (words.middles[head - words.first] + 0.045 * side, foot)
            top = foot + LEVEL * levels[i]
            bend = min(0.18, abs(x - start[0]) / 2)
            lead = 1 if x > start[0] else -1
            path = [(start[0], foot), (start[0], top - 0.1), (start[0] + lead * bend, top), (x - lead * bend, top)]
            path += [(x, top - 0.1), (x, foot + 0.05)]
            axes.plot(*zip(*path, strict=True), color=GREY, linewidth=1.2, solid_joinstyle="round")
            middle = (start[0] + x) / 2
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            axes.text(middle, top, relation, ha="center", va="center", fontsize=9.5, color=INK, bbox=box)
        axes.annotate(
            "",
            (x, foot),
            (x, start[1] if head < 0 else foot + 0.1),
            arrowprops=ARROW | {"color": INK if head < 0 else GREY},
        )


def _below(axes: "Axes", document: Mapping[str, Any], words: Words, base: float, colours: Mapping[str, str]) -> None:
    """The words, their parts of speech, and the bars of mentions and senses."""
    senses = {sense["token"]: sense["sense"] for sense in document["senses"]}
    for i in range(words.first, words.last):
        x = words.middles[i - words.first]
        axes.text(x, base, document["tokens"][i], ha="center", va="center", fontsize=13, color=INK)
        axes.text(x, base - 0.23, document["tags"][i], ha="center", va="center", fontsize=9.5, color=GREY)
        if i in senses:
            axes.text(x, base - 0.5, f"sense: {senses[i]}", ha="center", va="center", fontsize=9.5, color=PURPLE)
    for mention in document["mentions"]:
        start, end = mention["start"], mention["end"]
        if not words.first <= start < words.last:
            continue
        left, right = words.middles[start - words.first], words.middles[end - 1 - words.first]
        half = [LETTER * len(document["tokens"][i]) / 2 for i in (start, end - 1)]
        colour = colours[mention["entity"]]
        axes.plot([left - half[0], right + half[1]], [base - 0.4] * 2, color=colour, linewidth=4, solid_capstyle="butt")
        name = mention["entity"].partition("/")[2]
        axes.text((left + right) / 2, base - 0.56, name, ha="center", va="center", fontsize=9.5, color=colour)
