"""Vectors in the plane to move: words and their neighbours, and a query and a key turned by their
positions.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from classroom.figures.display import Html
from classroom.figures.style import GREY, Numbers, array
from classroom.widgets.card import card

_WIDE, _HIGH, _EDGE, _LINE = 760, 480, 46, 17  # pixels, of the map of words
_UNIT, _MIDDLE = 105, 150  # pixels: length of a unit vector, centre of the turned pair's picture


def word_map(
    points: Numbers,
    words: Sequence[str],
    near: Mapping[str, Sequence[tuple[str, float]]],
    *,
    title: str = "Words and their neighbours",
) -> Html:
    """A flat map of words; the one that is chosen, by a click or in the menu, is joined to its
    neighbours.

    points: [N 2], where each of the N words is drawn, moved a little so that no name covers
        another. near: for each word that can be chosen its neighbours in the full space and their
        cosines, best first.
    """
    places = dict(zip(words, _spread(array(points), words), strict=True))
    lists = {
        word: ", ".join(f"{name} {cosine:.2f}" for name, cosine in found)
        for word, found in near.items()
    }
    neighbours = {
        word: [[name, round(cosine, 2)] for name, cosine in found] for word, found in near.items()
    }
    data = {"near": neighbours, "at": places, "colour": GREY}
    html = card("word-map", title, data, places=places, lists=lists, wide=_WIDE, high=_HIGH)
    return Html(html, "\n".join([title, *(f"  {word}: {says}" for word, says in lists.items())]))


def _spread(xy: Any, words: Sequence[str]) -> list[list[float]]:
    """Places in pixels, moved apart by small steps until no name covers another (or a while has
    passed).
    """
    low, span = xy.min(0), (xy.max(0) - xy.min(0)).clip(min=1e-9)
    first, last = np.array([_EDGE, _EDGE]), np.array([_WIDE - 2 * _EDGE, _HIGH - _EDGE])
    at = first + (last - first) * np.stack([(xy - low)[:, 0], (low + span - xy)[:, 1]], 1) / span
    wide = np.array([8.0 * len(word) + 12 for word in words])
    need = (wide[:, None] + wide) / 2
    for _ in range(300):
        centre = at[:, 0] + wide / 2
        across, down = centre[:, None] - centre, at[:, None, 1] - at[:, 1]
        close = (abs(across) < need) & (abs(down) < _LINE)
        np.fill_diagonal(close, False)
        if not close.any():
            break
        up = np.where(
            down != 0, np.sign(down), np.sign(np.arange(len(at))[:, None] - np.arange(len(at)))
        )
        at[:, 1] += (close * up * (_LINE - abs(down))).sum(1) * 0.25
        at[:, 0] += (close * np.sign(across)).sum(1)
        at = at.clip(first / 2, last + [0, _EDGE / 2])
    return [[round(float(x), 1), round(float(y), 1)] for x, y in at]


def rotation(
    query: tuple[float, float] = (1.0, 0.0),
    key: tuple[float, float] = (0.8, 0.6),
    *,
    angle: float = 0.5,
    title: str = "A query and a key, turned by their positions",
) -> Html:
    """One pair of components under rotary positions (Su et al. 2021, section 3.2.1).

    The first slider moves query and key together, the second the key alone.
    query, key: before turning; at most about 1.2 long. angle: radians a position.
    """
    at, distance = 6, 1
    q, k = _turned(query, at * angle), _turned(key, (at + distance) * angle)
    score = sum(a * b for a, b in zip(q, k, strict=True))
    says = f"query at {at}, key at {at + distance}: score {score:.2f}"
    sliders = (
        ("move both: position of the query", 6, 18, at),
        ("move the key: its distance from the query", -6, 6, distance),  # no place is negative
    )
    data = {"q": query, "k": key, "angle": angle, "unit": _UNIT, "middle": _MIDDLE}
    html = card(
        "rotation", title, data, says=says, q=q, k=k, unit=_UNIT, middle=_MIDDLE, sliders=sliders
    )
    return Html(html, f"{title}: {says}")


def _turned(vector: tuple[float, float], by: float) -> tuple[float, float]:
    c, s = math.cos(by), math.sin(by)
    return vector[0] * c - vector[1] * s, vector[0] * s + vector[1] * c
