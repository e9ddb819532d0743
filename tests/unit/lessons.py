"""What the tests of lessons share: a notebook's cells, and the answers folded away in it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import torch
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]


def cells_of(lesson: str) -> list[Any]:
    """The cells of `09_bert`."""
    return list(nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4).cells)


def answer(cells: list[Any], name: str, *swap: str) -> Any:
    """The function of a folded answer, as a student would write it; `swap`: a piece of it, what to write instead."""
    folded = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    source = next(code for code in re.findall(r"```python\n(.*?)```", folded, re.DOTALL) if f"def {name}(" in code)
    for old, new in zip(swap[::2], swap[1::2], strict=True):
        assert old in source
        source = source.replace(old, new)
    space: dict[str, Any] = {"torch": torch, "F": functional}
    exec(source, space)
    return space[name]


Slips = Sequence[tuple[str, tuple[str, ...], str]]  # a folded answer's name, what to swap in it, a word of the message


def right_and_wrong(cells: list[Any], slips: Slips) -> tuple[dict[str, Any], list[tuple[str, Any, str]]]:
    """RIGHT and WRONG of a lesson, as test_check.py collects them: the folded answers, and each with one slip."""
    right = {name: answer(cells, name) for name in dict.fromkeys(name for name, _, _ in slips)}
    return right, [(name, answer(cells, name, *swap), says) for name, swap, says in slips]


def run_cell(cells: list[Any], name: str, space: dict[str, Any]) -> dict[str, Any]:
    """Execute a cell, and its further parts (`ten-build`, `ten-build_2`, ...), in `space`."""
    sources = [cell.source for cell in cells if re.fullmatch(rf"{name}(_\d)?", cell.id)]
    assert sources, name
    for source in sources:
        exec(source, space)
    return space
