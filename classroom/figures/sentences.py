"""Sentence vectors and search: two ways to compare texts, pooling, a batch as a matrix, sentence
space as a map, and what a search has found.
"""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from classroom.figures.display import Html
from classroom.figures.style import (
    BLUE,
    GREY,
    INK,
    PALETTE,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    blue,
    canvas,
    centred,
    panels,
    styled,
)
from classroom.figures.tables import html_table, table
from classroom.templates import escape

MONO = "DejaVu Sans Mono"
MARKERS = "osD^vPX<"


def ranking(texts: Sequence[str], scores: Numbers, k: int = 5) -> Html:
    """The k texts with the largest scores, best first, with a bar for each score.

    Args:
        texts: that were searched.
        scores: one for each text, [N] or [1 N].
        k: how many are shown.
    """
    values = array(scores).reshape(-1)
    order = np.argsort(-values, kind="stable")[:k]
    largest = max(float(values[order[0]]), 1e-9)
    rows = []
    for number in order:
        share = max(0.0, float(values[number]) / largest)
        bar = (
            f'<span style="display:inline-block;height:10px;width:{80 * share:.0f}px;'
            f'background:{BLUE};border-radius:2px" aria-hidden="true"></span>'
        )
        rows.append([f"{values[number]:.2f}", bar, escape(texts[number])])
    text = "\n".join(f"{values[i]:.2f}  {texts[i]}" for i in order)
    html = html_table(["score", "", "text"], rows, text=(1, 2))
    return Html(f'<div style="overflow-x:auto">{html}</div>', text)


def duel(
    questions: Sequence[str],
    answers: Sequence[Collection[int]],
    searches: Mapping[str, Numbers],
    k: int = 3,
) -> Html:
    """The questions on which two searches differ most, and where each puts a right text.

    Args:
        questions: Q of them.
        answers: of each question the numbers of the right texts.
        searches: two, name -> scores [Q N].
        k: how many are shown of either side.
    """
    places: dict[str, list[int]] = {}
    for name, scores in searches.items():
        orders = np.argsort(-array(scores), axis=1, kind="stable")
        found = zip(orders, answers, strict=True)
        places[name] = [1 + int(np.isin(order, list(right)).argmax()) for order, right in found]
    first, second = places.values()
    by_lead = sorted(range(len(questions)), key=lambda i: first[i] - second[i])
    chosen = [*by_lead[::-1][:k], *by_lead[:k][::-1]]
    rows = []
    for i in chosen:
        rows.append({"question": questions[i]} | {name: of[i] for name, of in places.items()})
    return table(rows)


@styled
def two_encoders(question: str, texts: Sequence[str]) -> Figure:
    """A cross-encoder, which reads each pair together, beside a bi-encoder, which reads each text
    alone.

    Args:
        question: what is compared with the texts; one short word is enough.
        texts: three short ones.
    """
    figure, (left, right) = panels(11.2, 4.3, 1, 2)
    left.set_title("Cross-encoder: reads every pair together", loc="center")
    for i, text in enumerate(texts):
        x = 2.2 * i
        _card(left, x, 0.0, 2.0, 0.62, f"{question} [SEP] {text}", "plain", size=10.5)
        arrow(left, (x, 0.34), (x, 0.98))
        _card(left, x, 1.4, 1.7, 0.8, "BERT", "blue")
        arrow(left, (x, 1.82), (x, 2.46))
        _card(left, x, 2.8, 1.3, 0.62, "score", "orange")
    centred(left, 2.2, 3.75, f"{len(texts)} pairs, {len(texts)} runs", color=GREY, fontsize=12)

    right.set_title("Bi-encoder: reads every text once", loc="center")
    for i, text in enumerate([question, *texts]):
        x = 1.65 * i
        tint = "yellow" if i == 0 else "plain"
        _card(right, x, 0.0, 1.45, 0.62, text, tint, size=10.5)
        arrow(right, (x, 0.34), (x, 0.98))
        _card(right, x, 1.4, 1.3, 0.8, "BERT", "blue")
        arrow(right, (x, 1.82), (x, 2.36))
        _card(right, x, 2.6, 1.2, 0.42, "vector", "green", size=11)
        if i > 0:  # the question's vector is compared with each text's
            right.plot([0, 0, x, x], [2.84, 3.12, 3.12, 2.84], color=GREY, lw=1.3, zorder=0)
    centred(right, 3.3, 3.36, "cosine of two vectors = score", color=INK, fontsize=12)
    said = "each text once, in advance; one run per question"
    centred(right, 2.475, 3.75, said, color=GREY, fontsize=12)
    left.set(xlim=(-1.2, 5.6), ylim=(-0.5, 4.0))
    right.set(xlim=(-0.95, 5.9), ylim=(-0.5, 4.0))
    for axes in (left, right):
        axes.set_axis_off()
    return figure


def _card(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str,
    tint: str,
    size: float = 13,
) -> None:
    """A rounded box with its middle at (x, y)."""
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=TINTS[tint],
            edgecolor=GREY,
            linewidth=1,
            zorder=3,
        )
    )
    centred(axes, x, y, text, fontsize=size, color=INK, zorder=4)


@styled
def pooling(tokens: Sequence[str], vectors: Numbers, mask: Sequence[bool]) -> Figure:
    """Token vectors as columns of numbers, and the two sentence vectors that come of them: the
    first one, and the mean of the real ones.

    Args:
        tokens: of one row of a batch, padding too.
        vectors: [T, D] with a small D; every number is written in its cell.
        mask: True for real tokens.
    """
    values = array(vectors)
    real = np.array(mask, dtype=bool)
    mean = values[real].mean(0)
    figure, axes = canvas(11.2, 3.9)
    count, width = values.shape
    for t in range(count):
        _card(axes, t, 0.0, 0.92, 0.72, tokens[t], "plain" if real[t] else "dark", size=12)
        _column(axes, t, values[t], faded=not real[t])
    padding = np.flatnonzero(~real)
    if len(padding):
        centred(axes, padding.mean(), -0.75, "not counted", color=GREY, fontsize=12)
    first, last = -2.2, count + 1.3  # where the two sentence vectors stand
    _column(axes, first, values[0], edge=VERMILION)
    _column(axes, last, mean, edge=BLUE)
    for x, name, colour in ((first, "[CLS] vector", VERMILION), (last, "mean vector", BLUE)):
        centred(axes, x, 0.0, name, fontsize=13, color=colour, weight="bold")
    top = 0.7 + 0.62 * width
    middle = 0.7 + 0.31 * width
    arrow(axes, (-0.5, middle), (first + 0.55, middle), color=VERMILION, lw=2.2)
    line: dict[str, Any] = {"color": BLUE, "lw": 2.2, "solid_capstyle": "round"}
    end = int(real.nonzero()[0][-1]) + 0.4  # the bracket over the real tokens ends here
    axes.plot([-0.4, -0.4, end, end], [top + 0.12, top + 0.35, top + 0.35, top + 0.12], **line)
    axes.plot([end / 2, end / 2, last], [top + 0.35, top + 0.7, top + 0.7], **line)
    arrow(axes, (last, top + 0.7), (last, top + 0.05), color=BLUE, lw=2.2)
    axes.set(xlim=(first - 1.1, last + 1.1), ylim=(-1.0, top + 0.9))
    axes.set_axis_off()
    return figure


def _column(
    axes: Axes, x: float, vector: Any, *, faded: bool = False, edge: str = "#9aa0a6"
) -> None:
    """A vector as cells above each other, the first number on top."""
    for row, value in enumerate(vector[::-1]):
        y = 0.7 + 0.62 * row
        fill = "#f4f5f6" if faded else blue(0.45 * abs(float(value)))
        axes.add_patch(
            Rectangle(
                (x - 0.42, y),
                0.84,
                0.62,
                facecolor=fill,
                edgecolor=edge,
                linewidth=1 if edge == "#9aa0a6" else 2,
                zorder=2,
            )
        )
        ink = "#9aa0a6" if faded else INK
        centred(axes, x, y + 0.31, f"{value:.1f}", fontsize=12, color=ink, zorder=3, family=MONO)


@styled
def batch_matrix(
    matrices: Mapping[str, Numbers],
    rows: Sequence[str] | None = None,
    *,
    x: str = "text",
    y: str = "query",
    digits: int = 2,
) -> Figure:
    """Square matrices of a batch [B B]: what belongs together stands on the diagonal, framed.

    Args:
        matrices: title -> cosines or probabilities; each has its own scale of colours from 0.
        rows: names of the pairs, cut where they are long; numbers from 1 without them.
        x: what the columns are.
        y: what the rows are.
        digits: decimals that are written; negative writes none.
    """
    named = {title: array(matrix) for title, matrix in matrices.items()}
    size = max(len(matrix) for matrix in named.values())
    side = 3.1 if len(named) > 2 else 3.9
    rows = [textwrap.shorten(name, 44, placeholder=" …") for name in rows] if rows else None
    letter = 11 if side > 3.5 else 10
    letters = 0.085 * max(map(len, rows)) if rows else 0.3
    figure, grid = panels(side * len(named) + letters, side + 0.35, 1, len(named))
    names = list(rows) if rows else [str(i + 1) for i in range(size)]
    for place, (axes, (title, matrix)) in enumerate(zip(grid, named.items(), strict=True)):
        count = len(matrix)
        axes.imshow(matrix, cmap="Blues", vmin=0, vmax=max(1.0, float(matrix.max())))
        for i in range(count):
            axes.add_patch(
                Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=VERMILION, linewidth=2.4)
            )
        for i in range(count if digits >= 0 else 0):
            for j in range(count):
                ink = "white" if matrix[i, j] > 0.6 else INK
                centred(axes, j, i, f"{matrix[i, j]:.{digits}f}", fontsize=letter, color=ink)
        axes.set_xticks(range(count), [str(i + 1) for i in range(count)])
        axes.set_yticks(range(count), names if place == 0 else [""] * count)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="center")
        axes.set_xlabel(x)
    grid[0].set_ylabel(y if rows is None else "")
    return figure


@styled
def sentence_map(
    spaces: Mapping[str, Numbers],
    topics: Sequence[str],
    shown: Sequence[str],
    *,
    question: str = "",
) -> Figure:
    """Texts as points, near each other where their vectors are (t-SNE on cosines); a panel for each
    encoder.

    Args:
        spaces: title -> vectors [n, E]; with a question the last row is its vector.
        topics: of each text; none, if they are not known.
        shown: at most eight topics that get a colour, a marker and their name.
        question: drawn as a star.
    """
    from sklearn.manifold import TSNE

    width = 4.5 if len(spaces) > 2 else 6.1
    figure, grid = panels(width * len(spaces), 5.4, 1, len(spaces))
    count = len(next(iter(spaces.values()))) - bool(question)
    kinds = np.array(list(topics) or [""] * count)
    for axes, (title, vectors) in zip(grid, spaces.items(), strict=True):
        values = array(vectors)
        unit = values / np.linalg.norm(values, axis=1, keepdims=True)
        perplexity = min(15.0, (len(unit) - 1) / 3)
        map_ = TSNE(metric="cosine", perplexity=perplexity, init="pca", random_state=0)
        xy = map_.fit_transform(unit)
        points = xy[: len(kinds)]
        others = ~np.isin(kinds, shown)
        axes.scatter(points[others, 0], points[others, 1], s=16, color="#c4c8cc", zorder=1)
        for index, topic in enumerate(shown):
            if topic not in kinds:
                continue
            own = points[kinds == topic]
            colour = PALETTE[index % len(PALETTE)]
            axes.scatter(
                own[:, 0], own[:, 1], s=58, color=colour, marker=MARKERS[index], zorder=2, lw=0
            )
            middle = np.median(own, axis=0)
            nearest = own[np.argmin(((own - middle) ** 2).sum(1))]
            axes.annotate(
                topic,
                nearest,
                xytext=(0, 9),
                textcoords="offset points",
                ha="center",
                color=colour,
                fontsize=13,
                weight="bold",
                zorder=4,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            )
        if question:
            axes.scatter(
                xy[-1, 0], xy[-1, 1], s=330, marker="*", color="#FFD23F", edgecolor=INK, zorder=5
            )
            is_right = xy[-1, 0] > (xy[:, 0].min() + xy[:, 0].max()) / 2
            axes.annotate(
                "your question",
                xy[-1],
                xytext=(-12 if is_right else 12, -14),
                textcoords="offset points",
                ha="right" if is_right else "left",
                fontsize=13,
                zorder=6,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
            )
        axes.set(xticks=[], yticks=[])
        axes.margins(0.06)
        axes.spines[:].set_visible(True)
        axes.set_title(title, loc="center")
    return figure
