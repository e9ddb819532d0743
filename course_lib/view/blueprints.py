"""How a Transformer is put together, drawn: the block with its norm after or before, and the three kinds of stack."""

from typing import TYPE_CHECKING, Any

from course_lib.view.style import BLUE, GREY, INK, TINTS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TINT = {"attention": "blue", "cross-attention": "green", "feed-forward": "orange", "norm": "yellow"}
WIDE, STEP = 4.1, 1.25  # of a stack's parts


@styled
def block() -> "Figure":
    """One block twice, left to right: norm after each sum (2017) and norm inside each branch (GPT-2)."""
    figure, axes = canvas(9.0, 3.9)
    axes.set_xlim(-0.1, 17.4)
    axes.set_ylim(-0.6, 7.4)
    axes.set_axis_off()
    for y, name, inside, after in (
        (4.4, "post-norm: x ← norm(x + f(x))", False, True),
        (0.0, "pre-norm: x ← x + f(norm(x))", True, False),
    ):
        axes.text(0, y + 2.2, name, fontsize=14, weight="bold", va="center")
        axes.text(0.1, y, "x", fontsize=15, va="center", style="italic")
        x = 0.8
        for part in ("attention", "feed-forward"):
            steps = ["norm", part] if inside else [part]
            x = _branch(axes, x, y, steps)
            if after:
                x = _on_the_way(axes, x, y, "norm")
        _line(axes, (x, y), (17.3, y), arrow=True)
    return figure


@styled
def stacks() -> "Figure":
    """Encoder, decoder, encoder-decoder side by side, bottom to top, as in Vaswani et al. 2017, figure 1."""
    figure, axes = canvas(9.4, 4.3)
    axes.set_xlim(0, 20.4)
    axes.set_ylim(-1.75, 6.7)
    axes.set_axis_off()
    encoder, decoder = ["attention", "feed-forward"], ["causal attention", "feed-forward"]
    _stack(axes, 2.3, encoder, "the cat sat", "a vector for each word")
    _stack(axes, 7.4, decoder, "the cat sat", "the next word")
    top = _stack(axes, 13.0, encoder, "die Katze saß", "")
    _stack(axes, 17.9, ["causal attention", "cross-attention", "feed-forward"], "the cat sat", "the next word")
    cross = 0.75 + STEP
    axes.plot([13.0, 13.0, 15.45, 15.45], [top, top + 0.6, top + 0.6, cross], color=GREY, linewidth=1.8, zorder=2)
    _line(axes, (15.45, cross), (17.9 - WIDE / 2, cross), arrow=True)
    for middle, name in ((2.3, "encoder"), (7.4, "decoder"), (15.45, "encoder–decoder")):
        axes.text(middle, 6.3, name, fontsize=15, weight="bold", ha="center")
    return figure


def _branch(axes: "Axes", x: float, y: float, steps: list[str]) -> float:
    """From x the stream goes straight on; a branch goes through the steps and is added again. Returns the end."""
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
    axes.text(x + reach, y - 0.04, "+", fontsize=15, ha="center", va="center", zorder=4)
    axes.scatter([x + reach], [y], s=330, facecolor="white", edgecolor=GREY, linewidth=1.6, zorder=3)
    return x + reach + 0.3


def _on_the_way(axes: "Axes", x: float, y: float, step: str) -> float:
    _line(axes, (x, y), (x + 0.7, y), arrow=True)
    _block(axes, x + 0.7 + 0.85, y, 1.7, step)
    return x + 0.7 + 1.7


def _stack(axes: "Axes", x: float, parts: list[str], words: str, gives: str) -> float:
    """One stack with the centre x: words, embedding, a frame of parts repeated L times, what it gives; its top."""
    axes.text(x, -1.5, words, fontsize=13, ha="center", va="center", style="italic")
    _line(axes, (x, -1.25), (x, -1.0), arrow=True)
    _block(axes, x, -0.55, WIDE, "word + position", tint="plain")
    for number, part in enumerate(parts):
        y = 0.75 + STEP * number
        _line(axes, (x, y - STEP + 0.45 if number else -0.1), (x, y - 0.45), arrow=True)
        _block(axes, x, y, WIDE, part)
    top = 0.75 + STEP * (len(parts) - 1) + 0.65
    _frame(axes, x - WIDE / 2 - 0.2, 0.1, WIDE + 0.4, top - 0.1)
    axes.text(x - WIDE / 2 - 0.15, top + 0.3, "× L", fontsize=13, ha="left", va="center", color=GREY)
    if gives:
        _line(axes, (x, top), (x, top + 0.75), arrow=True)
        axes.text(x, top + 1.1, gives, fontsize=13, ha="center", va="center")
    return top


def _block(axes: "Axes", x: float, y: float, width: float, text: str, tint: str = "") -> None:
    from matplotlib.patches import FancyBboxPatch

    fill = TINTS[tint or TINT.get(text, "blue")]
    look: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.12", "facecolor": fill, "edgecolor": "#6b7176"}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - 0.45), width, 0.9, linewidth=1.2, zorder=3, **look))
    axes.text(x, y - 0.02, text, fontsize=13, ha="center", va="center", color=INK, zorder=4)


def _frame(axes: "Axes", x: float, y: float, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=BLUE, linewidth=1.4, linestyle=(0, (5, 3))))


def _line(axes: "Axes", start: tuple[float, float], end: tuple[float, float], arrow: bool = False) -> None:
    style = "-|>" if arrow else "-"
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": style, "color": GREY, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}, zorder=2
    )
