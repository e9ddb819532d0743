"""Models drawn: token boxes, BERT's sums and heads, GPT-1's inputs; blocks and
stacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    MONO,
    TINTS,
    Numbers,
    array,
    arrow,
    blue,
    canvas,
    centred,
    ink_on,
    styled,
)

# One unit of a drawing of tokens is the width of a character of DejaVu Sans Mono at 13 points.
CHARACTER = 13 * 0.602 / 72
LINE = 0.46

SPECIAL = {
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[PAD]",
    "[UNK]",
    "<unk>",
    "<|pad|>",
    "<|endoftext|>",
    "Start",
    "Delim",
    "Extract",
}

Token = str | tuple[str, str]


@styled
def tokens(
    rows: Sequence[Token] | Mapping[str, Sequence[Token]],
    *,
    values: Numbers | None = None,
    width: int = 84,
) -> Figure:
    """Token boxes in a line, wrapped; or several named lines below each other, in columns where
    equally long.

    Args:
        rows: tokens, or name -> tokens. A token is a string, or (string, tint) with a tint of
            `style.TINTS`. Special tokens are dark by themselves.
        values: one number in 0..1 for each token of a single line; deeper blue for larger, number
            below.
        width: characters a line.
    """
    named = dict(rows) if isinstance(rows, Mapping) else {"": rows}
    lines = [[named_tint(token) for token in line] for line in named.values()]
    columns = [max(len(text) for text, _ in column) for column in zip(*lines, strict=False)]
    if len({*map(len, lines)}) > 1:
        columns = []
    shades = array(values).reshape(-1) if values is not None else None
    margin = float(max(len(name) for name in named) + (2 if any(named) else 0))
    step, narrowest = (1.3, 1) if shades is None else (1.75, 3)
    boxes: list[tuple[float, float, float, str, str, str]] = []
    heads: list[tuple[float, str]] = []  # height and name of each line
    y = 0.0
    for name, line in zip(named, lines, strict=True):
        x = margin
        heads.append((y, name))
        for index, (text, tint) in enumerate(line):
            size = max(columns[index] if columns else len(text), narrowest) + 1.4
            if x > margin and x + size > margin + width:
                x = margin
                y -= step
            fill = TINTS[tint] if shades is None else blue(float(shades[index]))
            boxes.append((x, y, size, text, fill, "" if shades is None else f"{shades[index]:.2f}"))
            x += size + 0.4
        y -= step + 0.1
    figure, axes = _drawing(max(left + size for left, _, size, *_ in boxes), -y + 0.2)
    axes.set_ylim(y + step - 0.9, 0.75)
    for left, height, size, text, fill, share in boxes:
        _box(axes, left, height, text, fill, size)
        centred(axes, left + size / 2, height - 0.72, share, fontsize=10, color=GREY)
    for height, name in heads:
        axes.text(0, height, name, va="center", fontsize=13, color=INK)
    return figure


@styled
def bert_input(pieces: Sequence[str], segments: Sequence[int]) -> Figure:
    """BERT's input (Devlin et al. 2019, figure 2): each position is the sum of three vectors."""
    cells = [max(len(piece), 4) + 1.4 for piece in pieces]
    margin, gap = 11.0, 0.9
    lefts = [margin + sum(cells[:i]) + gap * i for i in range(len(cells))]
    figure, axes = _drawing(lefts[-1] + cells[-1], 6.3)
    axes.set_ylim(-5.5, 0.8)
    for height, name in (
        (-1.5, "token"),
        (-2.75, "+ segment"),
        (-4.0, "+ position"),
        (-5.1, "= input"),
    ):
        axes.text(0, height, name, va="center", fontsize=13, color=INK)
    for index, (left, cell, piece) in enumerate(zip(lefts, cells, pieces, strict=True)):
        segment = int(segments[index])
        _box(axes, left, 0, piece, TINTS["dark" if piece in SPECIAL else "plain"], cell)
        _box(axes, left, -1.5, piece, TINTS["yellow"], cell)
        _box(axes, left, -2.75, "AB"[segment], TINTS["green" if segment else "purple"], cell)
        _box(axes, left, -4.0, str(index), TINTS["blue"], cell)
        middle = left + cell / 2
        for height in (-2.125, -3.375):
            centred(axes, middle, height, "+", fontsize=13, color=GREY)
        arrow(axes, (middle, -4.5), (middle, -5.35), lw=1.4, flush=False)
    return figure


class Panel(NamedTuple):
    """One kind of task: the tokens of both segments, and what is read above which of them."""

    title: str
    first: Sequence[str]
    second: Sequence[str]
    above: Mapping[int, str]


TAGS = {1: "PER", 2: "O", 3: "LOC"}
PASSAGE = ["the", "poet", "fell", "[SEP]"]
PANELS = (
    Panel("one text: a class", ["[CLS]", "soup", "was", "fine", "[SEP]"], [], {0: "class"}),
    Panel(
        "two texts: a class",
        ["[CLS]", "it", "rained", "[SEP]"],
        ["it", "was", "dry", "[SEP]"],
        {0: "class"},
    ),
    Panel("tagging: a class a word", ["[CLS]", "ann", "left", "ash", "##ford", "[SEP]"], [], TAGS),
    Panel(
        "span: where the answer starts and ends",
        ["[CLS]", "who", "fell", "[SEP]"],
        PASSAGE,
        {4: "start", 5: "end"},
    ),
)


@styled
def bert_heads() -> Figure:
    """One body, four kinds of head (after Devlin et al. 2019, figure 4): what is read off which
    position.
    """
    widths = [[max(len(t), 5) + 1.4 for t in (*p.first, *p.second)] for p in PANELS]
    wide = max(sum(row) + 0.5 * len(row) for row in widths)
    figure, axes = _drawing(2 * wide + 5, 11.2)
    axes.set_ylim(-10.7, 0.9)
    for number, (panel, row) in enumerate(zip(PANELS, widths, strict=True)):
        _panel(axes, panel, row, (wide + 5) * (number % 2), -5.6 * (number // 2))
    return figure


def _panel(axes: Axes, panel: Panel, widths: Sequence[float], x: float, y: float) -> None:
    axes.text(x, y, panel.title, va="center", fontsize=13, weight="bold", color=INK)
    right = x + sum(widths) + 0.5 * (len(widths) - 1)
    _box(axes, x, y - 2.8, "BERT", TINTS["yellow"], right - x)
    left = x
    for index, (token, width) in enumerate(zip((*panel.first, *panel.second), widths, strict=True)):
        tint = "purple" if index < len(panel.first) else "green"
        if token in SPECIAL:
            tint = "dark"
        _box(axes, left, y - 4.3, token, TINTS[tint], width)
        arrow(axes, (left + width / 2, y - 3.85), (left + width / 2, y - 3.25), lw=1.3, flush=False)
        if index in panel.above:
            arrow(
                axes,
                (left + width / 2, y - 2.35),
                (left + width / 2, y - 1.75),
                lw=1.3,
                flush=False,
            )
            _box(axes, left, y - 1.3, panel.above[index], TINTS["orange"], width)
        left += width + 0.5


PREMISE: list[Token] = ["Start", ("premise", "blue"), "Delim", ("hypothesis", "green"), "Extract"]
ONE, TWO = ("text 1", "blue"), ("text 2", "green")
GPT1: dict[str, list[list[Token]]] = {
    "classification": [["Start", ("text", "blue"), "Extract"]],
    "entailment": [PREMISE],
    "similarity": [
        ["Start", ONE, "Delim", TWO, "Extract"],
        ["Start", TWO, "Delim", ONE, "Extract"],
    ],
    "choice": [
        ["Start", ("context", "blue"), "Delim", (f"answer {i}", "green"), "Extract"]
        for i in (1, 2, 3)
    ],
}
JOINS = {"similarity": "added, then linear", "choice": "softmax over the answers"}


@styled
def gpt1_inputs() -> Figure:
    """GPT-1's input transformations (Radford et al. 2018, figure 1): four kinds of task, one
    decoder.
    """
    examples = {
        task: [[named_tint(token) for token in line] for line in lines]
        for task, lines in GPT1.items()
    }
    every = [line for lines in examples.values() for line in lines]
    margin = 16.0
    width = max(sum(len(text) + 1.8 for text, _ in line) for line in every)
    depth = 1.35 * len(every) + 0.45 * len(examples)
    figure, axes = _drawing(margin + width + 33, depth)
    axes.set_ylim(-depth + 0.3, 0.9)
    y = 0.0
    column = margin + width + 2
    for task, lines in examples.items():
        middle = y - 1.35 * (len(lines) - 1) / 2
        axes.text(0, middle, task, va="center", fontsize=13, weight="bold", color=INK)
        for line in lines:
            x = margin
            for text, tint in line:
                _box(axes, x, y, text, TINTS[tint])
                x += len(text) + 1.8
            arrow(axes, (x - 0.1, y), (column, y), lw=1.3, flush=False)
            _box(axes, column, y, "decoder", TINTS["yellow"], 9.0)
            arrow(axes, (column + 9.1, y), (column + 11.6, middle), lw=1.3, flush=False)
            y -= 1.35
        axes.text(
            column + 12, middle, JOINS.get(task, "linear"), va="center", fontsize=12, color=INK
        )
        y -= 0.45
    return figure


def _drawing(width: float, lines: float) -> tuple[Figure, Axes]:
    """Axes without a frame in units of characters by lines of boxes."""
    figure, axes = canvas(max(2.0, (width + 1.5) * CHARACTER), max(0.7, lines * LINE + 0.2))
    axes.set_xlim(-0.5, width + 1)
    axes.set_axis_off()
    return figure, axes


def _box(
    axes: Axes, left: float, y: float, text: str, fill: str, width: float | None = None
) -> None:
    width = len(text) + 1.4 if width is None else width
    axes.add_patch(
        Rectangle((left, y - 0.44), width, 0.88, facecolor=fill, edgecolor="#9aa0a6", linewidth=1)
    )
    look = {"family": MONO, "color": ink_on(fill)}
    centred(axes, left + width / 2, y - 0.02, text.replace("$", r"\$"), fontsize=13, **look)


def named_tint(token: Token) -> tuple[str, str]:
    """A token with its tint: the given one, else dark for a special token and plain for others."""
    if isinstance(token, tuple):
        return token
    return token, "dark" if token in SPECIAL else "plain"


PARTS = {
    "attention": "blue",
    "cross-attention": "green",
    "feed-forward": "orange",
    "norm": "yellow",
}
WIDE, STEP = 4.1, 1.25  # of a stack's parts


@styled
def block() -> Figure:
    """One block twice, left to right: norm after each sum (2017) and norm inside each branch
    (GPT-2).
    """
    figure, axes = canvas(9.0, 3.9)
    axes.set(xlim=(-0.1, 17.4), ylim=(-0.6, 7.4))
    axes.set_axis_off()
    for y, name, after in (
        (4.4, "post-norm: x ← norm(x + f(x))", True),
        (0.0, "pre-norm: x ← x + f(norm(x))", False),
    ):
        axes.text(0, y + 2.2, name, fontsize=14, weight="bold", va="center")
        axes.text(0.1, y, "x", fontsize=15, va="center", style="italic")
        x = 0.8
        for part in ("attention", "feed-forward"):
            x = _branch(axes, x, y, [part] if after else ["norm", part])
            if after:
                _line(axes, (x, y), (x + 0.7, y), arrow=True)
                _block(axes, x + 0.7 + 0.85, y, 1.7, "norm")
                x = x + 0.7 + 1.7
        _line(axes, (x, y), (17.3, y), arrow=True)
    return figure


@styled
def stacks() -> Figure:
    """Encoder, decoder, encoder-decoder side by side, bottom to top, as in Vaswani et al. 2017,
    figure 1.
    """
    figure, axes = canvas(9.4, 4.3)
    axes.set(xlim=(0, 20.4), ylim=(-1.75, 6.7))
    axes.set_axis_off()
    encoder, decoder = ["attention", "feed-forward"], ["causal attention", "feed-forward"]
    _stack(axes, 2.3, encoder, "the cat sat", "a vector for each word")
    _stack(axes, 7.4, decoder, "the cat sat", "the next word")
    top = _stack(axes, 13.0, encoder, "die Katze saß", "")
    _stack(
        axes,
        17.9,
        ["causal attention", "cross-attention", "feed-forward"],
        "the cat sat",
        "the next word",
    )
    cross = 0.75 + STEP
    axes.plot(
        [13.0, 13.0, 15.45, 15.45],
        [top, top + 0.6, top + 0.6, cross],
        color=GREY,
        linewidth=1.8,
        zorder=2,
    )
    _line(axes, (15.45, cross), (17.9 - WIDE / 2, cross), arrow=True)
    for middle, name in ((2.3, "encoder"), (7.4, "decoder"), (15.45, "encoder–decoder")):
        axes.text(middle, 6.3, name, fontsize=15, weight="bold", ha="center")
    return figure


def _branch(axes: Axes, x: float, y: float, steps: list[str]) -> float:
    """From x the stream goes straight on; a branch goes through the steps and is added again.
    Returns the end.
    """
    widths = {"norm": 1.7, "attention": 3.0, "feed-forward": 3.4}
    reach = sum(widths[s] + 0.7 for s in steps) + 1.0
    up = y + 1.0
    _line(axes, (x, y), (x + reach, y))
    _line(axes, (x + 0.4, y), (x + 0.4, up))
    place = x + 0.4
    for step in steps:
        _line(axes, (place, up), (place + 0.7, up), arrow=True)
        place += 0.7
        _block(axes, place + widths[step] / 2, up, widths[step], step)
        place += widths[step]
    _line(axes, (place, up), (x + reach, up))
    _line(axes, (x + reach, up), (x + reach, y + 0.34), arrow=True)
    centred(axes, x + reach, y - 0.04, "+", fontsize=15, zorder=4)
    axes.scatter(
        [x + reach], [y], s=330, facecolor="white", edgecolor=GREY, linewidth=1.6, zorder=3
    )
    return x + reach + 0.3


def _stack(axes: Axes, x: float, parts: list[str], words: str, gives: str) -> float:
    """One stack with the centre x: words, embedding, a frame of parts repeated L times, what it
    gives; its top.
    """
    centred(axes, x, -1.5, words, fontsize=13, style="italic")
    _line(axes, (x, -1.25), (x, -1.0), arrow=True)
    _block(axes, x, -0.55, WIDE, "word + position", tint="plain")
    for number, part in enumerate(parts):
        y = 0.75 + STEP * number
        _line(axes, (x, y - STEP + 0.45 if number else -0.1), (x, y - 0.45), arrow=True)
        _block(axes, x, y, WIDE, part)
    top = 0.75 + STEP * (len(parts) - 1) + 0.65
    corner = (x - WIDE / 2 - 0.2, 0.1)
    dashed: dict[str, Any] = {
        "fill": False,
        "edgecolor": BLUE,
        "linewidth": 1.4,
        "linestyle": (0, (5, 3)),
    }
    axes.add_patch(Rectangle(corner, WIDE + 0.4, top - 0.1, **dashed))
    axes.text(
        x - WIDE / 2 - 0.15, top + 0.3, "× L", fontsize=13, ha="left", va="center", color=GREY
    )
    if gives:
        _line(axes, (x, top), (x, top + 0.75), arrow=True)
        centred(axes, x, top + 1.1, gives, fontsize=13)
    return top


def _block(axes: Axes, x: float, y: float, width: float, text: str, tint: str = "") -> None:
    fill = TINTS[tint or PARTS.get(text, "blue")]
    look: dict[str, Any] = {
        "boxstyle": "round,pad=0,rounding_size=0.12",
        "facecolor": fill,
        "edgecolor": "#6b7176",
    }
    axes.add_patch(
        FancyBboxPatch((x - width / 2, y - 0.45), width, 0.9, linewidth=1.2, zorder=3, **look)
    )
    centred(axes, x, y - 0.02, text, fontsize=13, color=INK, zorder=4)


def _line(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], arrow: bool = False
) -> None:
    look = {
        "arrowstyle": "-|>" if arrow else "-",
        "color": GREY,
        "lw": 1.8,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", end, start, arrowprops=look, zorder=2)
