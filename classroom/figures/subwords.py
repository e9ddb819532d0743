"""How tokenizers cut text: coloured tokens, the tree of merges of a word, the lattice of all its
splits.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.display import Html
from classroom.figures.drawings import named_tint
from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    MONO,
    TINTS,
    canvas,
    rounded_box,
    styled,
)
from classroom.figures.tables import FONT, boxes
from classroom.templates import escape

_Node = tuple[float, float, str, int | None]
CYCLE = ("blue", "orange", "green", "purple", "yellow")  # tints of neighbouring tokens


def coloured(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Each token with a tint, so that no two neighbours have the same; special tokens are dark."""
    tinted = []
    for i, token in enumerate(tokens):
        _, tint = named_tint(token)
        tinted.append((token, CYCLE[i % len(CYCLE)] if tint == "plain" else tint))
    return tinted


def cuts(rows: Mapping[str, Sequence[str]]) -> Html:
    """Texts cut into coloured tokens, with the number of tokens of each.

    Args:
        rows: a name (of a tokenizer, or the text itself) -> tokens.
    """
    html, text = [], []
    for name, tokens in rows.items():
        count = f"{len(tokens)} token" + ("s" if len(tokens) != 1 else "")
        head = f'<div style="{FONT};margin-top:8px"><b>{escape(name)}</b>: {count}</div>'
        html.append(head + boxes(coloured(tokens)))
        text.append(f"{name}: {count}\n  {' | '.join(tokens)}")
    return Html("".join(html), "\n".join(text))


@styled
def merge_tree(word: str, merges: Mapping[tuple[str, str], int]) -> Figure:
    """How the merges of byte-pair encoding build the tokens of a word from its letters.

    Letters stand at the bottom. Each joined symbol stands above its two halves, with the number of
    its merge, counted from 1. The tokens, on which no merge can build, are blue.

    Args:
        word: its letters are the first symbols.
        merges: pair -> its place in the order of learning, from 0.
    """
    # a node: its middle, its height, its symbol, the number of its merge or None for a letter
    line: list[_Node] = [(float(x), 0.0, letter, None) for x, letter in enumerate(word)]
    nodes = list(line)
    edges: list[tuple[float, float, float, float]] = []
    while known := [p for a, b in pairwise(line) if (p := (a[2], b[2])) in merges]:
        pair = min(known, key=lambda known_pair: merges[known_pair])
        i = 0
        joined: list[_Node] = []
        while i < len(line):
            here = tuple(node[2] for node in line[i : i + 2]) == pair
            if here:
                left, right = line[i], line[i + 1]
                height = max(left[1], right[1]) + 1.0
                middle = (left[0] + right[0]) / 2
                new = (middle, height, "".join(pair), merges[pair] + 1)
                edges += [(middle, height, half[0], half[1]) for half in (left, right)]
                nodes.append(new)
                joined.append(new)
            else:
                joined.append(line[i])
            i += 2 if here else 1
        line = joined
    highest = max(node[1] for node in nodes)
    figure, axes = canvas(max(7.0, 1.15 * len(word) + 1), 1.6 + 0.95 * highest)
    for x, y, x_below, y_below in edges:
        axes.plot([x, x_below], [y - 0.24, y_below + 0.24], color=GREY, linewidth=1.6, zorder=1)
    for x, y, symbol, number in nodes:
        is_token = (x, y, symbol, number) in line
        _box(axes, x, y, symbol, "blue" if is_token else "plain")
        if number is not None:
            side = x + 0.09 * len(symbol) + 0.3
            axes.text(side, y, f"{number:,}", fontsize=11, color=GREY, va="center")
    axes.set(xlim=(-0.8, len(word) - 0.2), ylim=(-0.5, highest + 0.5))
    axes.set_axis_off()
    return figure


@styled
def lattice(word: str, log_p: Mapping[str, float], best: Sequence[str]) -> Figure:
    """Every way to write a word with the tokens of a unigram vocabulary.

    The dots are the places between letters. Each token that fits is an arc from where it begins to
    where it ends, with its log-probability. A path from the first dot to the last is a split; the
    given one is thick and blue.

    Args:
        word: of at most a dozen letters, or the picture is crowded.
        log_p: token -> log-probability; larger is more probable.
        best: the tokens of the split to show.
    """
    ends = [0]
    for token in best:
        ends.append(ends[-1] + len(token))
    chosen = set(pairwise(ends))
    arcs = [
        (start, end)
        for start in range(len(word))
        for end in range(start + 1, len(word) + 1)
        if word[start:end] in log_p
    ]
    tallest = max(end - start for start, end in arcs)
    figure, axes = canvas(min(13.0, 1.6 * len(word) + 1.0), 1.5 + 0.85 * tallest)
    for start, end in arcs:
        is_best = (start, end) in chosen
        height = 0.85 * (end - start) - 0.25
        # a smooth arc: a cubic curve from dot to dot
        steps = [i / 40 for i in range(41)]
        xs = [start + (end - start) * (3 * t**2 - 2 * t**3) for t in steps]
        ys = [height * (4 * t * (1 - t)) ** 0.6 for t in steps]
        axes.plot(
            xs,
            ys,
            color=BLUE if is_best else GREY,
            linewidth=4.0 if is_best else 1.3,
            alpha=1.0 if is_best else 0.7,
            zorder=3 if is_best else 1,
        )
        label = f"{word[start:end]}  {log_p[word[start:end]]:.1f}".replace("-", "\N{MINUS SIGN}")
        axes.text(
            (start + end) / 2,
            height,
            label,
            ha="center",
            va="center",
            fontsize=12,
            weight="bold" if is_best else "normal",
            color=BLUE if is_best else INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            zorder=4,
        )
    axes.plot(range(len(word) + 1), [0] * (len(word) + 1), "o", color=INK, markersize=9, zorder=5)
    for i, letter in enumerate(word):
        _box(axes, i + 0.5, -0.5, letter, "plain")
    axes.set(xlim=(-0.3, len(word) + 0.3), ylim=(-0.95, 0.85 * tallest + 0.1))
    axes.set_axis_off()
    return figure


def _box(axes: Axes, x: float, y: float, text: str, tint: str) -> None:
    """A symbol in a box; blue ones have a thicker line."""
    edge, line = (BLUE, 1.8) if tint == "blue" else (GREY, 1.0)
    size = 0.18 * len(text) + 0.34, 0.48
    rounded_box(
        axes, (x, y), size, text, fill=TINTS[tint], fontsize=14, family=MONO, edge=edge, line=line
    )
