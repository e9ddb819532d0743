"""Rotary positions in the plane: a query and a key turned by their places, moved by sliders, no kernel needed."""

import math

from course_lib.errors import CourseError
from course_lib.view.display import Html
from course_lib.view.html import card
from course_lib.view.style import BLUE, GREY, PALE, VERMILION

_UNIT, _MIDDLE = 105, 150  # pixels: length of a unit vector, centre of the picture

_SCRIPT = """
var bars = root.querySelectorAll('input');
function turned(v, place) {
var c = Math.cos(place * data.angle), s = Math.sin(place * data.angle);
return [v[0] * c - v[1] * s, v[0] * s + v[1] * c];
}
function put(name, v) {
var g = root.querySelector('[data-arrow=' + name + ']');
var x = data.middle + data.unit * v[0], y = data.middle - data.unit * v[1];
g.querySelector('line').setAttribute('x2', x);
g.querySelector('line').setAttribute('y2', y);
g.querySelector('circle').setAttribute('cx', x);
g.querySelector('circle').setAttribute('cy', y);
g.querySelector('text').setAttribute('x', x + 16 * v[0]);
g.querySelector('text').setAttribute('y', y - 16 * v[1] + 5);
}
function draw() {
var m = +bars[0].value, n = m + +bars[1].value;
var q = turned(data.q, m), k = turned(data.k, n);
put('q', q);
put('k', k);
var score = q[0] * k[0] + q[1] * k[1];
root.querySelector('output').textContent = 'query at ' + m + ', key at ' + n + ': score ' + score.toFixed(2);
}
bars.forEach(function(bar) { bar.addEventListener('input', draw); });
root.querySelector('.controls').hidden = false;
draw();
"""


def rotation(
    query: tuple[float, float] = (1.0, 0.0),
    key: tuple[float, float] = (0.8, 0.6),
    *,
    angle: float = 0.5,
    at: int = 6,
    distance: int = 1,
    reach: int = 12,
    title: str = "A query and a key, turned by their positions",
) -> Html:
    """One pair of components under rotary positions (Su et al. 2021, section 3.2.1).

    The first slider moves query and key together, the second the key alone. Where no script runs, the picture shows
    the first setting.

    Args:
        query, key: before turning; at most about 1.2 long.
        angle: radians a position.
        at, distance: place of the query, and of the key from there, at the start. reach: how far the query
            can be moved; the key by half as much to either side, so that no place is negative.
    """
    if max(math.hypot(*query), math.hypot(*key)) > 1.25:
        raise CourseError("rotation draws vectors up to a length of 1.25; divide yours by their length.")
    arrows = {"q": _turned(query, at * angle), "k": _turned(key, (at + distance) * angle)}
    score = sum(a * b for a, b in zip(arrows["q"], arrows["k"], strict=True))
    says = f"query at {at}, key at {at + distance}: score {score:.2f}"
    side = 2 * _MIDDLE
    svg = (
        f'<svg role="img" aria-label="Two arrows from the centre of a circle; {says}" viewBox="0 0 {side} {side}" '
        f'width="{side}" style="max-width:100%"><circle cx="{_MIDDLE}" cy="{_MIDDLE}" r="{_UNIT}" fill="none" '
        f'stroke="{GREY}" stroke-width="1"/><path d="M{_MIDDLE} 20V{side - 20}M20 {_MIDDLE}H{side - 20}" '
        f'stroke="{PALE}"/>{_arrow("q", arrows["q"], BLUE)}{_arrow("k", arrows["k"], VERMILION)}</svg>'
    )
    sliders = "".join(
        f'<label style="display:block;margin:4px 0">{text}<input type="range" min="{low}" max="{high}" value="{value}" '
        f'step="1" aria-label="{text}" style="width:100%;accent-color:{BLUE}"></label>'
        for text, low, high, value in (
            ("move both: position of the query", reach // 2, reach + reach // 2, at),
            ("move the key: its distance from the query", -reach // 2, reach // 2, distance),
        )
    )
    body = (
        f'<div style="display:flex;gap:24px;flex-wrap:wrap;align-items:center">{svg}'
        f'<div style="flex:1 1 16em"><p style="margin:0 0 8px 0"><output aria-live="polite">{says}</output></p>'
        f'<div class="controls" hidden>{sliders}</div></div></div>'
    )
    data = {"q": query, "k": key, "angle": angle, "unit": _UNIT, "middle": _MIDDLE}
    return Html(card("rotation", title, body, _SCRIPT, data), f"{title}: {says}")


def _turned(vector: tuple[float, float], by: float) -> tuple[float, float]:
    c, s = math.cos(by), math.sin(by)
    return vector[0] * c - vector[1] * s, vector[0] * s + vector[1] * c


def _arrow(name: str, vector: tuple[float, float], colour: str) -> str:
    x, y = _MIDDLE + _UNIT * vector[0], _MIDDLE - _UNIT * vector[1]
    return (
        f'<g data-arrow="{name}"><line x1="{_MIDDLE}" y1="{_MIDDLE}" x2="{x:.1f}" y2="{y:.1f}" stroke="{colour}" '
        f'stroke-width="3"/><circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/><text '
        f'x="{x + 16 * vector[0]:.1f}" y="{y - 16 * vector[1] + 5:.1f}" text-anchor="middle" font-size="16" '
        f'fill="{colour}">{name}</text></g>'
    )
