"""Token boxes and what models make of them: BERT's three sums, GPT-1's four inputs, GELU as a gate."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.view.style import BLUE, GREY, INK, TINTS, VERMILION, Numbers, array, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One unit of a drawing is the width of a character of DejaVu Sans Mono at 13 points.
CHARACTER = 13 * 0.602 / 72
LINE = 0.46

SPECIAL = {"[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "<|pad|>", "<|endoftext|>", "Start", "Delim", "Extract"}

Token = str | tuple[str, str]


@styled
def tokens(
    rows: Sequence[Token] | Mapping[str, Sequence[Token]],
    *,
    values: Numbers | None = None,
    width: int = 84,
) -> "Figure":
    """Token boxes in a line, wrapped; or several named lines below each other, in columns where equally long.

    Args:
        rows: tokens, or name -> tokens. A token is a string, or (string, tint) with a tint of `style.TINTS`:
            plain, blue, orange, green, purple, yellow, dark. Special tokens are dark by themselves.
        values: one number in 0..1 for each token of a single line; deeper blue for larger, number below.
        width: characters a line.
    """
    named = dict(rows) if isinstance(rows, Mapping) else {"": rows}
    if values is not None and len(named) != 1:
        raise CourseError("tokens can shade one line only; give values with a single sequence of tokens.")
    shades = array(values).reshape(-1) if values is not None else None
    margin = max(len(name) for name in named) + (2 if any(named) else 0)
    boxes: list[tuple[float, float, float, str, str, str]] = []
    x, y = float(margin), 0.0
    heads: list[tuple[float, str]] = []
    step = 1.75 if shades is not None else 1.3
    lines = [[_named_tint(token) for token in line] for line in named.values()]
    columns = (
        [max(len(line[i][0]) for line in lines) for i in range(len(lines[0]))] if len({*map(len, lines)}) == 1 else None
    )
    for name, line in zip(named, lines, strict=True):
        heads.append((y, name))
        for index, (text, tint) in enumerate(line):
            size = max(columns[index] if columns else len(text), 3 if shades is not None else 1) + 1.4
            if x > margin and x + size > margin + width:
                x, y = float(margin), y - step
            fill = _blue(float(shades[index])) if shades is not None else _tint(tint)
            boxes.append((x, y, size, text, fill, f"{shades[index]:.2f}" if shades is not None else ""))
            x += size + 0.4
        x, y = float(margin), y - step - 0.1
    right = max(b[0] + b[2] for b in boxes) if boxes else 1.0
    figure, axes = _drawing(right, -y + 0.2)
    axes.set_ylim(y + step - 0.9, 0.75)
    for left, height, size, text, fill, note in boxes:
        _box(axes, left, height, text, fill, size)
        if note:
            axes.text(left + size / 2, height - 0.72, note, ha="center", va="center", fontsize=10, color=GREY)
    for height, name in heads:
        axes.text(0, height, name, va="center", fontsize=13, color=INK)
    return figure


@styled
def bert_input(pieces: Sequence[str], segments: Sequence[int]) -> "Figure":
    """BERT's input (Devlin et al. 2019, figure 2): each position is the sum of three vectors."""
    if len(pieces) != len(segments):
        raise CourseError(f"bert_input got {len(pieces)} tokens and {len(segments)} segments; it needs one for each.")
    cells = [max(len(piece), 4) + 1.4 for piece in pieces]
    margin, gap = 11.0, 0.9
    lefts = [margin + sum(cells[:i]) + gap * i for i in range(len(cells))]
    figure, axes = _drawing(lefts[-1] + cells[-1], 6.3)
    axes.set_ylim(-5.5, 0.8)
    names = ("", "token", "+ segment", "+ position", "= input")
    for height, name in zip((0.0, -1.5, -2.75, -4.0, -5.1), names, strict=True):
        axes.text(0, height, name, va="center", fontsize=13, color=INK if height else GREY)
    for index, (left, cell, piece) in enumerate(zip(lefts, cells, pieces, strict=True)):
        segment = int(segments[index])
        _box(axes, left, 0, piece, _tint("dark" if piece in SPECIAL else "plain"), cell)
        _box(axes, left, -1.5, piece, _tint("yellow"), cell)
        _box(
            axes,
            left,
            -2.75,
            "AB"[segment] if segment < 2 else str(segment),
            _tint("green" if segment else "purple"),
            cell,
        )
        _box(axes, left, -4.0, str(index), _tint("blue"), cell)
        middle = left + cell / 2
        for height in (-2.125, -3.375):
            axes.text(middle, height, "+", ha="center", va="center", fontsize=13, color=GREY)
        axes.annotate("", (middle, -5.35), (middle, -4.5), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.4})
    return figure


@styled
def gpt1_inputs(examples: Mapping[str, Sequence[Sequence[Token]]] | None = None) -> "Figure":
    """GPT-1's input transformations (Radford et al. 2018, figure 1): four kinds of task, one decoder.

    examples: task -> one token sequence for each pass through the decoder; by default the four of the paper.
    """
    examples = examples or _gpt1_examples()
    joins = {"similarity": "added, then linear", "choice": "softmax over the answers"}
    width = max(
        sum(len(t if isinstance(t, str) else t[0]) + 1.8 for t in line) for lines in examples.values() for line in lines
    )
    margin, count = 16.0, sum(len(lines) for lines in examples.values())
    depth = 1.35 * count + 0.45 * len(examples)
    figure, axes = _drawing(margin + width + 33, depth)
    axes.set_ylim(-depth + 0.3, 0.9)
    y, column = 0.0, margin + width + 2
    for task, lines in examples.items():
        middle = y - 1.35 * (len(lines) - 1) / 2
        axes.text(0, middle, task, va="center", fontsize=13, weight="bold", color=INK)
        for line in lines:
            x = margin
            for token in line:
                text, tint = token if isinstance(token, tuple) else (token, "dark")
                _box(axes, x, y, text, _tint(tint))
                x += len(text) + 1.8
            _arrow(axes, (x - 0.1, y), (column, y))
            _box(axes, column, y, "decoder", _tint("yellow"), 9.0)
            _arrow(axes, (column + 9.1, y), (column + 11.6, middle))
            y -= 1.35
        join = joins.get(task, "linear") if len(lines) > 1 else "linear"
        axes.text(column + 12, middle, join, va="center", fontsize=12, color=INK)
        y -= 0.45
    return figure


@styled
def gelu(*, reach: float = 4.0) -> "Figure":
    """GELU beside ReLU, and the gate behind it: x times the probability Phi(x) that a normal draw lies below x."""
    import numpy as np
    from matplotlib.figure import Figure

    xs = np.linspace(-reach, reach, 401)
    gate = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in xs])
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(xs, np.maximum(xs, 0), color=GREY, linestyle=(0, (5, 2)))
    left.plot(xs, xs * gate, color=BLUE)
    left.annotate("GELU", (2.3, 2.27), xytext=(10, -14), textcoords="offset points", color=BLUE)
    left.annotate("ReLU", (2.6, 2.6), xytext=(-48, 8), textcoords="offset points", color=GREY)
    lowest = int(np.argmin(xs * gate))
    left.annotate(
        f"least: {xs[lowest] * gate[lowest]:.2f}\nat x = {xs[lowest]:.2f}",
        (xs[lowest], xs[lowest] * gate[lowest]),
        xytext=(-24, 40),
        textcoords="offset points",
        fontsize=12,
        ha="right",
        arrowprops={"arrowstyle": "-", "color": GREY},
    )
    left.set_title("output")
    right.plot(xs, (xs > 0).astype(float), color=GREY, linestyle=(0, (5, 2)))
    right.plot(xs, gate, color=VERMILION)
    right.annotate(
        r"$\Phi(x)$, GELU's gate", (0.5, 0.69), xytext=(14, -22), textcoords="offset points", color=VERMILION
    )
    right.annotate("ReLU's gate: 0 or 1", (0, 0.9), xytext=(-138, 8), textcoords="offset points", color=GREY)
    right.set_title("share of x let through")
    for axes in (left, right):
        axes.set_xlabel("x")
        axes.axhline(0, color="#c8ccd0", linewidth=1, zorder=0)
        axes.axvline(0, color="#c8ccd0", linewidth=1, zorder=0)
    return figure


def _gpt1_examples() -> dict[str, list[list[Token]]]:
    start, delim, extract = "Start", "Delim", "Extract"
    first, second = ("text 1", "blue"), ("text 2", "green")
    return {
        "classification": [[start, ("text", "blue"), extract]],
        "entailment": [[start, ("premise", "blue"), delim, ("hypothesis", "green"), extract]],
        "similarity": [[start, first, delim, second, extract], [start, second, delim, first, extract]],
        "choice": [[start, ("context", "blue"), delim, (f"answer {i}", "green"), extract] for i in (1, 2, 3)],
    }


def _drawing(width: float, lines: float) -> "tuple[Figure, Axes]":
    """Axes without a frame in units of characters by lines of boxes."""
    figure, axes = canvas(max(2.0, (width + 1.5) * CHARACTER), max(0.7, lines * LINE + 0.2))
    axes.set_xlim(-0.5, width + 1)
    axes.set_axis_off()
    return figure, axes


def _box(axes: "Axes", left: float, y: float, text: str, fill: str, width: float | None = None) -> None:
    from matplotlib.patches import Rectangle

    width = len(text) + 1.4 if width is None else width
    axes.add_patch(Rectangle((left, y - 0.44), width, 0.88, facecolor=fill, edgecolor="#9aa0a6", linewidth=1))
    ink = "white" if _dark(fill) else INK
    shown = text.replace("$", r"\$")
    axes.text(
        left + width / 2, y - 0.02, shown, ha="center", va="center", family="DejaVu Sans Mono", fontsize=13, color=ink
    )


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.3})


def _named_tint(token: Token) -> tuple[str, str]:
    return token if isinstance(token, tuple) else (token, "dark" if token in SPECIAL else "plain")


def _tint(name: str) -> str:
    if name not in TINTS:
        raise CourseError(f"There is no tint {name!r}; the course has {', '.join(TINTS)}.")
    return TINTS[name]


def _blue(value: float) -> str:
    """White at 0 to the palette's blue at 1."""
    value = min(1.0, max(0.0, value))
    return "#" + "".join(f"{round(255 + (c - 255) * value):02x}" for c in (0x00, 0x72, 0xB2))


def _dark(fill: str) -> bool:
    red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140
