"""Fine-tuning drawn: one body under four heads, who was taken for whom, a suite's scores, an answer's two ends."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from course_lib.errors import CourseError
from course_lib.view.drawings import SPECIAL, _arrow, _box, _drawing, _tint
from course_lib.view.style import BLUE, GREY, INK, VERMILION, Numbers, array, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.spans import Reading


class Panel(NamedTuple):
    """One kind of task: the tokens of both segments, and what is read above which of them."""

    title: str
    first: Sequence[str]
    second: Sequence[str]
    above: Mapping[int, str]


PANELS = (
    Panel("one text: a class", ["[CLS]", "soup", "was", "fine", "[SEP]"], [], {0: "class"}),
    Panel("two texts: a class", ["[CLS]", "it", "rained", "[SEP]"], ["it", "was", "dry", "[SEP]"], {0: "class"}),
    Panel(
        "tagging: a class a word",
        ["[CLS]", "ann", "left", "ash", "##ford", "[SEP]"],
        [],
        {1: "PER", 2: "O", 3: "LOC"},
    ),
    Panel(
        "span: where the answer starts and ends",
        ["[CLS]", "who", "fell", "[SEP]"],
        ["the", "poet", "fell", "[SEP]"],
        {4: "start", 5: "end"},
    ),
)


@styled
def bert_heads(panels: Sequence[Panel] = PANELS) -> "Figure":
    """One body, four kinds of head (after Devlin et al. 2019, figure 4): what is read off which position."""
    widths = [[max(len(t), 5) + 1.4 for t in (*p.first, *p.second)] for p in panels]
    wide = max(sum(row) + 0.5 * len(row) for row in widths)
    lines = -(-len(panels) // 2)
    figure, axes = _drawing(2 * wide + 5, 5.6 * lines)
    axes.set_ylim(-5.6 * lines + 0.5, 0.9)
    for number, (panel, row) in enumerate(zip(panels, widths, strict=True)):
        _panel(axes, panel, row, (wide + 5) * (number % 2), -5.6 * (number // 2))
    return figure


def _panel(axes: "Axes", panel: Panel, widths: Sequence[float], x: float, y: float) -> None:
    axes.text(x, y, panel.title, va="center", fontsize=13, weight="bold", color=INK)
    right = x + sum(widths) + 0.5 * (len(widths) - 1)
    _box(axes, x, y - 2.8, "BERT", _tint("yellow"), right - x)
    left = x
    for index, (token, width) in enumerate(zip((*panel.first, *panel.second), widths, strict=True)):
        tint = "dark" if token in SPECIAL else "purple" if index < len(panel.first) else "green"
        _box(axes, left, y - 4.3, token, _tint(tint), width)
        _arrow(axes, (left + width / 2, y - 3.85), (left + width / 2, y - 3.25))
        if index in panel.above:
            _arrow(axes, (left + width / 2, y - 2.35), (left + width / 2, y - 1.75))
            _box(axes, left, y - 1.3, panel.above[index], _tint("orange"), width)
        left += width + 0.5


@styled
def confusion(counts: Numbers, names: Sequence[str], *, title: str = "") -> "Figure":
    """Who was taken for whom: a row a true class, a column what was said; number and share of the row."""
    table = array(counts)
    if table.shape != (len(names), len(names)):
        raise CourseError(f"confusion needs a {len(names)} by {len(names)} table; this one is {list(table.shape)}.")
    share = table / table.sum(1, keepdims=True).clip(min=1)
    side = 1.15 * len(names) + 0.11 * max(map(len, names))
    figure, axes = canvas(side + 1.6, 0.62 * side + 1.4)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i in range(len(names)):
        for j in range(len(names)):
            ink = "white" if share[i, j] > 0.55 else INK
            text = f"{table[i, j]:.0f}\n{100 * share[i, j]:.0f}%"
            weight = "bold" if i == j else "normal"
            axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=11, weight=weight)
    axes.set_xticks(range(len(names)), list(names), rotation=0 if len(names) <= 4 else 90)
    axes.set_yticks(range(len(names)), list(names))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("what the model says")
    axes.set_ylabel("what is true")
    if title:
        axes.set_title(title, pad=10)
    return figure


@styled
def score_grid(rows: Mapping[str, Mapping[str, float | None]], *, title: str = "", digits: int = 1) -> "Figure":
    """Systems against tasks: each score in its cell, deeper blue the nearer to its column's best, the best in bold.

    Colours compare within a column only: tasks have different measures. A score that is None stays blank.
    """
    if not rows or not any(rows.values()):
        raise CourseError("score_grid needs at least one system with a score; the mapping is empty.")
    tasks = list(dict.fromkeys(task for row in rows.values() for task in row))
    figure, axes = canvas(0.88 * len(tasks) + 0.115 * max(map(len, rows)) + 0.6, 0.46 * len(rows) + 1.35)
    axes.set_xlim(-0.5, len(tasks) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    shown = {task: [v for row in rows.values() if (v := row.get(task)) is not None] for task in tasks}
    for i, row in enumerate(rows.values()):
        for j, task in enumerate(tasks):
            value = row.get(task)
            if value is None:
                continue
            low, high = min(shown[task]), max(shown[task])
            depth = 0.62 * (value - low) / (high - low) if high > low else 0.3
            fill = "#" + "".join(f"{round(255 + (c - 255) * depth):02x}" for c in (0x00, 0x72, 0xB2))
            _cell(axes, j, i, f"{value:.{digits}f}", fill, bold=value == high)
    axes.set_xticks(range(len(tasks)), tasks, rotation=35, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), list(rows))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, pad=8)
    return figure


def _cell(axes: "Axes", x: float, y: float, text: str, fill: str, *, bold: bool) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=fill))
    axes.text(x, y, text, ha="center", va="center", fontsize=12, weight="bold" if bold else "normal", color=INK)


@styled
def span_bars(reading: "Reading") -> "Figure":
    """A passage word by word: above, the probability that the answer starts there; below, that it ends there."""
    count = len(reading.tokens)
    figure, axes = canvas(min(15.5, max(7.0, 0.27 * count + 2.4)), 4.4)
    places = range(count)
    first, last = reading.best
    axes.axvspan(first - 0.5, last + 0.5, color="#faf0b8", zorder=0)
    axes.bar(places, reading.start, width=0.8, color=BLUE)
    axes.bar(places, [-p for p in reading.end], width=0.8, color=VERMILION)
    axes.axhline(0, color=GREY, linewidth=1)
    axes.set_ylim(-1.05, 1.05)
    axes.set_yticks([-1, -0.5, 0, 0.5, 1], ["1", "0.5", "0", "0.5", "1"])
    axes.set_xticks(places, reading.tokens, rotation=90, fontsize=11 if count <= 50 else 9)
    axes.set_xlim(-0.7, count - 0.3)
    axes.tick_params(axis="x", length=0)
    axes.text(1.01, 0.75, "the answer\nstarts here", color=BLUE, va="center", transform=axes.transAxes)
    axes.text(1.01, 0.25, "the answer\nends here", color=VERMILION, va="center", transform=axes.transAxes)
    axes.set_ylabel("probability")
    axes.set_title(reading.question)
    return figure
