"""Where a head looks, as arcs over a sentence: a figure, and a widget with a choice of head."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import card
from course_lib.view.style import BLUE, GREEN, GREY, INK, ORANGE, Numbers, array, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTER, GAP, HIGH = 9.4, 20, 26  # pixels: a letter, between words, an arc's height over its first neighbour
KINDS = {"governor": BLUE, "dependent": GREEN, "neither": ORANGE}
SAYS = {"governor": "at its governor", "dependent": "at a dependent of its own", "neither": "elsewhere"}

_SCRIPT = """
var menu = root.querySelector('select');
var say = root.querySelector('output');
var stage = root.querySelector('[data-arcs]');
var words = root.querySelectorAll('[data-word]');
var chosen = -1;
function draw() {
var arcs = data.heads[+menu.value];
var count = {governor: 0, dependent: 0, neither: 0};
stage.innerHTML = '';
arcs.forEach(function(arc, word) {
var kind = arc[2];
count[kind] += 1;
if (chosen >= 0 && chosen !== word) return;
var path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
path.setAttribute('d', arc[1]);
path.setAttribute('fill', 'none');
path.setAttribute('stroke', data.colours[kind]);
path.setAttribute('stroke-width', 1 + 4 * arc[3]);
path.setAttribute('stroke-opacity', 0.35 + 0.65 * arc[3]);
path.setAttribute('marker-end', 'url(#' + data.marker + '-' + kind + ')');
stage.appendChild(path);
});
if (chosen >= 0) {
var arc = arcs[chosen];
say.textContent = '\\u201c' + data.words[chosen] + '\\u201d looks most at \\u201c' + data.words[arc[0]] + '\\u201d, '
+ Math.round(100 * arc[3]) + '%: ' + data.says[arc[2]];
} else {
say.textContent = 'Words that look ' + Object.keys(count).map(function(kind) {
return data.says[kind] + ': ' + count[kind]; }).join(', ');
}
}
words.forEach(function(word, i) {
word.addEventListener('mouseenter', function() { chosen = i; draw(); });
word.addEventListener('mouseleave', function() { chosen = -1; draw(); });
word.addEventListener('focus', function() { chosen = i; draw(); });
word.addEventListener('blur', function() { chosen = -1; draw(); });
word.addEventListener('click', function() { chosen = i; draw(); });
});
menu.addEventListener('change', draw);
root.querySelector('.controls').hidden = false;
draw();
"""


@styled
def head_arcs(weights: Numbers, words: Sequence[str], governors: Sequence[int], *, title: str = "") -> "Figure":
    """One head over one sentence: above in grey the parse, from each word to its governor; below where the head looks,
    from each word to the other one that gets its largest weight. Blue: its governor; green, dashed: a dependent of its
    own; orange, dotted: neither.

    Args:
        weights: [W W], attention between words. governors: of each word the place of its governor, -1 at the root.

    Raises:
        CourseError: not as many weights or governors as words.
    """
    from matplotlib.figure import Figure

    matrix = _checked(array(weights)[None, None], words, governors)[0, 0]
    middles, wide = _middles(words)
    above = [_height(middles, i, g) for i, g in enumerate(governors) if g >= 0]
    looked = _looked(matrix)
    below = [_height(middles, i, j) for i, j in enumerate(looked)]
    top, bottom = max(above, default=0) + 12.0, max(below) + 12.0
    figure = Figure(figsize=(wide / 100, (top + bottom + 44 + (22 if title else 0)) / 100))
    axes = figure.add_axes((0, 0, 1, (top + bottom + 44) / (top + bottom + 44 + (22 if title else 0))))
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(-bottom - 22, top + 22)
    for word, x in zip(words, middles, strict=True):
        axes.text(x, 0, word, ha="center", va="center", fontsize=13, color=INK)
    for i, governor in enumerate(governors):
        if governor >= 0:
            _arc(axes, middles[i], middles[governor], 16, _height(middles, i, governor), GREY, "-", 1.2)
    dashes = {"governor": "-", "dependent": (0, (4, 1.5)), "neither": (0, (1, 1.2))}
    for i, j in enumerate(looked):
        kind = _kind(i, j, governors)
        thick = 1.2 + 2.4 * float(matrix[i, j])
        _arc(axes, middles[i], middles[j], -16, -_height(middles, i, j), KINDS[kind], dashes[kind], thick)
    if title:
        figure.text(0.01, 0.995, title, ha="left", va="top", fontsize=13)
    return figure


def head_player(
    weights: Numbers,
    words: Sequence[str],
    governors: Sequence[int],
    *,
    first: tuple[int, int] = (0, 0),
    title: str = "",
) -> Html:
    """The same with a choice of head, no kernel needed: point at a word, or tab to it, for its arc alone.

    Heads are called layer-head, both counted from 1. Where no script runs, the first one's arcs are shown.

    Args:
        weights: [L H W W]. first: the layer and head, from 0, that are shown first.

    Raises:
        CourseError: as for `head_arcs`; no such first head.
    """
    stack = _checked(array(weights), words, governors)
    layers, heads = stack.shape[:2]
    if not (0 <= first[0] < layers and 0 <= first[1] < heads):
        raise CourseError(f"head_player: there are {layers} layers of {heads} heads; first={first} is none of them.")
    middles, wide = _middles(words)
    top = max((_height(middles, i, g) for i, g in enumerate(governors) if g >= 0), default=0) + 10
    bottom = max(_height(middles, 0, len(words) - 1), HIGH) + 10
    base = top + 18
    drawn = []
    for matrix in stack.reshape(-1, len(words), len(words)):
        arcs = []
        for i, j in enumerate(_looked(matrix)):
            path = _path(middles[i], middles[j], base + 14, base + 14 + _height(middles, i, j))
            arcs.append([j, path, _kind(i, j, governors), round(float(matrix[i, j]), 3)])
        drawn.append(arcs)
    shown = first[0] * heads + first[1]
    name = f"{first[0] + 1}-{first[1] + 1}"
    marker = "arrow"
    options = "".join(
        f'<option value="{n}"{" selected" if n == shown else ""}>{n // heads + 1}-{n % heads + 1}</option>'
        for n in range(layers * heads)
    )
    gold = "".join(
        f'<path d="{_path(middles[i], middles[g], base - 18, base - 18 - _height(middles, i, g))}" fill="none" '
        f'stroke="{GREY}" marker-end="url(#{marker}-gold)"/>'
        for i, g in enumerate(governors)
        if g >= 0
    )
    texts = "".join(
        f'<g data-word tabindex="0" role="button" aria-label="where {escape(word)} looks" style="cursor:pointer">'
        f'<text x="{x:.1f}" y="{base}" text-anchor="middle" font-size="15" fill="{INK}">{escape(word)}</text></g>'
        for word, x in zip(words, middles, strict=True)
    )
    still = "".join(
        f'<path d="{path}" fill="none" stroke="{KINDS[kind]}" stroke-width="{1 + 4 * weight:.1f}" '
        f'marker-end="url(#{marker}-{kind})"/>'
        for _, path, kind, weight in drawn[shown]
    )
    key = ", ".join(f'<span style="color:{KINDS[kind]}"><strong>{SAYS[kind]}</strong></span>' for kind in KINDS)
    body = (
        '<p class="controls" hidden style="margin:0 0 6px 0"><label>head <select style="font:inherit">'
        f'{options}</select></label> <output aria-live="polite" style="margin-left:8px"></output></p>'
        f'<svg role="img" aria-label="Arcs of head {name} over the sentence" viewBox="0 0 {wide:.0f} '
        f'{base + bottom + 14:.0f}" width="{wide:.0f}" style="max-width:100%"><defs>{_markers(marker)}</defs>'
        f"{gold}{texts}<g data-arcs>{still}</g></svg>"
        f'<p style="margin:4px 0 0 0">Above: the parse. Below: where a word of the head looks most: '
        f"{key}.</p>"
    )
    data = {"words": list(words), "heads": drawn, "colours": KINDS, "says": SAYS, "marker": marker}
    told = [f"{words[i]} > {words[j]} ({SAYS[kind]})" for i, (j, _, kind, _) in enumerate(drawn[shown])]
    title = title or "Where does each head look?"
    return Html(card("head-arcs", title, body, _SCRIPT, data), f"{title}\n  head {name}: {', '.join(told)}")


def _checked(stack: Any, words: Sequence[str], governors: Sequence[int]) -> Any:
    if stack.ndim != 4 or stack.shape[2:] != (len(words), len(words)) or len(words) < 2:
        raise CourseError(
            f"Arcs need weights between the {len(words)} words, two at least; these have shape {list(stack.shape[2:])}."
        )
    if len(governors) != len(words) or not all(-1 <= g < len(words) and g != i for i, g in enumerate(governors)):
        raise CourseError("Arcs need of each word the place of another one, its governor, or -1 at the root.")
    return stack


def _looked(matrix: Any) -> list[int]:
    import numpy as np

    others = np.where(np.eye(len(matrix), dtype=bool), -1.0, matrix)
    return [int(j) for j in others.argmax(axis=-1)]


def _kind(word: int, looked: int, governors: Sequence[int]) -> str:
    return "governor" if governors[word] == looked else "dependent" if governors[looked] == word else "neither"


def _middles(words: Sequence[str]) -> tuple[list[float], float]:
    """Where the words stand, in pixels, and the width of the line."""
    middles, x = [], 8.0
    for word in words:
        wide = LETTER * max(2, len(word)) + GAP
        middles.append(x + wide / 2)
        x += wide
    return middles, x + 8


def _height(middles: Sequence[float], i: int, j: int) -> float:
    return float(HIGH * (abs(middles[i] - middles[j]) / 80) ** 0.6)


def _arc(axes: Any, x: float, to: float, foot: float, height: float, colour: str, dash: Any, thick: float) -> None:
    """Half of an ellipse with an arrow at its end."""
    import numpy as np

    side = 4 if to > x else -4  # arcs to and from a word do not share a foot
    x, to = x + side, to - side
    turn = np.linspace(0, np.pi, 40)
    xs, ys = (x + to) / 2 - (to - x) / 2 * np.cos(turn), foot + height * np.sin(turn)
    axes.plot(xs, ys, color=colour, linestyle=dash, linewidth=thick, solid_capstyle="butt")
    head = {"arrowstyle": "-|>", "color": colour, "linewidth": 0, "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (to, foot - (2 if height > 0 else -2)), (xs[-4], ys[-4]), arrowprops=head)


def _path(x: float, to: float, foot: float, peak: float) -> str:
    """Half of an ellipse as an SVG path; y grows downwards."""
    side = 4 if to > x else -4
    x, to = x + side, to - side
    sweep = int((to > x) == (peak < foot))
    return f"M {x:.1f} {foot:.1f} A {abs(to - x) / 2:.1f} {abs(peak - foot):.1f} 0 0 {sweep} {to:.1f} {foot:.1f}"


def _markers(name: str) -> str:
    return "".join(
        f'<marker id="{name}-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="{colour}"/></marker>'
        for kind, colour in {**KINDS, "gold": GREY}.items()
    )
