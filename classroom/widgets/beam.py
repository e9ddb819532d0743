"""Beam search watched: which texts were followed, which were dropped, which one won."""

from collections.abc import Mapping, Sequence

from classroom.figures.display import Html
from classroom.figures.trees import FILL, ROW, TALL, BeamTree, Hypothesis, Option
from classroom.widgets.card import card


def beam_tree(
    searches: Mapping[str, Sequence[Sequence[Option]]], *, title: str = "Beam search, step by step"
) -> Html:
    """The searches as trees that grow with a slider; a menu picks one. Without scripts all are
    shown, whole.

    searches: what a search is called ("2 beams") -> the options of each step, best first.
    """
    trees = {name: BeamTree(steps) for name, steps in searches.items()}
    says = [
        [_says(tree, step) for step in range(1, len(tree.columns) + 1)] for tree in trees.values()
    ]
    panes = []
    for name, tree in trees.items():
        size = {
            "wide": round(tree.right + 8),
            "high": round(tree.rows * ROW + 4),
            "middle": tree.middle,
        }
        columns = [[_drawn(node) for node in column] for column in tree.columns]
        path = [_drawn(node) for node in tree.best.path]
        panes.append(
            {"name": name, "winner": tree.best.text, "columns": columns, "path": path, **size}
        )
    html = card(
        "beam", title, says, panes=panes, last=max(map(len, says)) - 1, fill=FILL, tall=TALL
    )
    won = [
        f"  {name}: {tree.best.text} ({tree.best.option.score:.2f})" for name, tree in trees.items()
    ]
    return Html(html, "\n".join([title, *won]))


def _drawn(node: Hypothesis) -> dict[str, object]:
    return {**vars(node), **vars(node.option), "gone": node.option.fate == "dropped"}


def _says(tree: BeamTree, step: int) -> str:
    column, count = tree.columns[step - 1], len(tree.columns)
    if step == count:
        return (
            f"step {step} of {count}: the winner is “{tree.best.text}”"
            f" ({tree.best.option.score:.2f})"
        )
    followed = sum(node.option.fate == "kept" for node in column)
    ended = sum(node.option.fate == "ended" for node in column)
    return (
        f"step {step} of {count}: {followed} followed, {ended} ended here; best: “{column[0].text}”"
    )
