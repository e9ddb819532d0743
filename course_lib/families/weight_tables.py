"""Translates the names of public weights to ours and back. A table is public name -> our name.

    BODY = {
        "embeddings.word_embeddings.weight": "embed.tokens.weight",
        "embeddings.LayerNorm.*": "embed.norm.*",
        "encoder.layer.{layer}.output.dense.*": "blocks.{layer}.ff.down.*",
        "embeddings.position_ids": None,
    }

    {layer}        the number of a layer, for all layers
    *              "weight" and "bias"
    None           this public weight is not used
    Converted(...) the public file stores this weight in another form, or several in one tensor

The table of a similar family is a copy with other entries: `{**BODY, "pooler.dense.*": None}`.
`convert` goes from public weights to ours, `convert_back` from ours to public ones. Both raise an
error if the table does not cover a weight.
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
    """The tensor itself: most weights are stored in the same form."""
    return x


@dataclass(frozen=True)
class Converted:
    """How a public tensor stores one or more of our weights.

    Attributes:
        ours: our names. If there are several, the tensor holds them along dimension 0, after
            `to_ours`.
        to_ours: function from the public form to ours.
        to_public: function from our form to the public one.
        is_duplicate: an earlier entry has the same weight of ours. It is written under both names.
    """

    ours: tuple[str, ...]
    to_ours: Callable[[Tensor], Tensor] = unchanged
    to_public: Callable[[Tensor], Tensor] = unchanged
    is_duplicate: bool = False


Table = dict[str, str | Converted | None]
# A function of our model, if only some models of a family have a weight, for example a gate.
TableOf = Table | Callable[[Any], Table]


def table_for(table: TableOf, model: nn.Module) -> Table:
    """The table for this model."""
    return table(model) if callable(table) else table


def written_out(table: Table, model: nn.Module | None = None) -> dict[str, Converted]:
    """The table without `{layer}` and `*`: one entry for each public weight of a model.

    Args:
        table: the table of a body or of a head.
        model: our model, for the number of layers. A table without `{layer}` needs none.

    >>> list(written_out({"pooler.dense.*": "pooler.dense.*"}))
    ['pooler.dense.weight', 'pooler.dense.bias']
    """
    rows = {}
    for public, entry in table.items():
        weight = _as_converted(entry)
        endings = ("weight", "bias") if public.endswith("*") else ("",)
        for layer, ending in product(range(_layer_count(public, weight, model)), endings):
            ours = tuple(_filled(name, layer, ending) for name in weight.ours)
            rows[_filled(public, layer, ending)] = replace(weight, ours=ours)
    return rows


def _as_converted(entry: str | Converted | None) -> Converted:
    """An entry of a table as a `Converted`; None has no names of ours."""
    if entry is None:
        return Converted(())
    if isinstance(entry, str):
        return Converted((entry,))
    return entry


def _filled(name: str, layer: int, ending: str) -> str:
    return name.replace("{layer}", str(layer)).replace("*", ending)


def _layer_count(public: str, weight: Converted, model: Any) -> int:
    """How many layers have this weight; 1 if it belongs to no layer."""
    if "{layer}" not in public:
        return 1
    stack = model.stack
    # Encoder and decoder may have different numbers of layers.
    side = re.match(r"(?:stack\.)?(encoder|decoder)\.", "".join(weight.ours))
    if side is not None:
        stack = getattr(stack, side[1])
    return int(stack.config.layers)


def prefix_ours(prefix: str, table: Table) -> Table:
    """The same table, with a prefix before our names.

    With "stack.", "embed.norm.*" becomes "stack.embed.norm.*".
    """
    prefixed: Table = {}
    for public, entry in table.items():
        weight = _as_converted(entry)
        prefixed[public] = replace(weight, ours=tuple(prefix + name for name in weight.ours))
    return prefixed


def convert(weights: Mapping[str, Tensor], table: Table, model: nn.Module) -> dict[str, Tensor]:
    """Weights under public names to weights under ours.

    Args:
        weights: public name -> tensor.
        table: the table of this model. Several entries may have the same weight of ours, because
            older files have another name for it. If a file has both, the last entry counts.
        model: our model, for the number of layers.

    Raises:
        CourseError: a public weight is not in the table, or a weight of ours that the table names
            is not in the file.
    """
    rows = written_out(table, model)
    _check_unknown(weights, rows)
    _check_missing(weights, rows)
    converted: dict[str, Tensor] = {}
    for public, row in rows.items():
        if public not in weights or not row.ours:  # not in this file, or not used
            continue
        parts = row.to_ours(weights[public]).chunk(len(row.ours))
        for ours, part in zip(row.ours, parts, strict=True):
            converted[ours] = part.contiguous()
    return converted


def _check_unknown(weights: Mapping[str, Tensor], rows: Mapping[str, Converted]) -> None:
    unknown = sorted(weights.keys() - rows.keys())
    if unknown:
        raise CourseError(
            f"The checkpoint holds {' and '.join(unknown[:2])}, for which there is no rule. It is"
            " of another model, or its names are not those of transformers; convert it first."
        )


def _check_missing(weights: Mapping[str, Tensor], rows: Mapping[str, Converted]) -> None:
    present = {rows[public].ours for public in weights}
    # If a weight has several public names, the error shows the first.
    first_names: dict[tuple[str, ...], str] = {}
    for public, row in rows.items():
        if row.ours:
            first_names.setdefault(row.ours, public)
    missing = sorted(public for ours, public in first_names.items() if ours not in present)
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
        CourseError: a weight of ours is not in the table, or the model lacks a weight that is in
            the table.
    """
    converted: dict[str, Tensor] = {}
    remaining = set(weights)
    for public, row in written_out(table, model).items():
        absent = [ours for ours in row.ours if ours not in weights]
        if absent:
            raise CourseError(
                f"The model has no weight {absent[0]}, which the public layout needs."
            )
        if remaining.isdisjoint(row.ours) and not row.is_duplicate:
            continue  # not used, or an older name of a weight that is already written
        remaining -= set(row.ours)
        joined = torch.cat([weights[ours] for ours in row.ours])
        converted[public] = row.to_public(joined).contiguous()
    if remaining:
        raise CourseError(
            f"No rule says where {min(remaining)} goes in the public layout ({len(remaining)} such"
            " weights)."
        )
    return converted
