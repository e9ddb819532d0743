"""LoRA and DoRA updates in a folder of the library `peft`.

An update adds B A to a matrix (the paper's letters; our `up` is B and our `down` is A). One public
matrix may be several of ours. GPT-2's `c_attn` has our q, k and v below each other:

    c_attn: W [3D I], A [r I], B [3D r]      ->    q: A, the first D rows of B
                                                   k: A, the next D rows
                                                   v: A, the last D rows

Reading cuts B into three parts, and the three updates share one A. Writing joins them again. If q,
k and v have an A of their own, as after `lora(model)`, the joined update has rank 3r:

        [A of q]            [B of q               ]
    A = [A of k]        B = [        B of k       ]
        [A of v]            [                B of v]

DoRA also has a length for each row of W. Each row belongs to one of our matrices, so the lengths
are only cut and joined.

Letters: I inputs, O outputs, r rank.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families.gpt import transposed
from course_lib.families.weight_tables import Converted
from course_lib.peft.inject import Base, put
from course_lib.peft.layout import AdapterFiles, Layout, Rows
from course_lib.peft.lora import DoRALinear, LoRA, LoRALinear, Magnitude

PREFIX = "base_model.model."  # before the public name
DOWN = ".lora_A.weight"
UP = ".lora_B.weight"
MAGNITUDE = ".lora_magnitude_vector"  # DoRA's lengths
# Values of `init_lora_weights` that leave the base's matrix as it is. Others, such as "pissa", also
# subtract the initial update from it.
INITS_WITHOUT_CHANGE = ("true", "false", "gaussian", "orthogonal", "eva", "mica")


def _read(files: AdapterFiles) -> Callable[[], None]:
    """Check the updates of a folder. Return a function that puts them into the model."""
    _check_init(files.config)
    updates = {name: tensor for name, tensor in files.weights.items() if ".lora_" in name}
    for name in updates:
        del files.weights[name]  # the rest are whole weights, which folders.py reads
    targets = [name.removesuffix(DOWN) for name in updates if name.endswith(DOWN)]
    parts = [DOWN, UP, MAGNITUDE] if files.config.get("use_dora") else [DOWN, UP]
    expected: set[str] = set()
    for target in targets:
        expected |= {target + part for part in parts}
    if not targets or updates.keys() != expected:
        raise CourseError(
            "The folder has updates of other things than Linears, or of another form than B A."
        )
    layers: dict[str, LoRALinear] = {}
    for target in targets:
        layers |= _new_layers(files, target, updates)

    def install() -> None:
        for name, layer in layers.items():
            put(files.model, name, layer.train(layer.base.training))

    return install


def _check_init(config: Mapping[str, Any]) -> None:
    """Refuse an adapter whose initialisation has changed the base's matrix.

    The folder has the update, but not the changed matrix that belongs to it.
    """
    init = config.get("init_lora_weights", True)
    if str(init).lower() not in INITS_WITHOUT_CHANGE:
        raise CourseError(
            f"init_lora_weights is {init}, which changes the base's own weights too. Merge the"
            " adapter in `peft` (merge_and_unload), and load the merged model."
        )


def _new_layers(
    files: AdapterFiles, target: str, updates: Mapping[str, Tensor]
) -> dict[str, LoRALinear]:
    """The layers for the update of one public matrix: our name of a Linear -> its new layer.

    Args:
        files: the folder and the model.
        target: the public module, such as "transformer.h.0.attn.c_attn".
        updates: the tensors of all updates, by public name and ending.

    Raises:
        CourseError: the update does not fit the model or adapter_config.json.
    """
    down = updates[target + DOWN]  # r I
    row = files.rows.get(f"{target}.weight")
    names = [] if row is None else _linear_names(row)
    linears = {name: m for name, m in files.model.named_modules() if isinstance(m, Base)}
    fits = [name in linears and linears[name].in_features == down.shape[1] for name in names]
    if row is None or not names or not all(fits):
        raise CourseError(
            f"The folder's update of {target} does not fit this model; is it of another base?"
        )
    config = files.config
    _check_target(config, target)
    rank = _setting(config, target, "rank_pattern", config.get("r", 8))
    if rank != len(down):
        raise CourseError(
            f"The rank of {target} is {rank} in adapter_config.json and {len(down)} in the file."
        )
    alpha = _setting(config, target, "alpha_pattern", config.get("lora_alpha", 8))
    if config.get("use_rslora"):
        # rsLoRA scales by alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023).
        alpha *= math.sqrt(rank)
    dropout = config.get("lora_dropout", 0.0)
    kind = DoRALinear if config.get("use_dora") else LoRALinear

    shared_down = nn.Parameter(down)
    ups = _rows_to_ours(row, updates[target + UP]).chunk(len(names))
    layers = {}
    for name, up in zip(names, ups, strict=True):
        layer = kind(linears[name], rank, alpha, dropout)
        layer.lora.down = shared_down
        layer.lora.up.data = up.clone()
        # MiCA computes B from the base's matrix, and trains only A.
        layer.lora.up.requires_grad_(config.get("init_lora_weights") != "mica")
        layers[name] = layer
    if kind is DoRALinear:
        lengths = updates[target + MAGNITUDE][:, None]  # O 1
        lengths_by_layer = _rows_to_ours(row, lengths)[:, 0].chunk(len(names))
        for layer, layer_lengths in zip(layers.values(), lengths_by_layer, strict=True):
            cast(DoRALinear, layer).magnitude.weight.data = layer_lengths.clone()
    return layers


def _check_target(config: Mapping[str, Any], target: str) -> None:
    """Refuse an update in the file that adapter_config.json excludes.

    `peft` would ignore it without a warning.
    """
    is_named = _lists(config.get("target_modules"), target)
    is_excluded = _lists(config.get("exclude_modules"), target)
    if is_excluded or not is_named or not _is_in_layers(config, target):
        raise CourseError(
            f"The file has an update of {target}, but adapter_config.json leaves it out"
            " (target_modules, exclude_modules, layers_to_transform); correct one of them."
        )


def _lists(modules: str | list[str] | None, target: str) -> bool:
    """Whether `target_modules` or `exclude_modules` lists a module.

    The field is a regular expression for the whole name, or a list of endings: ["c_attn"] names
    every "transformer.h.{layer}.attn.c_attn".
    """
    if isinstance(modules, str):
        return modules == "all-linear" or re.fullmatch(modules, target) is not None
    return any(f".{target}".endswith(f".{name}") for name in modules or [])


def _is_in_layers(config: Mapping[str, Any], target: str) -> bool:
    """Whether a module is in a layer that `layers_to_transform` lists; None or [] means all."""
    wanted = config.get("layers_to_transform")
    patterns = config.get("layers_pattern") or r"[^.]*"
    if wanted is None or wanted == []:
        return True
    if isinstance(wanted, int):
        wanted = [wanted]
    if isinstance(patterns, str):
        patterns = [patterns]
    # The number of the layer: 3 in "bert.encoder.layer.3.attention", with the pattern "layer".
    numbers = [re.match(rf"(?:.*?\.)?(?:{pattern})\.(\d+)\.", target) for pattern in patterns]
    return any(match is not None and int(match[1]) in wanted for match in numbers)


def _setting(config: Mapping[str, Any], target: str, patterns: str, default: Any) -> Any:
    """A setting of one update, which may differ from the others' by a pattern of its name.

    With {"r": 8, "rank_pattern": {"c_proj": 4}} the rank of "transformer.h.0.attn.c_proj" is 4.

    Args:
        config: adapter_config.json.
        target: the public module.
        patterns: the field with the patterns, such as "rank_pattern".
        default: the setting of the other updates.
    """
    for pattern, value in (config.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", target):
            return value
    return default


def _write(model: nn.Module, rows: Rows) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The entries of adapter_config.json, and the updates by their names in the file."""
    modules = model.named_modules()
    layers = {name: module for name, module in modules if isinstance(module, LoRALinear)}
    use_dora = any(isinstance(layer, DoRALinear) for layer in layers.values())
    if use_dora and not all(isinstance(layer, DoRALinear) for layer in layers.values()):
        raise CourseError("With `peft` all updates of a model are DoRA's or none is.")
    weights: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    not_written = set(layers)
    for public, row in rows.items():
        names = _linear_names(row)
        updated = [layers[name] for name in names if name in layers]
        if not updated:
            continue
        target = public.removesuffix(".weight")
        ups = [_scaled_up(model, name, layers.get(name)) for name in names]
        # The set compares tensors by identity: it has one if all layers share the same A.
        if len(updated) == len(names) and len({layer.lora.down for layer in updated}) == 1:
            down: Tensor = updated[0].lora.down  # r I
            up = torch.cat(ups)  # O r
        else:
            # A below A, and each B in the rows of its own matrix, as drawn at the top.
            down = torch.cat([layer.lora.down for layer in updated])  # sum of r, I
            up = torch.block_diag(*ups)  # type: ignore[no-untyped-call]  # O, sum of r
        weights[PREFIX + target + DOWN] = down
        weights[PREFIX + target + UP] = _rows_to_public(row, up)
        if use_dora:
            lengths = torch.cat([_row_lengths(model, name) for name in names])  # O
            weights[PREFIX + target + MAGNITUDE] = _rows_to_public(row, lengths[:, None])[:, 0]
        ranks[target] = len(down)
        not_written -= set(names)
    if not_written:
        raise CourseError(f"{min(not_written)} has an update, but `peft` cannot store it.")
    entries = {
        "peft_type": "LORA",
        "use_dora": use_dora,
        "target_modules": list(ranks),
        "rank_pattern": ranks,
        "alpha_pattern": ranks,  # alpha / r is 1, because `_scaled_up` has multiplied B by ours
        "lora_dropout": max(layer.lora.dropout.p for layer in layers.values()),
        "fan_in_fan_out": any(_is_transposed(row) for row in rows.values()),
    }
    return entries, weights


def _linear_names(row: Converted) -> list[str]:
    """Our names of the Linears whose matrices are in one public tensor."""
    return [name.removesuffix(".weight") for name in row.ours if name.endswith(".weight")]


def _is_transposed(row: Converted) -> bool:
    """Whether the public matrix is [I, O], as in GPT-2. Its update B A is [O, I] nevertheless."""
    return row.to_ours is transposed


def _rows_to_ours(row: Converted, x: Tensor) -> Tensor:
    """Bring the rows of B, [O, any], from the public order into ours.

    DeBERTa's matrix has q, k and v of head 0, then of head 1, and so on; ours has all of q first.
    """
    return x if _is_transposed(row) else row.to_ours(x)


def _rows_to_public(row: Converted, x: Tensor) -> Tensor:
    """The reverse of `_rows_to_ours`."""
    return x if _is_transposed(row) else row.to_public(x)


def _scaled_up(model: nn.Module, name: str, layer: LoRALinear | None) -> Tensor:
    """alpha / r times B, so that the file needs no scale; [O, 0] for a Linear without an update."""
    if layer is None:
        weight = cast(Tensor, model.get_submodule(name).weight)
        return weight.new_zeros(len(weight), 0)
    return layer.lora.alpha / layer.lora.rank * layer.lora.up


def _row_lengths(model: nn.Module, name: str) -> Tensor:
    """The trained lengths of a Linear's rows (DoRA); its own lengths if it has no update."""
    module = model.get_submodule(name)
    if isinstance(module, DoRALinear):
        return module.magnitude.weight
    return torch.linalg.vector_norm(cast(Tensor, module.weight).detach(), dim=1)


LAYOUT = Layout(PREFIX, LoRALinear, (LoRA, Magnitude), _read, _write)
