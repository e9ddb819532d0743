"""Ten years of models: their sizes and their training texts."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.files import read_json
from course_lib.view.labels import place_labels
from course_lib.view.style import BLUE, GREEN, GREY, ORANGE, VERMILION, styled

if TYPE_CHECKING:
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


def _year(model: dict[str, Any]) -> float:
    year, month = model["date"].split("-")
    return int(year) + (int(month) - 0.5) / 12


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
