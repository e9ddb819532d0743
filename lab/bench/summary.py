"""One picture of the bench for people who have not read it: how many times as fast as transformers.

Each group of bars is one thing that people do. The grey line is transformers in float32, the
library and the precision that most people start with.
"""

from collections.abc import Iterable, Mapping
from typing import Any

# What is drawn: the record's name -> what a newcomer calls it.
TASKS = {
    "training GPT M": "train a GPT-2\n(4 layers of 256)",
    "training BERT M": "train a BERT\n(4 layers of 256)",
    "generation GPT-2 S: greedy, batch 1": "write one text\n(GPT-2, 4 layers of 128)",
    "generation GPT-2 S: greedy, batch 16": "write 16 texts\n(GPT-2, 4 layers of 128)",
    "generation, batch 1": "write one text\n(GPT-2, 124 million weights)",
}
BASELINE = "transformers fp32"
COLORS = {  # contender -> colour; in the order of the legend
    "course fp32": "#0072b2",
    "course bf16": "#56b4e9",
    "nanoGPT fp32": "#e69f00",
    "nanoGPT bf16": "#f3cf80",
    "transformers bf16": "#9aa0a6",
    "transformers static fp32": "#5f6368",
    "transformers static bf16": "#c4c7cb",
}
LABELS = {
    "course": "this library",
    "nanoGPT": "a loop like nanoGPT's",
    "transformers": "transformers",
    "transformers static": "transformers, static cache",
}
BAR = 0.8  # height of a bar; the distance of two bars is 1


def label(contender: str) -> str:
    """ "course bf16" -> "this library, bfloat16"."""
    side, _, precision = contender.rpartition(" ")
    names = {"fp32": "float32", "bf16": "bfloat16"}
    return f"{LABELS[side]}, {names[precision]}"


def ratios(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Task -> contender -> speed divided by transformers', for the tasks that were measured."""
    by_name = {record["name"]: record for record in records}
    found: dict[str, dict[str, float]] = {}
    for name, task in TASKS.items():
        if name not in by_name:
            continue
        rows = {row["contender"]: row["ratio"] for row in by_name[name]["rows"]}
        found[task] = {each: rows[each] for each in COLORS if rows.get(each)}
    return found


def draw(records: Iterable[Mapping[str, Any]]) -> Any:
    """The picture, a matplotlib figure."""
    from matplotlib.figure import Figure

    tasks = ratios(records)
    bars = sum(len(row) for row in tasks.values()) + len(tasks)
    figure = Figure(figsize=(8, 1 + 0.24 * bars), layout="constrained")
    axes = figure.add_subplot(xlabel="times as fast as transformers in float32")
    y = 0.0
    ticks = []
    drawn: dict[str, Any] = {}  # contender -> its bar, for the legend
    for row in tasks.values():
        ticks.append(y + (len(row) - 1) / 2)
        for contender, ratio in row.items():
            [bar] = axes.barh(y, ratio, BAR, color=COLORS[contender])
            drawn.setdefault(contender, bar)
            axes.text(ratio, y, f" {ratio:.1f}", va="center", fontsize=8)
            y += 1
        y += 1  # a gap between two tasks
    axes.axvline(1, color="#5f6368", linewidth=1)
    axes.text(1, -1, " transformers, float32", va="center", fontsize=8, color="#5f6368")
    axes.set_yticks(ticks, list(tasks))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    legend = [name for name in COLORS if name in drawn]
    axes.legend(
        [drawn[name] for name in legend],
        [label(name) for name in legend],
        loc="lower right",
        fontsize=8,
        frameon=False,
    )
    return figure
