"""Beam search watched: which texts were followed, which were dropped, which one won; as a widget and as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import MONO, card
from course_lib.view.style import BLUE, GREY, INK, PALE, TINTS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Fate = Literal["kept", "ended", "dropped"]
FILL = {"kept": TINTS["blue"], "ended": TINTS["green"], "dropped": "#ffffff"}
ROW, CHARACTER, GAP, HIGH = 34, 8.6, 46, 25  # pixels

_SCRIPT = """
var pick = root.querySelector('select');
var range = root.querySelector('input');
var out = root.querySelector('output');
var panes = root.querySelectorAll('[data-search]');
function draw() {
var here = pick.selectedIndex;
var last = data[here].length - 1;
range.max = last;
var at = Math.min(+range.value, last);
panes.forEach(function(pane, i) { pane.hidden = i !== here; });
panes[here].querySelectorAll('[data-step]').forEach(function(g) {
g.style.visibility = +g.getAttribute('data-step') > at ? 'hidden' : 'visible';
});
out.textContent = data[here][at];
}
pick.addEventListener('change', function() { range.max = 999; range.value = 999; draw(); });
range.addEventListener('input', draw);
root.querySelectorAll('h4').forEach(function(h) { h.hidden = true; });
root.querySelector('.controls').hidden = false;
root.querySelector('.controls').style.display = 'flex';
range.value = 0;
draw();
"""


@dataclass(frozen=True)
class Option:
    """One way to go on. parent: its place among the texts kept at the step before (0 at the first step). token: what
    is added. score: sum of the log probabilities. fate: whether it is followed, has ended, or is dropped."""

    parent: int
    token: str
    score: float
    fate: Fate


Steps = Sequence[Sequence[Option]]  # the options of each step, best first


@dataclass(frozen=True)
class _Node:
    option: Option
    step: int  # from 1
    row: int
    above: "_Node | None"

    @property
    def words(self) -> list[str]:
        return [*(self.above.words if self.above else []), self.option.token]


def beam_tree(
    searches: Mapping[str, Steps], *, length_penalty: float = 1.0, title: str = "Beam search, step by step"
) -> Html:
    """The searches as trees that grow with a slider; a menu picks one. Without scripts all are shown, whole.

    Args:
        searches: what a search is called ("2 beams") -> its steps.
        length_penalty: the winner has the best score / length ** length_penalty, as in `generate`.

    Raises:
        CourseError: no search, one without a step, an option whose parent was not kept.
    """
    if not searches:
        raise CourseError("beam_tree needs at least one search; the mapping is empty.")
    panes, says, lines = "", [], [title]
    for name, steps in searches.items():
        columns = _columns(steps)
        best = _winner(columns, length_penalty)
        panes += f'<div data-search style="overflow-x:auto"><h4 style="margin:8px 0 2px 0">{escape(name)}</h4>'
        panes += _svg(columns, best, name) + "</div>"
        says.append([_says(column, columns, best) for column in columns])
        lines.append(f"  {name}: {' '.join(best.words)} ({best.option.score:.2f})")
    options = "".join(f"<option>{escape(name)}</option>" for name in searches)
    menu = '<select aria-label="which search" style="font:inherit;padding:2px 6px">'
    controls = (
        '<div class="controls" hidden style="gap:12px;align-items:center;flex-wrap:wrap;margin-bottom:8px">'
        f"<label>search {menu}{options}</select></label>"
        f'<label>step <input type="range" min="0" max="{max(map(len, says)) - 1}" value="0" step="1" '
        f'aria-label="step of {escape(title)}" style="width:12em;accent-color:{BLUE};vertical-align:middle"></label>'
        '<output aria-live="polite"></output></div>'
    )
    key = " ".join(
        f'<span style="{MONO};border:1px solid #9aa0a6;border-radius:3px;padding:1px 6px;background:{FILL[fate]}">'
        f"{fate}</span>"
        for fate in FILL
    )
    legend = f'<div style="font-size:13px;margin-top:6px">{key} number: sum of log probabilities</div>'
    return Html(card("beam", title, controls + panes + legend, _SCRIPT, says), "\n".join(lines))


@styled
def beam_picture(steps: Steps, *, length_penalty: float = 1.0) -> "Figure":
    """One whole search as a figure: columns are steps, blue is followed, green has ended, white is dropped; bold: the
    winner's path."""
    from matplotlib.patches import FancyBboxPatch

    columns = _columns(steps)
    best = _winner(columns, length_penalty)
    left = _lefts(columns)
    right = left[-1] + _width(columns[-1])
    figure, axes = canvas(max(6.0, right / 78), max(2.4, (_rows(columns) + 0.6) * 0.43))
    axes.set_axis_off()
    axes.set_xlim(0, right + 8)
    axes.set_ylim(_rows(columns) * ROW + 4, -6)
    path = _path(best)
    for column in columns:
        for node in column:
            won, gone = node in path, node.option.fate == "dropped"
            start, end = _edge(node, columns, left)
            look: dict[str, Any] = {
                "color": BLUE if won else GREY,
                "linewidth": 3.0 if won else 1.1,
                "alpha": 0.45 if gone else 1.0,
            }
            axes.plot([start[0], end[0]], [start[1], end[1]], zorder=1, **look)
            axes.add_patch(
                FancyBboxPatch(
                    (end[0], end[1] - HIGH / 2), _width(column), HIGH, boxstyle="round,pad=0,rounding_size=3",
                    facecolor=FILL[node.option.fate], edgecolor=BLUE if won else "#9aa0a6", linewidth=2.2 if won else 1,
                )
            )  # fmt: skip
            note = f"{node.option.token}  {node.option.score:.1f}"
            axes.text(end[0] + 6, end[1], note, va="center", fontsize=10, color=GREY if gone else INK, zorder=3)
    return figure


def _columns(steps: Steps) -> list[list[_Node]]:
    if not steps or not all(steps):
        raise CourseError("A search needs at least one step, and each step at least one option.")
    columns: list[list[_Node]] = []
    kept: list[_Node] = []
    for number, options in enumerate(steps, start=1):
        column = []
        for row, option in enumerate(options):
            if number > 1 and not 0 <= option.parent < len(kept):
                raise CourseError(
                    f"Step {number}: {option.token!r} continues text {option.parent}, but {len(kept)} were kept."
                )
            column.append(_Node(option, number, row, kept[option.parent] if number > 1 else None))
        kept = [node for node in column if node.option.fate == "kept"]
        columns.append(column)
    return columns


def _winner(columns: list[list[_Node]], length_penalty: float) -> _Node:
    every = [node for column in columns for node in column if node.option.fate == "ended"]
    every = every or [node for node in columns[-1] if node.option.fate == "kept"] or columns[-1]
    return max(every, key=lambda node: node.option.score / node.step**length_penalty)


def _path(node: _Node | None) -> list[_Node]:
    return [] if node is None else [*_path(node.above), node]


def _says(column: list[_Node], columns: list[list[_Node]], best: _Node) -> str:
    step, count = column[0].step, len(columns)
    if step == count:
        return f"step {step} of {count}: the winner is “{' '.join(best.words)}” ({best.option.score:.2f})"
    followed = sum(node.option.fate == "kept" for node in column)
    ended = sum(node.option.fate == "ended" for node in column)
    leader = " ".join(column[0].words)
    return f"step {step} of {count}: {followed} followed, {ended} ended here; best: “{leader}”"


def _width(column: list[_Node]) -> float:
    return CHARACTER * (max(len(node.option.token) for node in column) + 6) + 10


def _lefts(columns: list[list[_Node]]) -> list[float]:
    """The left edge of each column, the start's dot before the first."""
    places = [30.0]
    for column in columns[:-1]:
        places.append(places[-1] + _width(column) + GAP)
    return places


def _rows(columns: list[list[_Node]]) -> int:
    return max(len(column) for column in columns)


def _edge(
    node: _Node, columns: list[list[_Node]], left: list[float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    end = left[node.step - 1], _height(node.row)
    if node.above is None:
        return (8.0, _height((_rows(columns) - 1) / 2)), end
    above = node.above
    return (left[above.step - 1] + _width(columns[above.step - 1]), _height(above.row)), end


def _height(row: float) -> float:
    return ROW * (row + 0.5)


def _svg(columns: list[list[_Node]], best: _Node, name: str) -> str:
    left = _lefts(columns)
    wide, high = round(left[-1] + _width(columns[-1]) + 8), round(_rows(columns) * ROW + 4)
    groups = ""
    for number, column in enumerate(columns):
        groups += f'<g data-step="{number}">' + "".join(_drawn(node, columns, left) for node in column) + "</g>"
    won = "".join(_outline(node, columns, left) for node in _path(best))
    groups += f'<g data-step="{len(columns) - 1}" fill="none" stroke="{BLUE}" stroke-width="3">{won}</g>'
    label = f"{escape(name)}: a tree of {len(columns)} steps; the winner is {escape(' '.join(best.words))}"
    middle = _height((_rows(columns) - 1) / 2)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
        f'<circle cx="8" cy="{middle:.0f}" r="5" fill="{GREY}"/>{groups}</svg>'
    )


def _drawn(node: _Node, columns: list[list[_Node]], left: list[float]) -> str:
    (x0, y0), (x1, y1) = _edge(node, columns, left)
    gone = node.option.fate == "dropped"
    line = f'stroke="{PALE if gone else GREY}" stroke-width="1.5"'
    wide = _width(columns[node.step - 1])
    return (
        f'<line x1="{x0:.0f}" y1="{y0:.0f}" x2="{x1:.0f}" y2="{y1:.0f}" {line}/>'
        f'<rect x="{x1:.0f}" y="{y1 - HIGH / 2:.0f}" width="{wide:.0f}" height="{HIGH}" rx="3" '
        f'fill="{FILL[node.option.fate]}" stroke="#9aa0a6"/>'
        f'<text x="{x1 + 6:.0f}" y="{y1 + 5:.0f}" font-size="14" fill="{GREY if gone else INK}" style="{MONO}">'
        f'{escape(node.option.token)} <tspan font-size="12" fill="{GREY}">{node.option.score:.1f}</tspan></text>'
    )


def _outline(node: _Node, columns: list[list[_Node]], left: list[float]) -> str:
    (x0, y0), (x1, y1) = _edge(node, columns, left)
    return (
        f'<line x1="{x0:.0f}" y1="{y0:.0f}" x2="{x1:.0f}" y2="{y1:.0f}"/><rect x="{x1:.0f}" y="{y1 - HIGH / 2:.0f}" '
        f'width="{_width(columns[node.step - 1]):.0f}" height="{HIGH}" rx="3"/>'
    )
