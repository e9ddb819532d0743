"""Which public weight is which of ours. A family has a table: public name -> our name.

    BODY = {
        "embeddings.word_embeddings.weight": "embed.tokens.weight",
        "embeddings.LayerNorm.*": "embed.norm.*",
        "encoder.layer.{layer}.output.dense.*": "blocks.{layer}.ff.down.*",
        "embeddings.position_ids": None,
    }

    {layer}        stands for the number of a layer
    *              stands for "weight" and for "bias"
    None           the weight is left out on purpose
    Converted(...) the public file stores this weight in another form, or several in one

A relative's table is a copy with some entries changed: `{**BODY, "pooler.dense.*": None}`.
`convert` reads a table from left to right, `convert_back` from right to left. Both are strict: no
weight is forgotten on either side.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError


def unchanged(x: Tensor) -> Tensor:
    """The same tensor."""
    return x


@dataclass(frozen=True)
class Converted:
    """How a public file stores weights of ours.

    Attributes:
        ours: our names; several, where the public tensor holds several, one below the other.
        to_ours: the public tensor to ours.
        to_public: the reverse.
        again: whether it is written although an entry before it holds the same weight of ours.
    """

    ours: tuple[str, ...]
    to_ours: Callable[[Tensor], Tensor] = unchanged
    to_public: Callable[[Tensor], Tensor] = unchanged
    again: bool = False


Table = dict[str, str | Converted | None]
# Some weights, as a gate's, are in some models of a family only: then a function of our model.
TableOf = Table | Callable[[Any], Table]


def table_for(table: TableOf, model: nn.Module) -> Table:
    """The table of one model of ours."""
    return table(model) if callable(table) else table


def written_out(table: Table, model: nn.Module | None = None) -> dict[str, Converted]:
    """The table without `{layer}` and `*`: an entry for each public weight of a model.

    Args:
        table: of a family or of a head.
        model: of ours, for the number of layers; a head's table needs none.
    """
    rows = {}
    for public, entry in table.items():
        weight = _as_converted(entry)
        endings = ("weight", "bias") if public.endswith("*") else ("",)
        for layer, ending in product(range(_layers(public, weight, model)), endings):
            ours = tuple(_filled(name, layer, ending) for name in weight.ours)
            rows[_filled(public, layer, ending)] = replace(weight, ours=ours)
    return rows


def _as_converted(entry: str | Converted | None) -> Converted:
    """An entry of a table in its longest form; without a name of ours if it is left out."""
    if entry is None:
        return Converted(())
    if isinstance(entry, str):
        return Converted((entry,))
    return entry


def _filled(name: str, layer: int, ending: str) -> str:
    return name.replace("{layer}", str(layer)).replace("*", ending)


def _layers(public: str, weight: Converted, model: Any) -> int:
    """How many layers have this weight; 1 if it belongs to no layer."""
    if "{layer}" not in public:
        return 1
    stack = model.stack
    # Encoder and decoder may differ in depth.
    side = re.match(r"(?:stack\.)?(encoder|decoder)\.", "".join(weight.ours))
    if side is not None:
        stack = getattr(stack, side[1])
    return int(stack.config.layers)


def under(prefix: str, table: Table) -> Table:
    """The same table, with a prefix in front of our names."""
    prefixed: Table = {}
    for public, entry in table.items():
        weight = _as_converted(entry)
        prefixed[public] = replace(weight, ours=tuple(prefix + name for name in weight.ours))
    return prefixed


def convert(weights: Mapping[str, Tensor], table: Table, model: nn.Module) -> dict[str, Tensor]:
    """Weights under public names to weights under ours.

    Args:
        weights: public name -> tensor.
        table: of this model. Several entries may name the same weight of ours: its name in older
            files and in newer ones. Of those that a file holds, the last one counts.
        model: of ours, for the number of layers.

    Raises:
        CourseError: a public weight is not in the table, or a weight of ours that the table names
            is not in the file.
    """
    rows = written_out(table, model)
    _check_unknown(weights, rows)
    _check_missing(weights, rows)
    converted: dict[str, Tensor] = {}
    for public, row in rows.items():
        if public not in weights or not row.ours:  # left out on purpose
            continue
        parts = row.to_ours(weights[public]).chunk(len(row.ours))
        for ours, part in zip(row.ours, parts, strict=True):
            converted[ours] = part.contiguous()
    return converted


def _check_unknown(weights: Mapping[str, Tensor], rows: Mapping[str, Converted]) -> None:
    """Each public weight is in the table."""
    unknown = sorted(weights.keys() - rows.keys())
    if unknown:
        raise CourseError(
            f"The checkpoint holds {unknown[0]}, for which there is no rule; is it of another"
            " model?"
        )


def _check_missing(weights: Mapping[str, Tensor], rows: Mapping[str, Converted]) -> None:
    """Each weight of ours comes from a public one."""
    present = {rows[public].ours for public in weights}
    # Of several public names of one weight, the first is the one to ask for.
    first: dict[tuple[str, ...], str] = {}
    for public, row in rows.items():
        if row.ours:
            first.setdefault(row.ours, public)
    missing = sorted(public for ours, public in first.items() if ours not in present)
    if missing:
        some = ", ".join(missing[:4])
        raise CourseError(
            f"The checkpoint lacks {len(missing)} weights that this model needs, among them {some}."
        )


def convert_back(
    weights: Mapping[str, Tensor], table: Table, model: nn.Module
) -> dict[str, Tensor]:
    """Weights under our names to weights under public ones.

    Raises:
        CourseError: a weight of ours is not in the table, or a weight that the table names is not
            there.
    """
    converted: dict[str, Tensor] = {}
    left = set(weights)
    for public, row in written_out(table, model).items():
        absent = [ours for ours in row.ours if ours not in weights]
        if absent:
            raise CourseError(
                f"The model has no weight {absent[0]}, which the public layout needs."
            )
        if left.isdisjoint(row.ours) and not row.again:
            continue  # left out on purpose, or an older name of what is written already
        left -= set(row.ours)
        joined = torch.cat([weights[ours] for ours in row.ours])
        converted[public] = row.to_public(joined).contiguous()
    if left:
        raise CourseError(
            f"No rule says where {sorted(left)[0]} goes in the public layout ({len(left)} such"
            " weights)."
        )
    return converted
