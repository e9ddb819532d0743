"""Attention to play with: pick a layer and a head, point at a word, see where it looks; as lines or
over a parse.
"""

from collections.abc import Sequence

from classroom.figures.display import Html
from classroom.figures.parse import (
    ARC_HEIGHT,
    RELATIONS,
    arc_height,
    checked_arcs,
    largest_other,
    relation,
    word_places,
)
from classroom.figures.style import GREY, Numbers, array
from classroom.widgets.card import card
from course_lib.errors import CourseError

ROW = 30
SAYS = {
    "governor": "at its governor",
    "dependent": "at a dependent of its own",
    "neither": "elsewhere",
}


def attention(
    weights: Numbers,
    words: Sequence[str],
    *,
    title: str = "Who looks at whom",
    first: tuple[int, int] = (0, -1),
) -> Html:
    """Interactive attention weights [H T T], or [L H T T] with a choice of layers too.

    Point at a word on the left, tab to it or tap it. Without scripts: the first head as a coloured
    table.

    first: the head and the place of the word that are chosen at the start; -1 for no word.
    """
    stack = array(weights)
    if stack.ndim == 3:
        stack = stack[None]
    if stack.ndim != 4 or stack.shape[2:] != (len(words), len(words)):
        shape = f"{len(words)} words; these have shape {list(stack.shape)}"
        raise CourseError(
            f"attention needs weights [H T T] or [L H T T] of one example, for {shape}."
        )
    layers, heads = stack.shape[:2]
    several, longest = layers > 1, round(9.2 * max(len(word) for word in words))
    left = max(80, longest + 24)
    right = left + 230
    data = {
        "words": list(words),
        "weights": (1000 * stack).round().astype(int).tolist(),
        "row": ROW,
        "left": left,
    }
    data |= {"right": right, "wide": right + longest + 80, "head": first[0], "first": first[1]}
    menus = [("layer", layers), ("head", heads)] if several else [("head", heads)]
    rows = list(zip(words, stack[0, first[0]].tolist(), strict=True))
    name = f"Layer 0, head {first[0]}" if several else f"Head {first[0]}"
    html = card("attention", title, data, menus=menus, first=name, words=words, rows=rows)
    return Html(
        html, f"{title}: {f'{layers} x ' if several else ''}{heads} heads over “{' '.join(words)}”"
    )


def head_player(
    weights: Numbers,
    words: Sequence[str],
    governors: Sequence[int],
    *,
    first: tuple[int, int] = (0, 0),
    title: str = "",
) -> Html:
    """`figures.head_arcs` with a choice of head: point at a word, or tab to it, for its arc alone.

    Heads are called layer-head, both counted from 1. Where no script runs, the first one's arcs are
    shown.

    weights: [L H W W]. first: the layer and head, from 0, that are shown first.
    """
    stack = checked_arcs(array(weights), words, governors)
    layers, heads = stack.shape[:2]
    middles, wide = word_places(words)
    parse = [
        (middles[i], middles[g], arc_height(middles, i, g))
        for i, g in enumerate(governors)
        if g >= 0
    ]
    base = max((height for *_, height in parse), default=0) + 10 + 18
    bottom = max(arc_height(middles, 0, len(words) - 1), ARC_HEIGHT) + 10
    drawn = []
    for matrix in stack.reshape(-1, len(words), len(words)):
        arcs = []
        for i, j in enumerate(largest_other(matrix)):
            path = _path(middles[i], middles[j], base + 14, base + 14 + arc_height(middles, i, j))
            arcs.append([j, path, relation(i, j, governors), round(float(matrix[i, j]), 3)])
        drawn.append(arcs)
    shown = first[0] * heads + first[1]
    name, marker, title = (
        f"{first[0] + 1}-{first[1] + 1}",
        "arrow",
        title or "Where does each head look?",
    )
    data = {
        "words": list(words),
        "heads": drawn,
        "colours": RELATIONS,
        "says": SAYS,
        "marker": marker,
    }
    html = card(
        "head-arcs",
        title,
        data,
        name=name,
        layers=layers,
        heads=heads,
        shown=shown,
        wide=wide,
        high=base + bottom + 14,
        base=base,
        marker=marker,
        markers={**RELATIONS, "gold": GREY},
        colours=RELATIONS,
        legend=SAYS,
        parse=[_path(x, to, base - 18, base - 18 - height) for x, to, height in parse],
        words=list(zip(words, middles, strict=True)),
        arcs=drawn[shown],
    )
    told = []
    for i, (j, _, kind, _) in enumerate(drawn[shown]):
        said = f" ({SAYS[kind]})" if kind in SAYS else ""
        told.append(f"{words[i]} > {words[j]}{said}")
    return Html(html, f"{title}\n  head {name}: {', '.join(told)}")


def _path(x: float, to: float, foot: float, peak: float) -> str:
    """Half of an ellipse as an SVG path; y grows downwards."""
    side = 4 if to > x else -4
    x, to = x + side, to - side
    sweep = int((to > x) == (peak < foot))
    return (
        f"M {x:.1f} {foot:.1f} A {abs(to - x) / 2:.1f} {abs(peak - foot):.1f} 0 0 {sweep} {to:.1f}"
        f" {foot:.1f}"
    )
