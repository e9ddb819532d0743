"""What the tests of lessons share: a notebook's cells, run one by one, and what a network or a
student would bring.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat
import torch

from course_lib import zoo
from course_lib.files import COURSE

ROOT = COURSE
UNCHANGED: Mapping[str, str] = MappingProxyType({})


@cache
def cells_of(lesson: str) -> list[Any]:
    """The code cells of `09_bert`."""
    cells = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def run_cells(
    lesson: str, space: dict[str, Any], *names: str, swap: Mapping[str, str] = UNCHANGED
) -> dict[str, Any]:
    """Execute cells in `space`, in their order, each with its further parts (`ten-build_2`); pieces
    are exchanged.
    """
    found = [(re.sub(r"_\d$", "", cell.id), cell.source) for cell in cells_of(lesson)]
    assert set(names) <= {name for name, _ in found}, names
    sources = [source for name, source in found if name in names]
    for old, new in swap.items():
        assert any(old in source for source in sources), old
        sources = [source.replace(old, new) for source in sources]
    for source in sources:
        exec(source, space)
    return space


def started(
    lesson: str,
    folder: Path,
    *names: str,
    source: Any = "world",
    swap: Mapping[str, str] = UNCHANGED,
    **known: Any,
) -> dict[str, Any]:
    """The lesson's first cells at scale smoke and further ones, in one space. known: as MODEL, or
    what cells made.
    """
    given = {
        "SCALE": "smoke",
        "SEED": 0,
        "DEVICE": "cpu",
        "DATA": str(source),
        "OUT": str(folder / "out"),
    }
    return run_cells(
        lesson, run_cells(lesson, {}, "parameters") | known | given, "start", *names, swap=swap
    )


def own_labels(folder: Path, pair: bool = False, rows: int = 40) -> str:
    """A student's folder of labelled texts, `mine train 7`, with a second text beside them if
    `pair`.
    """
    header = "text\tpair\tlabel" if pair else "text\tlabel"
    for name in ("train", "dev"):
        lines = [
            f"mine {name} {i}" + "\tyours" * pair + f"\t{('bad', 'good')[i % 2]}"
            for i in range(rows)
        ]
        (folder / f"{name}.tsv").write_text("\n".join([header, *lines]) + "\n", "utf-8")
    return str(folder)


def public(folder: Path, model: torch.nn.Module, tokenizer: Any, kind: str, head: str) -> str:
    """A model's folder in the public layout, as the hub has it."""
    zoo.save_pretrained(model, folder, model_type=kind, architecture=head)
    tokenizer.save(folder)
    return str(folder)
