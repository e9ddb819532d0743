"""How a Transformer is put together, drawn: the block with its norm after or before, and the three kinds of stack."""

from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.view.style import BLUE, GREY, INK, TINTS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TINT = {"attention": "blue", "cross-attention": "green", "feed-forward": "orange", "norm": "yellow"}


@styled
def block() -> "Figure":
    """One block twice, left to right: norm after each sum (2017) and norm inside each branch (GPT-2)."""
    figure, axes = canvas(11.0, 4.6)
    axes.set_xlim(0, 22.4)
    axes.set_ylim(-1.6, 7.6)
    axes.set_axis_off()
    for y, name, inside, after in (
        (5.0, "post-norm: x ← norm(x + f(x))", False, True),
        (0.4, "pre-norm: x ← x + f(norm(x))", True, False),
    ):
        axes.text(0, y + 2.1, name, fontsize=14, weight="bold", va="center")
        axes.text(0.1, y, "x", fontsize=15, va="center", style="italic")
        x = 0.8
        for part in ("attention", "feed-forward"):
            steps = ["norm", part] if inside else [part]
            x = _branch(axes, x, y, steps)
            if after:
                x = _on_the_way(axes, x, y, "norm")
        _line(axes, (x, y), (22.2, y), arrow=True)
    return figure


@styled
def stacks() -> "Figure":
    """Encoder, decoder, encoder-decoder side by side, bottom to top, as in Vaswani et al. 2017, figure 1."""
    figure, axes = canvas(11.0, 5.4)
    axes.set_xlim(0, 22)
    axes.set_ylim(-2.3, 8.5)
    axes.set_axis_off()
    _stack(axes, 2.6, "encoder", ["attention", "feed-forward"], "the cat sat", "a vector for each word")
    _stack(axes, 9.0, "decoder", ["causal attention", "feed-forward"], "the cat sat", "the next word, everywhere")
    _stack(axes, 15.0, "encoder", ["attention", "feed-forward"], "die Katze saß", "")
    top = _stack(
        axes, 19.6, "decoder", ["causal attention", "cross-attention", "feed-forward"], "the cat sat", "the next word"
    )
    axes.plot([15.0, 15.0, 17.0], [3.7, 4.35, 4.35], color=GREY, linewidth=1.8, zorder=1)
    _line(axes, (16.9, 4.35), (17.75, 2.75), arrow=True)
    for middle, name in ((2.6, "encoder"), (9.0, "decoder"), (17.3, "encoder–decoder")):
        axes.text(middle, max(top, 7.6) + 0.3, name, fontsize=15, weight="bold", ha="center")
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


def _stack(axes: "Axes", x: float, name: str, parts: list[str], words: str, gives: str) -> float:
    """One stack with the centre x: words, embedding, a frame of parts repeated L times, what it gives."""
    if not parts:
        raise CourseError("A stack needs at least one part.")
    wide = 3.7
    axes.text(x, -2.0, words, fontsize=13, ha="center", va="center", style="italic")
    _line(axes, (x, -1.7), (x, -1.25), arrow=True)
    _block(axes, x, -0.8, wide, "word + position", tint="plain")
    y, bottom = 0.55, 0.0
    _line(axes, (x, -0.35), (x, y - 0.45 + 0.15), arrow=True)
    for part in parts:
        _block(axes, x, y + 0.15, wide, part)
        y += 1.2
        if part != parts[-1]:
            _line(axes, (x, y - 0.6), (x, y - 0.3), arrow=True)
    top = y - 0.25
    _frame(axes, x - wide / 2 - 0.2, bottom, wide + 0.4, top - bottom)
    axes.text(x + wide / 2 + 0.15, top + 0.28, "× L", fontsize=13, ha="right", va="center", color=GREY)
    if gives:
        _line(axes, (x, top), (x, top + 0.85), arrow=True)
        axes.text(x, top + 1.2, gives, fontsize=12, ha="center", va="center")
    return top + 1.3


def _block(axes: "Axes", x: float, y: float, width: float, text: str, tint: str = "") -> None:
    from matplotlib.patches import FancyBboxPatch

    fill = TINTS[tint or TINT.get(text, "blue")]
    look: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.12", "facecolor": fill, "edgecolor": "#6b7176"}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - 0.45), width, 0.9, linewidth=1.2, zorder=3, **look))
    axes.text(x, y - 0.02, text, fontsize=12.5, ha="center", va="center", color=INK, zorder=4)


def _frame(axes: "Axes", x: float, y: float, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=BLUE, linewidth=1.4, linestyle=(0, (5, 3))))


def _line(axes: "Axes", start: tuple[float, float], end: tuple[float, float], arrow: bool = False) -> None:
    style = "-|>" if arrow else "-"
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": style, "color": GREY, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}, zorder=2
    )
