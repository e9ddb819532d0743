"""Searches for the next words as trees: all that could be said, and what beam search followed of
it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.figure import Figure

from classroom.figures.style import DASHES, GREY, INK, PALETTE, TINTS, canvas, centred, styled

_Words = tuple[str, ...]
BOX = {"facecolor": TINTS["plain"], "edgecolor": "#9aa0a6", "boxstyle": "round,pad=0.3"}
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}


@styled
def search_tree(
    table: Mapping[_Words, Mapping[str, float]],
    paths: Mapping[str, Sequence[str]] | None = None,
    *,
    root: str = "⟨start⟩",
    size: tuple[float, float] = (9.5, 5.0),
) -> Figure:
    """What may follow what, left to right, with the probability on each branch and the product at
    each end.

    Args:
        table: words so far -> (next word -> probability); () is the beginning.
        paths: name -> words, drawn bold in a colour of its own, its name at its end.
        root: what stands at the beginning.
    """
    leaves = _leaves(table)
    ends = {leaf: float(index) for index, leaf in enumerate(leaves)}
    depth = max(len(leaf) for leaf in leaves)
    figure, axes = canvas(*size)
    axes.set_axis_off()
    axes.set(xlim=(-0.25, depth + 1.0), ylim=(len(leaves) - 0.5, -0.6))
    chosen = {tuple(words): index for index, words in enumerate((paths or {}).values())}
    for node in sorted(
        {leaf[:i] for leaf in leaves for i in range(len(leaf) + 1)}, key=lambda n: (len(n), n)
    ):
        x, y = len(node), _height(node, ends)
        if node:
            parent = node[:-1]
            on = next((i for words, i in chosen.items() if words[: len(node)] == node), None)
            colour, thick = (GREY, 1.2) if on is None else (PALETTE[on], 3.4)
            up, dash = _height(parent, ends), DASHES[on or 0]
            axes.plot(
                [x - 1, x],
                [up, y],
                zorder=1,
                color=colour,
                linewidth=thick,
                linestyle=dash,
            )
            share = f"{table[parent][node[-1]]:.2f}"
            axes.text(
                x - 0.5,
                (up + y) / 2 - 0.13,
                share,
                ha="center",
                va="bottom",
                fontsize=12,
                bbox=WHITE,
            )
        centred(axes, x, y, node[-1] if node else root, fontsize=13, color=INK, zorder=3, bbox=BOX)
    for leaf, height in ends.items():
        names = [name for name, words in (paths or {}).items() if tuple(words) == leaf]
        colour = PALETTE[chosen[leaf]] if leaf in chosen else GREY
        note = f"{probability(table, leaf):.3f}" + "".join(f"   {name}" for name in names)
        weight = "bold" if names else None
        axes.text(
            len(leaf) + 0.3, height, note, va="center", fontsize=13, color=colour, weight=weight
        )
    return figure


def probability(table: Mapping[_Words, Mapping[str, float]], words: Sequence[str]) -> float:
    """The product of the probabilities along the words."""
    return math.prod(table[tuple(words[:i])][word] for i, word in enumerate(words))


def grow_tree(follow: Callable[[_Words], Mapping[str, float]], steps: int) -> dict[_Words, Any]:
    """The table of `search_tree`: what may follow the words so far, and what may follow that.

    Args:
        follow: words so far -> (next word -> probability).
        steps: how deep the tree is.
    """
    table: dict[_Words, Any] = {}
    level: list[_Words] = [()]
    for _ in range(steps):
        table |= {words: dict(follow(words)) for words in level}
        level = [(*words, word) for words in level for word in table[words]]
    return table


def two_ways(table: Mapping[_Words, Mapping[str, float]]) -> dict[str, _Words]:
    """The way that takes the likelier word each time, and the likeliest of all ways."""
    greedy: _Words = ()
    while greedy in table:
        follows = table[greedy]
        greedy = (*greedy, max(follows, key=lambda word: follows[word]))
    likeliest = max(_leaves(table), key=lambda words: probability(table, words))
    return {"greedy": greedy, "likeliest": likeliest}


def _leaves(table: Mapping[_Words, Mapping[str, float]], node: _Words = ()) -> list[_Words]:
    if node not in table:
        return [node] if node else []
    return [leaf for word in table[node] for leaf in _leaves(table, (*node, word))]


def _height(node: _Words, ends: Mapping[_Words, float]) -> float:
    below = [height for leaf, height in ends.items() if leaf[: len(node)] == node]
    return (min(below) + max(below)) / 2


FILL = {"kept": TINTS["blue"], "ended": TINTS["green"], "dropped": "#ffffff"}
ROW, CHARACTER, GAP, TALL = 34, 8.6, 46, 25  # pixels: a row, a letter, between columns, a box


@dataclass(frozen=True)
class Option:
    """One way to go on. parent: its place among the texts kept at the step before (0 at the first
    step). token: what is added. score: sum of the log probabilities. fate: whether it is followed,
    has ended, or is dropped."""

    parent: int
    token: str
    score: float
    fate: Literal["kept", "ended", "dropped"]


Way = tuple[int, int, float]  # parent, token id, score


def options(
    ways: Sequence[Way], kept: Sequence[Way], ended: Sequence[Way], name: Callable[[int], str]
) -> list[Option]:
    """One step of a beam search for `beam_tree`.

    Args:
        ways: all ways to go on that were looked at, best first.
        kept: those that are followed.
        ended: those that have ended.
        name: a token's id -> its text.
    """
    found = []
    for way in ways:
        fate: Literal["kept", "ended", "dropped"] = "dropped"
        if way in kept:
            fate = "kept"
        elif way in ended:
            fate = "ended"
        parent, token, score = way
        found.append(Option(parent, name(token), score, fate))
    return found


@dataclass(frozen=True)
class Hypothesis:
    """An option in its tree: where it hangs, and its line and box in pixels (x0, y0 to x1, y1; the
    box is `wide`).
    """

    option: Option
    above: "Hypothesis | None"
    x0: float
    y0: float
    x1: float
    y1: float
    wide: float

    @property
    def path(self) -> list["Hypothesis"]:
        """From the first step to here."""
        return [*(self.above.path if self.above else []), self]

    @property
    def text(self) -> str:
        """All its tokens."""
        return " ".join(node.option.token for node in self.path)


class BeamTree:
    """A search laid out: `columns` of hypotheses, a step each, best first; the `best` of them, by
    score / length as in `generate`; size in pixels."""

    def __init__(self, steps: Sequence[Sequence[Option]]) -> None:
        self.columns: list[list[Hypothesis]] = []
        self.rows = max(map(len, steps))
        kept: list[Hypothesis] = []
        x = 30.0
        for number, options in enumerate(steps, start=1):
            wide = CHARACTER * (max(len(option.token) for option in options) + 6) + 10
            column = []
            for row, option in enumerate(options):
                above = kept[option.parent] if number > 1 else None
                start = (above.x1 + above.wide, above.y1) if above else (8.0, self.middle)
                column.append(Hypothesis(option, above, *start, x, ROW * (row + 0.5), wide))
            kept = [node for node in column if node.option.fate == "kept"]
            self.columns.append(column)
            self.right = x + wide
            x += wide + GAP
        ended = []
        for step, column in enumerate(self.columns, start=1):
            ended += [(step, node) for node in column if node.option.fate == "ended"]
        last = [(len(steps), node) for node in kept or self.columns[-1]]
        self.best = max(ended or last, key=lambda pair: pair[1].option.score / pair[0])[1]

    @property
    def middle(self) -> float:
        """Half of the tree's height."""
        return ROW * ((self.rows - 1) / 2 + 0.5)
