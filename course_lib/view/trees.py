"""A search for the next words, as a tree of what could be said."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.view.style import DASHES, GREY, INK, PALETTE, TINTS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Prefix = tuple[str, ...]


@styled
def search_tree(
    table: Mapping[Prefix, Mapping[str, float]],
    paths: Mapping[str, Sequence[str]] | None = None,
    *,
    size: tuple[float, float] = (9.5, 5.0),
) -> "Figure":
    """What may follow what, left to right, with the probability on each branch and the product at each end.

    Args:
        table: words so far -> (next word -> probability); () is the beginning.
        paths: name -> words, drawn bold in a colour of its own, its name at its end.
    """
    leaves = _leaves(table)
    if not leaves:
        raise CourseError("search_tree needs a table with the key (), the words that may come first.")
    ends = {leaf: float(index) for index, leaf in enumerate(leaves)}
    depth = max(len(leaf) for leaf in leaves)
    figure, axes = canvas(*size)
    axes.set_axis_off()
    axes.set_xlim(-0.25, depth + 1.0)
    axes.set_ylim(len(leaves) - 0.5, -0.6)
    chosen = {tuple(words): index for index, words in enumerate((paths or {}).values())}
    for node in sorted({leaf[:i] for leaf in leaves for i in range(len(leaf) + 1)}, key=lambda n: (len(n), n)):
        x, y = len(node), _height(node, ends)
        if node:
            parent = node[:-1]
            on = next((i for words, i in chosen.items() if words[: len(node)] == node), None)
            colour, thick = (GREY, 1.2) if on is None else (PALETTE[on], 3.4)
            up = _height(parent, ends)
            line: dict[str, Any] = {"color": colour, "linewidth": thick, "linestyle": DASHES[on or 0]}
            axes.plot([x - 1 + 0.2, x - 0.2], [up, y], zorder=1, **line)
            axes.text(
                x - 0.5, (up + y) / 2 - 0.13, f"{table[parent][node[-1]]:.2f}", ha="center", va="bottom", fontsize=12,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            )  # fmt: skip
        axes.text(
            x, y, node[-1] if node else "⟨start⟩", ha="center", va="center", fontsize=13, color=INK, zorder=3,
            bbox={"facecolor": TINTS["plain"], "edgecolor": "#9aa0a6", "boxstyle": "round,pad=0.3"},
        )  # fmt: skip
    for leaf, height in ends.items():
        names = [name for name, words in (paths or {}).items() if tuple(words) == leaf]
        colour = PALETTE[chosen[leaf]] if leaf in chosen else GREY
        note = f"{probability(table, leaf):.3f}" + "".join(f"   {name}" for name in names)
        axes.text(
            len(leaf) + 0.3, height, note, va="center", fontsize=13, color=colour, weight="bold" if names else None
        )
    return figure


def probability(table: Mapping[Prefix, Mapping[str, float]], words: Sequence[str]) -> float:
    """The product of the probabilities along the words."""
    result = 1.0
    for i, word in enumerate(words):
        result *= table[tuple(words[:i])][word]
    return result


def _leaves(table: Mapping[Prefix, Mapping[str, float]], node: Prefix = ()) -> list[Prefix]:
    if node not in table:
        return [node] if node else []
    return [leaf for word in table[node] for leaf in _leaves(table, (*node, word))]


def _height(node: Prefix, ends: Mapping[Prefix, float]) -> float:
    below = [height for leaf, height in ends.items() if leaf[: len(node)] == node]
    return (min(below) + max(below)) / 2
