"""A language model at work: what it expects along a sentence, what a continuation scores, what a
sampler leaves of a distribution, and the cache of keys and values as it fills.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

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
    blue,
    canvas,
    centred,
    ink_on,
    panels,
    styled,
)

MONO = "DejaVu Sans Mono"
EDGE = "#9aa0a6"
_Values = NDArray[np.float64]


@styled
def expectations(
    words: Sequence[str], ids: Numbers, probs: Numbers, *, rows: int = 4, most: int = 12
) -> Figure:
    """What a model expects after each token of a text: a column of the likeliest next tokens.

    The token that really comes next has a thick green frame, where it is among them.

    Args:
        words: the tokens of the vocabulary.
        ids: of the text, [T].
        probs: the distribution over the next token after each of them, [T V].
        rows: how many of the likeliest are shown.
        most: how many tokens of the text are shown.
    """
    text = [int(i) for i in array(ids).reshape(-1)][: most + 1]
    shown = text[:most]
    figure, axes = canvas(1.04 * len(shown) + 0.5, 0.62 * (rows + 1.6) + 0.3)
    axes.set(xlim=(-0.55, len(shown) - 0.45), ylim=(-rows - 0.6, 1.0))
    axes.set_axis_off()
    for place, (token, row) in enumerate(zip(shown, array(probs), strict=False)):
        _cell(axes, place, 0.45, _visible(words[token]), TINTS["orange"])
        comes = text[place + 1] if place + 1 < len(text) else None
        arrow(axes, (place, 0.08), (place, -0.45), lw=1.4)
        for rank, best in enumerate(np.argsort(-row, kind="stable")[:rows]):
            y = -0.85 - rank
            share = float(row[best])
            _cell(axes, place, y, _visible(words[best]), blue(0.85 * share), f"{share:.0%}")
            if best == comes:
                axes.add_patch(_frame(place, y, GREEN))
    return figure


@styled
def continuation(tokens: Sequence[str], start: int, probs: Sequence[float]) -> Figure:
    """A text whose end is scored: each scored token is predicted by the token before it.

    Args:
        tokens: the prompt and the continuation.
        start: the index of the continuation's first token.
        probs: the probability of each token of the continuation, in order.
    """
    figure, axes = canvas(1.24 * len(tokens) + 0.4, 2.5)
    axes.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(-1.6, 1.35))
    axes.set_axis_off()
    for place, token in enumerate(tokens):
        scored = place >= start
        _cell(axes, place, 0.0, _visible(token), TINTS["orange" if scored else "plain"])
        if scored:
            curve: dict[str, Any] = {
                "arrowstyle": "-|>",
                "color": BLUE,
                "lw": 2.0,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            curve["connectionstyle"] = "arc3,rad=-0.5"
            axes.annotate("", (place, 0.4), (place - 1, 0.4), arrowprops=curve)
            share = probs[place - start]
            centred(axes, place, -0.75, f"p = {share:.2f}", fontsize=14, color=INK)
    for first, last, says in ((0, start - 1, "prompt"), (start, len(tokens) - 1, "continuation")):
        axes.plot([first - 0.42, last + 0.42], [-1.12, -1.12], color=GREY, linewidth=1.6)
        centred(axes, (first + last) / 2, -1.38, says, fontsize=14, color=GREY)
    return figure


@styled
def sampling(
    words: Sequence[str],
    before: Numbers,
    after: Mapping[str, Numbers],
    *,
    shown: int = 10,
    text: str = "",
) -> Figure:
    """The model's distribution over the next token, and what samplers make of it.

    A hollow bar is the model's own probability, a filled one the probability with which the token
    is drawn. The last row holds all tokens that have no row of their own.

    Args:
        words: the tokens of the vocabulary.
        before: the model's probabilities, [V].
        after: name of a sampler -> its probabilities, [V].
        shown: how many of the likeliest tokens have a row.
        text: something to read below, such as what was drawn.
    """
    own = array(before).reshape(-1)
    order = np.argsort(-own, kind="stable")[:shown]
    labels = [_visible(words[i]) for i in order] + [f"{len(own) - len(order):,} others"]
    lines = textwrap.wrap(text, 62 + 44 * (len(after) - 1))
    below = 0.1 + 0.3 * len(lines)
    figure, axes = panels(
        max(7.0, 2.9 * len(after) + 1.4), 0.36 * (shown + 3) + below, 1, len(after), sharey=True
    )
    drawn = [array(probs).reshape(-1) for probs in after.values()]
    right = 1.3 * max(_rows(probs, order).max() for probs in [own, *drawn])
    for place, name, probs in zip(axes, after, drawn, strict=True):
        rows, heights = _rows(probs, order), np.arange(len(order) + 1)
        place.barh(heights, _rows(own, order), 0.8, facecolor="none", edgecolor=GREY, linewidth=1.3)
        place.barh(heights, rows, 0.56, color=BLUE)
        for height, share in enumerate(rows):
            says = "cut" if share == 0 else f"{share:.0%}" if share >= 0.005 else "<1%"
            ends = max(share, _rows(own, order)[height])
            look: dict[str, Any] = {
                "color": VERMILION if share == 0 else INK,
                "fontsize": 12,
                "va": "center",
            }
            place.text(ends + 0.015 * right, height, says, **look)
        place.set(ylim=(len(order) + 0.6, -0.6), xlim=(0, right), xticks=[])
        kept = int((probs > 0).sum())
        place.set_title(f"{name}\n{kept:,} of {len(probs):,} tokens kept", fontsize=13)
        place.spines[["bottom", "right", "top"]].set_visible(False)
    axes[0].set_yticks(range(len(labels)), labels, family=MONO, fontsize=12)
    if lines:
        axes[0].figure.supxlabel("\n".join(lines), x=0.02, ha="left", fontsize=14, color=INK)
    return figure


@styled
def cache_steps(tokens: Sequence[str], keys: Numbers) -> Figure:
    """The keys that each step of writing computes, without a cache and with one.

    A row is a step: it reads all tokens so far. Each token's key is drawn as one small square a
    number, blue below 0 and red above. An orange frame: computed in this step. A grey one: taken
    from the cache.

    Args:
        tokens: T of them.
        keys: the key of each token, [T D].
    """
    values = array(keys)
    scale = max(1e-9, float(np.abs(values).max()))
    figure, axes = panels(2 * (0.98 * len(tokens) + 1.4), 0.62 * (len(tokens) + 2.2), 1, 2)
    for place, is_cached in zip(axes, (False, True), strict=True):
        made = len(tokens) if is_cached else len(tokens) * (len(tokens) + 1) // 2
        place.set_title(f"{'with' if is_cached else 'without'} a cache: {made} keys computed")
        place.set(xlim=(-1.75, len(tokens) - 0.4), ylim=(len(tokens) - 0.3, -1.1))
        place.set_axis_off()
        for column, token in enumerate(tokens):
            centred(place, column, -0.75, _visible(token), fontsize=12, family=MONO, color=INK)
        for step in range(len(tokens)):
            place.text(-0.7, step, f"step {step + 1}", ha="right", va="center", fontsize=12)
            for column in range(step + 1):
                _key(place, column, step, values[column] / scale)
                computed = not is_cached or column == step
                colour, width = (VERMILION, 3.2) if computed else (EDGE, 1.0)
                place.add_patch(_outline(column, step, colour, width))
    return figure


def _rows(probs: _Values, order: NDArray[np.intp]) -> _Values:
    """The probabilities in this order, and the sum of all others."""
    chosen = probs[order]
    return np.append(chosen, max(0.0, float(probs.sum() - chosen.sum())))


def _key(axes: Axes, x: float, y: float, numbers: _Values) -> None:
    wide = 0.84 / len(numbers)
    for i, value in enumerate(numbers):
        depth = 0.15 + 0.85 * abs(float(value))
        fill = (0.0, 0.45, 0.7, depth) if value < 0 else (0.77, 0.31, 0.0, depth)
        axes.add_patch(Rectangle((x - 0.42 + i * wide, y - 0.34), wide, 0.68, facecolor=fill))


def _outline(x: float, y: float, colour: str, width: float) -> Rectangle:
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "linewidth": width}
    return Rectangle((x - 0.42, y - 0.34), 0.84, 0.68, **look)


def _cell(axes: Axes, x: float, y: float, text: str, fill: str, below: str = "") -> None:
    """A box with a token, and a smaller word under it."""
    axes.add_patch(Rectangle((x - 0.46, y - 0.4), 0.92, 0.8, facecolor=fill, edgecolor=EDGE))
    colour = ink_on(fill)
    size = 13 if len(text) <= 8 else 10
    lift = 0.13 if below else 0.0
    centred(axes, x, y + lift, text, fontsize=size, family=MONO, color=colour)
    if below:
        centred(axes, x, y - 0.2, below, fontsize=11, color=colour)


def _frame(x: float, y: float, colour: str) -> Rectangle:
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "linewidth": 4}
    return Rectangle((x - 0.46, y - 0.4), 0.92, 0.8, **look)


def _visible(token: str) -> str:
    """A token as one can read it: no spaces around it, its line breaks as signs."""
    shown = token.replace("\n", "↵")
    return (shown.strip() or "␣").replace("$", r"\$")
