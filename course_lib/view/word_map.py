"""Words in the plane: choose one and see its nearest neighbours in the full space, no kernel needed."""

from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import card
from course_lib.view.style import BLUE, GREY, INK, VERMILION, Numbers, array

_WIDE, _HIGH, _EDGE, _LINE = 760, 480, 46, 17  # pixels

_SCRIPT = """
var points = root.querySelectorAll('[data-word]');
var lines = root.querySelector('[data-lines]');
var list = root.querySelector('output');
var menu = root.querySelector('select');
function choose(word) {
var near = data.near[word] || [];
var names = near.map(function(pair) { return pair[0]; });
points.forEach(function(point) {
var name = point.getAttribute('data-word');
var on = name === word || names.indexOf(name) >= 0;
point.setAttribute('opacity', on ? 1 : 0.25);
point.querySelector('text').setAttribute('font-weight', name === word ? 700 : 400);
});
lines.innerHTML = '';
var from = data.at[word];
names.forEach(function(name) {
var to = data.at[name];
if (!to) return;
var line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
line.setAttribute('x1', from[0]);
line.setAttribute('y1', from[1]);
line.setAttribute('x2', to[0]);
line.setAttribute('y2', to[1]);
line.setAttribute('stroke', data.colour);
line.setAttribute('stroke-width', 1.5);
lines.appendChild(line);
});
list.textContent = near.map(function(pair) { return pair[0] + ' ' + pair[1].toFixed(2); }).join(', ');
menu.value = word;
}
points.forEach(function(point) {
point.addEventListener('click', function() { choose(point.getAttribute('data-word')); });
});
menu.addEventListener('change', function() { choose(menu.value); });
root.querySelector('.controls').hidden = false;
choose(menu.value);
"""


def word_map(
    points: Numbers,
    words: Sequence[str],
    near: Mapping[str, Sequence[tuple[str, float]]],
    *,
    title: str = "Words and their neighbours",
) -> Html:
    """A flat map of words; the one that is chosen, by a click or in the menu, is joined to its neighbours.

    A plane cannot hold all distances of many dimensions: the list of neighbours is of the full space, the places are
    a shadow of it, moved a little so that no name covers another. Where no script runs, all words are shown and
    the lists stand below.

    Args:
        points: [N 2], where each word is drawn. words: N of them.
        near: for each word that can be chosen its neighbours and their cosines, best first. Neighbours that are not on
            the map are only listed.

    Raises:
        CourseError: points that are no pairs or not one a word, a word to choose that is not on the map.
    """
    xy = array(points)
    if xy.shape != (len(words), 2):
        raise CourseError(f"word_map needs a point [2] for each of the {len(words)} words; it got {list(xy.shape)}.")
    if missing := [word for word in near if word not in words]:
        raise CourseError(f"word_map: {missing[0]!r} can be chosen but is not among the words of the map.")
    if not near:
        raise CourseError("word_map needs at least one word to choose; near is empty.")
    at = dict(zip(words, _spread(xy, words), strict=True))
    dots = "".join(_dot(word, *at[word], chosen=word in near) for word in words)
    lists = {word: ", ".join(f"{name} {cosine:.2f}" for name, cosine in found) for word, found in near.items()}
    options = "".join(f"<option>{escape(word)}</option>" for word in near)
    below = "".join(f"<li><strong>{escape(word)}</strong>: {escape(says)}</li>" for word, says in lists.items())
    body = (
        '<p class="controls" hidden style="margin:0 0 6px 0"><label>word <select style="font:inherit">'
        f'{options}</select></label> its nearest: <output aria-live="polite"></output></p>'
        f'<svg role="img" aria-label="{len(words)} words in the plane" viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" '
        f'style="max-width:100%"><g data-lines></g>{dots}</svg>'
        f"<details><summary>All neighbours as a list</summary><ul>{below}</ul></details>"
    )
    near_data = {word: [[name, round(cosine, 2)] for name, cosine in found] for word, found in near.items()}
    data = {"near": near_data, "at": at, "colour": GREY}
    text = "\n".join([title, *(f"  {word}: {says}" for word, says in lists.items())])
    return Html(card("word-map", title, body, _SCRIPT, data), text)


def _spread(xy: Any, words: Sequence[str]) -> list[list[float]]:
    """Places in pixels, moved apart by small steps until no name covers another (or a while has passed)."""
    import numpy as np

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
        up = np.where(down != 0, np.sign(down), np.sign(np.arange(len(at))[:, None] - np.arange(len(at))))
        at[:, 1] += (close * up * (_LINE - abs(down))).sum(1) * 0.25
        at[:, 0] += (close * np.sign(across)).sum(1)
        at = at.clip(first / 2, last + [0, _EDGE / 2])
    return [[round(float(x), 1), round(float(y), 1)] for x, y in at]


def _dot(word: str, x: float, y: float, *, chosen: bool) -> str:
    colour = VERMILION if chosen else BLUE
    cursor = ' style="cursor:pointer"' if chosen else ""
    return (
        f'<g data-word="{escape(word)}"{cursor}><circle cx="{x}" cy="{y}" r="{5 if chosen else 3.5}" fill="{colour}"/>'
        f'<text x="{x + 6}" y="{y - 5}" font-size="13" fill="{INK}">{escape(word)}</text></g>'
    )
