"""A probe at each layer of a frozen encoder, and what the probes find."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.charts import curves, half_interval
from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    TINTS,
    VERMILION,
    array,
    arrow,
    canvas,
    centred,
    rounded_box,
    styled,
)
from course_lib.errors import CourseError

COLUMN, ROW = 1.5, 0.72  # the distance of two words, and of two layers


@styled
def probe_layers(words: Sequence[str], place: int, answers: Sequence[str]) -> Figure:
    """The layers of an encoder over a sentence, lowest first, and a probe that reads one word's
    vector at each of them.

    Args:
        words: of a short sentence.
        place: of the word that is read, from 0.
        answers: what the probe of each layer says, from the embeddings up.
    """
    if not 0 <= place < len(words):
        raise CourseError(f"There are {len(words)} words; place={place} is none of them.")
    width = COLUMN * len(words)
    figure, axes = canvas(11.6, 1.3 + 0.56 * len(answers))
    for layer, answer in enumerate(answers):
        y = ROW * layer
        for i in range(len(words)):
            _vector(axes, COLUMN * i, y, read=i == place)
            if layer:
                foot = (COLUMN * i, y - ROW + 0.2)
                arrow(axes, foot, (COLUMN * i, y - 0.2), color="#b9bec4", lw=1.1)
        name = "layer 0 (embeddings)" if layer == 0 else f"layer {layer}"
        axes.text(-1.0, y, name, ha="right", va="center", fontsize=13, color=INK)
        start = COLUMN * place + 0.52
        axes.plot([start, width - 0.75], [y, y], color=VERMILION, lw=1.6, zorder=1)
        arrow(axes, (width - 0.8, y), (width - 0.3, y), color=VERMILION, lw=1.6)
        rounded_box(
            axes, (width + 0.35, y), (1.2, 0.44), "probe", fill=TINTS["yellow"], fontsize=12
        )
        arrow(axes, (width + 0.95, y), (width + 1.5, y), color=VERMILION, lw=1.6)
        axes.text(width + 1.65, y, answer, ha="left", va="center", fontsize=14, color=INK)
    for i, word in enumerate(words):
        weight = "bold" if i == place else "normal"
        centred(axes, COLUMN * i, -0.55, word, fontsize=14, color=INK, weight=weight)
    top = ROW * len(answers) - 0.15
    centred(axes, COLUMN * (len(words) - 1) / 2, top, "encoder, frozen", fontsize=13, color=GREY)
    centred(axes, width + 0.35, top, "trained", fontsize=13, color=VERMILION)
    axes.set(xlim=(-4.2, width + 4.2), ylim=(-0.9, top + 0.35))
    axes.set_axis_off()
    return figure


def layer_lines(
    values: Mapping[str, Sequence[Any]],
    *,
    y: str = "words right (%)",
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """Lines over the layers with bands for the 95% intervals.

    Args:
        values: name -> for each layer from 0 either (value, low, high), or a list of the values of
            several draws.
        y: what is measured.
        levels: note -> height of a dotted line.
    """
    lines, bands = {}, {}
    for name, by_layer in values.items():
        found = [_interval(value) for value in by_layer]
        lines[name] = (list(range(len(found))), [middle for middle, _, _ in found])
        bands[name] = ([low for _, low, _ in found], [high for _, _, high in found])
    figure = curves(lines, bands=bands, x="layer (0: embeddings)", y=y, levels=levels)
    figure.axes[0].set_xticks(range(max(len(by_layer) for by_layer in values.values())))
    return figure


def _interval(value: Any) -> tuple[float, float, float]:
    """A value with the ends of its interval."""
    if isinstance(value, tuple):
        middle, low, high = value
        return middle, low, high
    seeds = array(value).reshape(-1)
    mean = float(seeds.mean())
    half = half_interval(seeds) if len(seeds) > 1 else 0.0  # one draw has no interval
    return mean, mean - half, mean + half


def _vector(axes: Axes, x: float, y: float, *, read: bool) -> None:
    """A token vector as four cells, framed where a probe reads it."""
    for cell in range(4):
        corner = (x - 0.48 + 0.24 * cell, y - 0.17)
        tint = TINTS["orange"] if read else TINTS["blue"]
        axes.add_patch(Rectangle(corner, 0.24, 0.34, facecolor=tint, edgecolor="white", zorder=3))
    edge = VERMILION if read else BLUE
    frame = Rectangle((x - 0.48, y - 0.17), 0.96, 0.34, fill=False, edgecolor=edge, zorder=4)
    frame.set(linewidth=2.2 if read else 0.8, label="read" if read else "vector")
    axes.add_patch(frame)
