"""The course from above: ten years of models, and the map of the lessons."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.view.labels import place_labels
from course_lib.view.style import BLUE, GREEN, GREY, INK, ORANGE, TINTS, VERMILION, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMELINE = Path(__file__).resolve().parents[2] / "data" / "papers" / "timeline.json"

# family -> (colour, marker, name in the legend)
_FAMILIES = {
    "static": (GREY, "o", "word vectors"),
    "recurrent": (ORANGE, "D", "recurrent"),
    "encoder": (BLUE, "s", "encoder"),
    "decoder": (VERMILION, "^", "decoder"),
    "encoder-decoder": (GREEN, "v", "encoder-decoder"),
}

# lesson -> (column, lane, title, the lessons it builds on)
LESSONS: dict[str, tuple[float, int, str, tuple[str, ...]]] = {
    "00": (0, 0, "start\nhere", ()),
    "01": (1, 0, "self-\nattention", ("00",)),
    "02": (2, 0, "transformer", ("01",)),
    "03": (3, 0, "positions", ("02",)),
    "04": (1, 1, "word\nembeddings", ("00",)),
    "05": (2, 1, "tokenization", ("04",)),
    "06": (3, 1, "ELMo", ("05",)),
    "07": (4, 1, "transfer", ("06",)),
    "08": (4, 2, "GPT-1", ("03", "07")),
    "09": (5, 3, "BERT", ("08",)),
    "10": (6, 3, "fine-tuning\nBERT", ("09",)),
    "11": (7, 3, "inside\nBERT", ("10",)),
    "12": (8, 3, "RoBERTa", ("11",)),
    "13": (9, 3, "DistilBERT", ("12",)),
    "14": (10, 3, "ELECTRA", ("13",)),
    "15": (11, 3, "S-BERT", ("14",)),
    "16": (6, 4, "BART", ("09",)),
    "17": (7, 4, "T5", ("16",)),
    "18": (5, 2, "GPT-2", ("08",)),
    "19": (6, 2, "GPT-3", ("18",)),
    "20": (7, 2, "PEFT", ("19",)),
    "21": (12, 3, "choosing", ("15", "17", "20")),
}
_LANES = (
    ("attention", "blue"),
    ("words to ELMo", "yellow"),
    ("decoders and prompting", "orange"),
    ("encoders", "green"),
    ("encoder-decoders", "purple"),
)


@styled
def timeline(path: Path | str = TIMELINE) -> "Figure":
    """Models of 2013 to 2023: parameters above, training text below, both logarithmic, where the paper says it."""
    from matplotlib.figure import Figure

    models = read_json(path)["models"]
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, field, name in ((upper, "parameters", "parameters"), (lower, "data", "words or tokens of training text")):
        known = [m for m in models if m[field]]
        for family, (colour, marker, title) in _FAMILIES.items():
            mine = [m for m in known if m["family"] == family]
            axes.scatter(
                [_year(m) for m in mine], [m[field] for m in mine], s=60, color=colour, marker=marker, label=title
            )
        axes.set_yscale("log")
        axes.set_xlim(2012.7, 2024.2)
        axes.set_ylim(min(m[field] for m in known) / 3, max(m[field] for m in known) * 5)
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        axes.grid(True)
        axes.set_title(name)
        axes.set_axisbelow(True)
        points = [(_year(m), float(m[field])) for m in known]
        place_labels(axes, points, [m["model"] for m in known], colours=[_FAMILIES[m["family"]][0] for m in known])
    lower.set_xticks(range(2013, 2025))
    upper.legend(loc="upper left", ncols=2)
    return figure


@styled
def lesson_map(here: str = "", ready: Sequence[str] | None = None) -> "Figure":
    """The 22 lessons and what each builds on. `here`: the lesson to frame; `ready`: those that stand already.

    Both take a lesson's name or its number ("09" or "09_bert").
    """
    from matplotlib.patches import FancyBboxPatch

    if here and here[:2] not in LESSONS:
        raise CourseError(f"There is no lesson {here!r}; they are 00 to 21.")
    numbers = {name[:2] for name in ready} if ready is not None else set(LESSONS)
    figure, axes = canvas(15, 5.6)
    axes.set_xlim(-0.55, 12.55)
    axes.set_ylim(-4.45, 0.45)
    axes.set_axis_off()
    for number, (x, lane, title, needs) in LESSONS.items():
        for needed in needs:
            _link(axes, LESSONS[needed][:2], (x, lane))
        standing = number in numbers
        fill = TINTS["dark" if number in ("00", "21") else _LANES[lane][1]]
        edge, thick = (INK, 3.0) if number == here[:2] else (GREY, 1.0)
        box = FancyBboxPatch(
            (x - 0.42, -lane - 0.3),
            0.84,
            0.6,
            boxstyle="round,pad=0.02,rounding_size=0.08",
            facecolor=fill if standing else "white",
            edgecolor=edge,
            linewidth=thick,
            linestyle="-" if standing else (0, (3, 2)),
            zorder=3,
        )
        axes.add_patch(box)
        high = "\n" in title
        axes.text(x, -lane + (0.17 if high else 0.12), number, ha="center", va="center", weight="bold", zorder=4)
        axes.text(x, -lane - 0.11, title, ha="center", va="center", fontsize=10.5, zorder=4, linespacing=0.95)
    for lane, (name, _) in enumerate(_LANES):
        columns = [x for number, (x, row, _, _) in LESSONS.items() if row == lane and number != "21"]
        left = lane < 2
        place = max(columns) + 0.62 if left else min(columns) - 0.62
        axes.text(
            place, -lane, name, fontsize=13, color=GREY, ha="left" if left else "right", va="center", style="italic"
        )
    return figure


def _link(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow between two boxes: sideways as a rule, downwards to a box below, into 21 from all sides."""
    (x0, y0), (x1, y1) = (start[0], -start[1]), (end[0], -end[1])
    if x0 == x1:
        tail, tip = (x0, y0 - 0.32), (x1, y1 + 0.34)
    elif x1 - x0 > 2:
        tail, tip = (x0 + 0.44, y0), (x1, y1 + (0.34 if y0 > y1 else -0.34))
    else:
        tail, tip = (x0 + 0.44, y0), (x1 - 0.45, y1)
    axes.annotate(
        "", tip, tail, arrowprops={"arrowstyle": "-|>", "color": "#8a9097", "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    )


def _year(model: dict[str, Any]) -> float:
    year, month = model["date"].split("-")
    return int(year) + (int(month) - 0.5) / 12


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
