"""A Transformer that translates: which words belong together, the whole model with its shapes, its
three attentions, and what flows through its residual stream.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    PALE,
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
    token_box,
    token_width,
)
from course_lib.analysis import capture
from course_lib.errors import CourseError

EDGE = "#9aa0a6"
FAINT = 0.12  # weights below are not drawn


@styled
def alignment(weights: Numbers, source: Sequence[str], target: Sequence[str]) -> Figure:
    """A translation below its source, with a line from each target token to where it looks.

    Args:
        weights: cross-attention [U T]. Each row's largest weight is drawn in blue.
        source: T tokens, in a row on top.
        target: U tokens, in a row below.

    Raises:
        CourseError: the weights do not fit the tokens.
    """
    matrix = array(weights)
    if matrix.shape != (len(target), len(source)):
        raise CourseError(
            f"The weights have shape {list(matrix.shape)} but there are {len(target)} target and"
            f" {len(source)} source tokens."
        )
    wide = max(_row_width(source), _row_width(target))
    figure, axes = canvas(max(6.0, wide + 1.3), 4.2)
    tops, bottoms = _spread(source, wide), _spread(target, wide)
    for u, x in enumerate(bottoms):
        best = matrix[u].argmax()
        for t, above in enumerate(tops):
            share = float(matrix[u, t])
            if t == best:
                look: dict[str, Any] = {"color": BLUE, "lw": 1 + 9 * share, "zorder": 2}
            elif share >= FAINT:
                look = {"color": "#b9c0c6", "lw": 9 * share, "zorder": 1}
            else:
                continue
            axes.plot([above, x], [2.0, 0.4], solid_capstyle="butt", **look)
    for x, token in zip(tops, source, strict=True):
        token_box(axes, (x, 2.2), token, TINTS["green"])
    for x, token in zip(bottoms, target, strict=True):
        token_box(axes, (x, 0.2), token, TINTS["orange"])
    axes.text(-0.15, 2.2, "source", ha="right", va="center", fontsize=13, color=GREY)
    axes.text(-0.15, 0.2, "written", ha="right", va="center", fontsize=13, color=GREY)
    axes.set(xlim=(-1.0, wide + 0.1), ylim=(-0.15, 2.55))
    axes.set_axis_off()
    return figure


def _row_width(tokens: Sequence[str]) -> float:
    return sum(token_width(token) + 0.12 for token in tokens)


def _spread(tokens: Sequence[str], wide: float) -> list[float]:
    """The middles of boxes in a row, spread over a width."""
    gap = (wide - sum(map(token_width, tokens))) / max(1, len(tokens) - 1)
    middles = []
    left = 0.0
    for token in tokens:
        middles.append(left + token_width(token) / 2)
        left += token_width(token) + gap
    return middles


WIDE, HIGH, STEP = 4.2, 0.56, 0.98  # inches: a part of the model, from part to part


WEIGHTS = {
    "encoder weights": "encoder.blocks.0.attn.probs",
    "decoder weights": "decoder.blocks.0.attn.probs",
    "cross weights": "decoder.blocks.0.cross.probs",
}


@torch.no_grad()
def translator_tensors(
    model: nn.Module, ids: Int[Tensor, "B T"], written: Int[Tensor, "B U"]
) -> dict[str, Tensor]:
    """The tensors that `translator` names, caught while the model runs."""
    with capture(model, "encoder", "decoder", *WEIGHTS.values()) as seen:
        logits = model(ids, written)
    weights = {name: seen[part] for name, part in WEIGHTS.items()}
    vectors = {name: seen[name] for name in ("encoder", "decoder")}
    return weights | vectors | {"source": ids, "written": written, "logits": logits}


@styled
def translator(tensors: Mapping[str, Tensor], layers: int, said: Sequence[str]) -> Figure:
    """Encoder and decoder side by side, with the shape of every tensor beside its arrow.

    Args:
        tensors: those of `translator_tensors`.
        layers: how often each block is repeated.
        said: a source, what has been written of its translation, and the next token.
    """
    named = {name: f"[{' '.join(map(str, one.shape))}]" for name, one in tensors.items()}
    source, written, following = said
    figure, axes = canvas(11.6, 6.6)
    axes.set(xlim=(-0.2, 11.4), ylim=(-0.75, 6.1))
    axes.set_axis_off()
    left, right = 2.5, 8.4
    encoder = [
        ("1  attention: source to source", "encoder weights", "blue"),
        ("feed-forward", "", "orange"),
    ]
    decoder = [
        ("2  attention: written to written", "decoder weights", "blue"),
        ("3  cross-attention: written to source", "cross weights", "green"),
        ("feed-forward", "", "orange"),
    ]
    top = _stack(axes, left, encoder, named, (source, "source", "encoder"), f"encoder × {layers}")
    end = _stack(
        axes, right, decoder, named, (written, "written", "decoder"), f"decoder × {layers}"
    )
    cross = STEP * 2 + 0.35
    bend = (left + right) / 2
    axes.plot([left, left, bend, bend], [top, end, end, cross], color=GREY, lw=2.2, zorder=2)
    arrow(axes, (bend, cross), (right - WIDE / 2, cross), lw=2.2)
    axes.text(left + 0.12, end - 0.32, f"memory {named['encoder']}", fontsize=13, color=BLUE)
    arrow(axes, (right, end - 0.2), (right, end + 0.03))
    rounded_box(
        axes,
        (right, end + 0.28),
        (WIDE, 0.5),
        "a score for each token",
        fill=TINTS["purple"],
    )
    axes.text(right + 0.1, end + 0.6, f"logits {named['logits']}", fontsize=13, color=BLUE)
    arrow(axes, (right, end + 0.53), (right, end + 0.92))
    centred(axes, right, end + 1.06, following, fontsize=14, color=INK, weight="bold")
    return figure


def _stack(
    axes: Axes,
    x: float,
    parts: Sequence[tuple[str, str, str]],
    named: Mapping[str, str],
    names: tuple[str, str, str],
    title: str,
) -> float:
    """One stack from below: words, vectors, a frame of parts. Returns the height of its top."""
    words, ids, vectors = names
    centred(axes, x, -0.6, words, fontsize=13.5, color=INK, style="italic")
    arrow(axes, (x, -0.45), (x, -0.12))
    axes.text(x + 0.1, -0.33, f"ids {named[ids]}", fontsize=13, color=BLUE, va="center")
    rounded_box(axes, (x, 0.15), (WIDE, 0.5), "token vector + position", fill=TINTS["plain"])
    y = 0.4
    for number, (text, weights, tint) in enumerate(parts):
        middle = STEP * (number + 1) + 0.35
        arrow(axes, (x, y), (x, middle - HIGH / 2), lw=2)
        if number == 0:
            low = middle - HIGH / 2 - 0.14
            axes.text(x + 0.1, y + 0.14, named[vectors], fontsize=13, color=BLUE, va="center")
        rounded_box(axes, (x, middle), (WIDE, HIGH), text, fill=TINTS[tint])
        # the residual connection
        side, start, end = x + WIDE / 2 + 0.14, middle - HIGH / 2 - 0.07, middle + HIGH / 2 + 0.15
        axes.plot([x, side, side, x], [start, start, end, end], color=GREY, lw=1.6, zorder=2)
        axes.scatter([x], [end], s=110, facecolor="white", edgecolor=GREY, zorder=5)
        centred(axes, x, end - 0.01, "+", fontsize=12, color=INK, zorder=6)
        if weights:
            told = f"weights {named[weights]}"
            axes.text(
                x - WIDE / 2, middle + HIGH / 2 + 0.15, told, fontsize=11.5, color=BLUE, va="center"
            )
        y = end + 0.07
    look: dict[str, Any] = {"fill": False, "ec": BLUE, "lw": 1.4, "ls": (0, (5, 3))}
    axes.add_patch(
        Rectangle((x - WIDE / 2 - 0.12, low), WIDE + 0.42, y - low + 0.06, zorder=1, **look)
    )
    axes.text(
        x - WIDE / 2 - 0.12,
        y + 0.16,
        title,
        fontsize=14,
        color=BLUE,
        weight="bold",
        va="bottom",
    )
    axes.plot([x, x], [y, y + 0.55], color=GREY, lw=2, zorder=2)
    return y + 0.55


Attention = tuple[Numbers, Sequence[str], Sequence[str]]


@styled
def three_attentions(attentions: Mapping[str, Attention], focus: Sequence[int]) -> Figure:
    """Attentions side by side: lines from those who look to those they may look at, and the mask.

    Args:
        attentions: name -> (mask Bool[Tq Tk], the Tq tokens that look, the Tk tokens looked at).
        focus: for each of them the query whose lines are drawn in colour.

    Raises:
        CourseError: a mask does not fit its tokens.
    """
    figure, axes = panels(
        4.2 * len(attentions), 6.2, 2, len(attentions), gridspec_kw={"height_ratios": [3, 2.6]}
    )
    for column, (name, (mask, queries, keys)) in enumerate(attentions.items()):
        matrix = array(mask)
        if matrix.shape != (len(queries), len(keys)):
            raise CourseError(
                f"{name}: a mask {matrix.shape} for {len(queries)} queries and {len(keys)} keys."
            )
        _fan(axes[column], name, matrix, queries, keys, focus[column])
        _grid(axes[len(attentions) + column], matrix, queries, keys)
    return figure


def _fan(
    axes: Axes, name: str, mask: Any, queries: Sequence[str], keys: Sequence[str], focus: int
) -> None:
    most = max(len(queries), len(keys))
    ups = [(i + 0.5) * most / len(queries) for i in range(len(queries))]
    downs = [(i + 0.5) * most / len(keys) for i in range(len(keys))]
    for query, key in zip(*mask.nonzero(), strict=True):
        if query != focus:
            axes.plot([downs[key], ups[query]], [0.34, 1.66], color=PALE, lw=1.3, zorder=0)
    for key in mask[focus].nonzero()[0]:
        arrow(axes, (downs[key], 0.34), (ups[focus], 1.66), color=BLUE, lw=2.2)
    for i, (x, token) in enumerate(zip(ups, queries, strict=True)):
        fill = TINTS["orange"] if i == focus else TINTS["plain"]
        _cell(axes, x, 1.82, token, fill, most / len(queries))
    for i, (x, token) in enumerate(zip(downs, keys, strict=True)):
        fill = TINTS["blue"] if mask[focus, i] else TINTS["plain"]
        _cell(axes, x, 0.18, token, fill, most / len(keys))
    axes.set(xlim=(-0.05, most + 0.05), ylim=(-0.05, 2.05))
    axes.set_title(name, fontsize=14.5)
    axes.set_axis_off()


def _cell(axes: Axes, x: float, y: float, text: str, fill: str, wide: float) -> None:
    axes.add_patch(
        Rectangle((x - 0.46 * wide, y - 0.16), 0.92 * wide, 0.32, facecolor=fill, edgecolor=EDGE)
    )
    centred(axes, x, y, text, fontsize=11, color=INK)


def _grid(axes: Axes, mask: Any, queries: Sequence[str], keys: Sequence[str]) -> None:
    axes.pcolormesh(
        mask, cmap=ListedColormap([PALE, BLUE]), vmin=0, vmax=1, edgecolors="white", linewidth=2
    )
    axes.invert_yaxis()
    axes.set_xticks([i + 0.5 for i in range(len(keys))], list(keys), rotation=90, fontsize=11)
    axes.set_yticks([i + 0.5 for i in range(len(queries))], list(queries), fontsize=11)
    axes.set(aspect="equal")
    bare(axes)


@torch.no_grad()
def stream_parts(
    encoder: nn.Module, ids: Int[Tensor, "1 T"], place: int
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """One token's way through an encoder: the vector that enters the blocks, what each part adds to
    it ("attention 1", "feed-forward 1", ...), and the vector that leaves the last block.
    """
    with capture(encoder, "embed", "blocks.*", "blocks.*.attn", "blocks.*.ff") as seen:
        encoder(ids)
    at = {name: tensor[0, place] for name, tensor in seen.items()}
    count = sum(name.endswith(".ff") for name in at)
    added = {}
    for layer in range(count):
        added[f"attention {layer + 1}"] = at[f"blocks.{layer}.attn"]
        added[f"feed-forward {layer + 1}"] = at[f"blocks.{layer}.ff"]
    return at["embed"], added, at[f"blocks.{count - 1}"]


@styled
def residual_stream(
    start: Numbers, additions: Mapping[str, Numbers], *, token: str, shown: int = 24
) -> Figure:
    """One token's vector on its way through a stack: what stands on the road, and what is added.

    Args:
        start: the vector [D] that enters.
        additions: part -> the vector [D] that it adds, from first to last.
        token: whose vector it is.
        shown: how many of the D numbers are drawn, the first ones.
    """
    road = [array(start)]
    added = [array(vector) for vector in additions.values()]
    for vector in added:
        road.append(road[-1] + vector)
    scale = max(float(abs(vector[:shown]).max()) for vector in [*road, *added])
    figure, axes = canvas(11.6, 5.8)
    for place, vector in enumerate(road):
        _strip(axes, 2.0 * place, 2.3, vector[:shown], scale)
        if place:
            arrow(axes, (2.0 * place - 1.66, 3.4), (2.0 * place - 0.36, 3.4), color=INK, lw=3)
    for place, (name, vector) in enumerate(zip(additions, added, strict=True)):
        x = 2.0 * place + 1.0
        _strip(axes, x, -0.6, vector[:shown], scale)
        axes.plot([x - 0.45] * 2, [3.3, 2.0], color=GREY, lw=1.6)
        rounded_box(axes, (x - 0.1, 1.82), (1.75, 0.4), name, fill=_tint(name), fontsize=12)
        arrow(axes, (x + 0.45, 2.02), (x + 0.45, 3.2), color=VERMILION, lw=2)
        axes.scatter([x + 0.45], [3.4], s=230, facecolor="white", edgecolor=INK, zorder=5)
        centred(axes, x + 0.45, 3.38, "+", fontsize=15, color=INK, zorder=6)
        size = (vector**2).sum() ** 0.5
        centred(axes, x, -0.85, f"length {size:.0f}", fontsize=12, color=GREY)
    for place in (0, len(road) - 1):
        size = (road[place] ** 2).sum() ** 0.5
        centred(axes, 2.0 * place, 4.68, f"length {size:.0f}", fontsize=12, color=GREY)
    centred(axes, 0.0, 5.0, f"“{token}” enters", fontsize=13, color=INK)
    centred(axes, 2.0 * len(added), 5.0, "it leaves", fontsize=13, color=INK)
    axes.text(-0.9, 0.3, "what each\npart adds", fontsize=13, color=INK, va="center")
    axes.set(xlim=(-1.0, 2.0 * len(added) + 0.5), ylim=(-1.1, 5.25))
    axes.set_axis_off()
    return figure


def _tint(name: str) -> str:
    return TINTS["orange" if "feed" in name else "blue"]


def _strip(axes: Axes, x: float, low: float, numbers: Any, scale: float) -> None:
    """Numbers as a column of colours, violet below zero and orange above."""
    edges = [low + 2.2 * i / len(numbers) for i in range(len(numbers) + 1)]
    look: dict[str, Any] = {"cmap": "PuOr_r", "vmin": -scale, "vmax": scale}
    axes.pcolormesh([x - 0.3, x + 0.3], edges, numbers[:, None], **look)
    axes.add_patch(Rectangle((x - 0.3, low), 0.6, 2.2, fill=False, edgecolor=EDGE, lw=1))
