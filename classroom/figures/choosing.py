"""Lesson 21: a map for choosing a model, the steps to a chat model, DPO's loss on one pair."""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from classroom.figures.display import Html
from classroom.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    TINTS,
    VERMILION,
    arrow,
    canvas,
    centred,
    panels,
    rounded_box,
    styled,
)
from classroom.figures.tables import html_table
from course_lib.errors import CourseError

BRANCHES = ("blue", "green", "orange", "purple")  # tints of the branches, in their order
Leaf = Mapping[str, str]  # need, take, lesson ("10_bert_finetuning"), shows; perhaps at, an anchor


@styled
def decision_map(guide: Mapping[str, Any]) -> Figure:
    """A question on the left, an answer a branch, and for each need what to take.

    Args:
        guide: `question`, which stands in the box on the left, and `branches`: answer -> its leaves
            from top to bottom.

    Raises:
        CourseError: there are more branches than colours, or a branch has no leaf.
    """
    branches: Mapping[str, Sequence[Leaf]] = guide["branches"]
    if len(branches) > len(BRANCHES) or not all(branches.values()):
        raise CourseError(f"A map has 1 to {len(BRANCHES)} branches with a leaf or more each.")
    count = sum(map(len, branches.values()))
    height = count + 0.35 * (len(branches) - 1)
    figure, axes = canvas(13.4, 0.72 * height + 0.3)
    axes.set(xlim=(0, 22.3), ylim=(-0.1, height + 0.1))
    axes.set_axis_off()
    middle = height / 2
    _box(axes, (1.75, middle), (3.1, 1.5), guide["question"], "plain", bold=True)
    top = height
    for tint, (answer, leaves) in zip(BRANCHES, branches.items(), strict=False):
        centre = top - len(leaves) / 2
        _line(axes, (3.3, middle), (4.3, centre))
        _box(axes, (5.95, centre), (3.3, 1.1), answer, tint, bold=True)
        for leaf in leaves:
            y = top - 0.5
            _line(axes, (7.6, centre), (8.5, y))
            _box(axes, (11.4, y), (5.8, 0.8), leaf["need"], "plain")
            arrow(axes, (14.3, y), (14.75, y))
            _box(axes, (17.85, y), (6.2, 0.8), leaf["take"], tint)
            _box(axes, (21.65, y), (0.95, 0.8), leaf["lesson"][:2], "plain", bold=True)
            top -= 1
        top -= 0.35
    return figure


def _address(leaf: Leaf) -> str:
    """The lesson of a leaf, at its anchor if it names one."""
    return f"{leaf['lesson']}.ipynb" + (f"#{leaf['at']}" if "at" in leaf else "")


def evidence(guide: Mapping[str, Any]) -> Html:
    """The leaves of a map as a table: what is needed, what to take, what shows it, and the lesson
    as a link.
    """
    leaves = [leaf for branch in guide["branches"].values() for leaf in branch]
    columns = ("need", "take", "shows")
    lines = [
        [
            *(escape(leaf[name]) for name in columns),
            f'<a href="{_address(leaf)}">{leaf["lesson"][:2]}</a>',
        ]
        for leaf in leaves
    ]
    plain = "\n".join(
        f"{leaf['need']}: {leaf['take']}. {leaf['shows']} (lesson {leaf['lesson'][:2]})"
        for leaf in leaves
    )
    table = html_table(("you need", "take", "what shows it", "lesson"), lines, text=range(4))
    return Html(f'<div style="overflow-x:auto">{table}</div>', plain)


@styled
def chat_steps(request: str, answer: str, better: str, worse: str) -> Figure:
    """Three steps from a language model to a chat model, and DPO's way past the second.

    Args:
        request: what is asked for.
        answer: one that somebody wrote, for the first step.
        better, worse: two answers of the model, the first of which is preferred.
    """
    figure, axes = canvas(13.4, 6.9)
    axes.set(xlim=(0, 20.4), ylim=(0.3, 10.2))
    axes.set_axis_off()
    columns = (
        (4.2, "1  learn to answer", "blue", "instruction\ntuning"),
        (10.6, "2  learn what is preferred", "green", "reward\nmodel"),
        (17.0, "3  write what is preferred", "orange", "RLHF"),
    )
    for x, title, _, _ in columns:
        centred(axes, x, 9.8, title, fontsize=16, weight="bold", color=INK)
    request, answer, better, worse = (
        textwrap.fill(textwrap.shorten(text, 76, placeholder=" ..."), 38)
        for text in (request, answer, better, worse)
    )
    x = columns[0][0]
    _box(axes, (x, 8.5), (5.6, 1.0), request, "plain")
    _box(axes, (x, 7.2), (5.6, 1.2), answer, "blue")
    centred(axes, x, 6.2, "the loss counts the answer only", fontsize=12.5, color=GREY)
    x = columns[1][0]
    _box(axes, (x, 8.75), (5.6, 1.0), better, "green")
    centred(axes, x, 8.0, "is preferred to", fontsize=12.5, color=GREY)
    _box(axes, (x, 7.25), (5.6, 1.0), worse, "plain")
    centred(axes, x, 6.2, "two answers to one request", fontsize=12.5, color=GREY)
    x = columns[2][0]
    wrapped = "its reward moves the weights,\nbut not far from step 1"
    _box(axes, (x, 8.5), (5.6, 1.0), "the model writes", "plain")
    _box(axes, (x, 7.2), (5.6, 1.2), wrapped, "orange")
    centred(axes, x, 6.2, "new answers, again and again", fontsize=12.5, color=GREY)
    _box(axes, (0.85, 3.6), (1.6, 1.5), "language\nmodel", "plain", bold=True)
    for place, (x, _, tint, name) in enumerate(columns):
        arrow(axes, (x, 5.85), (x, 4.75))
        _box(axes, (x, 3.9), (3.4, 1.6), name, tint, bold=True)
        start = 1.65 if place == 0 else columns[place - 1][0] + 1.7
        arrow(axes, (start, 3.9), (x - 1.7, 3.9))
    _box(axes, (19.75, 3.9), (1.2, 1.5), "chat\nmodel", "plain", bold=True)
    arrow(axes, (18.7, 3.9), (19.15, 3.9))
    low = 1.2
    _box(
        axes, (14.0, low), (5.4, 1.5), "DPO: the pairs train\nthe model itself", "purple", bold=True
    )
    axes.plot([4.2, 4.2], [3.1, low], color=GREY, lw=1.8)
    arrow(axes, (4.2, low), (11.3, low))
    axes.plot([16.7, 19.75], [low, low], color=GREY, lw=1.8)
    arrow(axes, (19.75, low), (19.75, 3.15))
    centred(axes, 7.6, low + 0.4, "the same pairs, no reward model", fontsize=12.5, color=GREY)
    return figure


@styled
def dpo_pair(start: tuple[float, float], now: tuple[float, float], beta: float) -> Figure:
    """DPO's loss on one pair: how far both log probabilities moved, and where that is on the curve.

    Args:
        start: log probabilities of the preferred answer and of the other before the training.
        now: the same after it.
        beta: how much a change counts.
    """
    figure, (left, right) = panels(12.6, 4.8, 1, 2, width_ratios=(1.15, 1))
    for y, (name, before, after, colour) in enumerate(
        zip(("other", "preferred"), start[::-1], now[::-1], (VERMILION, BLUE), strict=True)
    ):
        left.plot(before, y, "o", markersize=11, color="white", markeredgecolor=INK)
        left.plot(after, y, "o", markersize=11, color=colour)
        if after != before:
            arrow(left, (before, y), (after, y), color=colour, lw=3)
        note = f"{name}: gain {after - before:+.1f}"
        left.text((before + after) / 2, y + 0.2, note, ha="center", fontsize=14, color=colour)
    ends = [*start, *now]
    margin = max(2.0, 0.35 * (max(ends) - min(ends)))
    left.set(xlim=(min(ends) - margin, max(ends) + margin), ylim=(-0.6, 1.7), yticks=[])
    left.set_xlabel("log probability of the answer (hollow: at the start)")
    gap = (now[0] - start[0]) - (now[1] - start[1])
    reach = max(12.0, 1.3 * abs(gap))
    xs = np.linspace(-reach, reach, 200)
    right.plot(xs, np.logaddexp(0, -beta * xs), color=GREEN)
    right.plot(gap, np.logaddexp(0, -beta * gap), "o", markersize=11, color=GREEN)
    right.plot(0, np.log(2), "o", markersize=11, color="white", markeredgecolor=INK)
    right.set(xlim=(-reach, reach), ylim=(0, None))
    right.set_xlabel("gain of the preferred minus gain of the other")
    right.set_ylabel(f"loss, beta {beta:g}")
    return figure


def _box(
    axes: Axes,
    spot: tuple[float, float],
    size: tuple[float, float],
    text: str,
    tint: str,
    bold: bool = False,
) -> None:
    """A box around a spot, filled with a tint."""
    rounded_box(
        axes,
        spot,
        size,
        text,
        fill=TINTS[tint],
        fontsize=13,
        weight="bold" if bold else "normal",
    )


def _line(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.plot([start[0], end[0]], [start[1], end[1]], color=GREY, lw=1.6, zorder=1)
