"""LoRA and DoRA in a folder of the library `peft`.

One public matrix may be several of ours: GPT-2 has q, k and v in one. Reading cuts an update of it
into ours, which share its `down`. Writing joins ours into one that adds the same to the matrix. Its
rank is the sum of theirs, unless they share a `down`. A row's length (DoRA) stays as it is, for
each row belongs to one of ours.
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
from course_lib.peft.layout import Layout, Places, Stored
from course_lib.peft.lora import DoRALinear, LoRA, LoRALinear, Magnitude

PREFIX = "base_model.model."
DOWN = ".lora_A.weight"
UP = ".lora_B.weight"
MAGNITUDE = ".lora_magnitude_vector"
# How an update may begin. Every other way in `peft` changes the base's own matrix.
BEGINNINGS = ("true", "false", "gaussian", "orthogonal", "eva", "mica")


def _read(stored: Stored) -> Callable[[], None]:
    """What puts a folder's updates into the model; a `CourseError` if they do not fit."""
    _check_beginning(stored.config)
    updates = {name: tensor for name, tensor in stored.weights.items() if ".lora_" in name}
    for name in updates:
        del stored.weights[name]  # what is left is not ours to read
    targets = [name.removesuffix(DOWN) for name in updates if name.endswith(DOWN)]
    parts = [DOWN, UP, MAGNITUDE] if stored.config.get("use_dora") else [DOWN, UP]
    expected: set[str] = set()
    for target in targets:
        expected |= {target + part for part in parts}
    if not targets or updates.keys() != expected:
        raise CourseError(
            "The folder has updates of other things than Linears, or of another form than B A."
        )
    layers: dict[str, LoRALinear] = {}
    for target in targets:
        layers |= _layers(stored, target, updates)

    def install() -> None:
        for name, layer in layers.items():
            put(stored.model, name, layer.train(layer.base.training))

    return install


def _check_beginning(config: Mapping[str, Any]) -> None:
    """Refuse an update that began by taking a part out of the base's matrix.

    Raises:
        CourseError: the folder holds what was added, but not what was taken out.
    """
    beginning = config.get("init_lora_weights", True)
    if str(beginning).lower() not in BEGINNINGS:
        raise CourseError(
            f"init_lora_weights is {beginning}, which changes the base's own weights too. Merge the"
            " adapter in `peft` (merge_and_unload), and load the merged model."
        )


def _layers(stored: Stored, target: str, updates: Mapping[str, Tensor]) -> dict[str, LoRALinear]:
    """Our Linears that one public matrix is, each with its part of the update beside it."""
    down = updates[target + DOWN]
    place = stored.places.get(f"{target}.weight")
    names = [] if place is None else _linear_names(place)
    linears = {name: m for name, m in stored.model.named_modules() if isinstance(m, Base)}
    fits = [name in linears and linears[name].in_features == down.shape[1] for name in names]
    if place is None or not names or not all(fits):
        raise CourseError(
            f"The folder's update of {target} does not fit this model; is it of another base?"
        )
    config = stored.config
    _check_target(config, target)
    rank = _of_target(config, target, "rank_pattern", config.get("r", 8))
    if rank != len(down):
        raise CourseError(
            f"The rank of {target} is {rank} in adapter_config.json and {len(down)} in the file."
        )
    alpha = _of_target(config, target, "alpha_pattern", config.get("lora_alpha", 8))
    if config.get("use_rslora"):
        alpha *= math.sqrt(rank)  # its strength is alpha / sqrt(r) (Kalajdzievski 2023)
    dropout = config.get("lora_dropout", 0.0)
    kind = DoRALinear if config.get("use_dora") else LoRALinear

    shared = nn.Parameter(down)  # one above q, k and v, trained as one
    ups = _rows_to_ours(place, updates[target + UP]).chunk(len(names))
    layers = {}
    for name, up in zip(names, ups, strict=True):
        layer = kind(linears[name], rank, alpha, dropout)
        layer.lora.down = shared
        layer.lora.up.data = up.clone()
        # MiCA begins with a good B, and trains A alone.
        layer.lora.up.requires_grad_(config.get("init_lora_weights") != "mica")
        layers[name] = layer
    if kind is DoRALinear:
        lengths = updates[target + MAGNITUDE][:, None]  # O 1
        of_layers = _rows_to_ours(place, lengths)[:, 0].chunk(len(names))
        for layer, length in zip(layers.values(), of_layers, strict=True):
            cast(DoRALinear, layer).magnitude.weight.data = length.clone()
    return layers


def _check_target(config: Mapping[str, Any], target: str) -> None:
    """Refuse an update that the file holds and adapter_config.json leaves out.

    Raises:
        CourseError: `peft` would leave it out too, without a word.
    """
    is_named = _names(config.get("target_modules"), target)
    is_excluded = _names(config.get("exclude_modules"), target)
    if is_excluded or not is_named or not _is_in_layers(config, target):
        raise CourseError(
            f"The file has an update of {target}, but adapter_config.json leaves it out"
            " (target_modules, exclude_modules, layers_to_transform); correct one of them."
        )


def _names(modules: str | list[str] | None, target: str) -> bool:
    """Whether a field names a module: by a pattern, or by the end of its name."""
    if isinstance(modules, str):
        return modules == "all-linear" or re.fullmatch(modules, target) is not None
    return any(f".{target}".endswith(f".{name}") for name in modules or [])


def _is_in_layers(config: Mapping[str, Any], target: str) -> bool:
    """Whether a module stands in one of the layers that layers_to_transform counts, if it does."""
    wanted = config.get("layers_to_transform")
    patterns = config.get("layers_pattern") or r"[^.]*"
    if wanted is None or wanted == []:
        return True
    if isinstance(wanted, int):
        wanted = [wanted]
    if isinstance(patterns, str):
        patterns = [patterns]
    # The first number behind the list of layers: 3 in "bert.encoder.layer.3.attention".
    numbers = [re.match(rf"(?:.*?\.)?(?:{pattern})\.(\d+)\.", target) for pattern in patterns]
    return any(match is not None and int(match[1]) in wanted for match in numbers)


def _of_target(config: Mapping[str, Any], target: str, patterns: str, default: Any) -> Any:
    """A setting of one update: of the first pattern that its name fits, or of all."""
    for pattern, value in (config.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", target):
            return value
    return default


def _write(model: nn.Module, places: Places) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The folder's configuration and weights."""
    modules = model.named_modules()
    layers = {name: module for name, module in modules if isinstance(module, LoRALinear)}
    use_dora = any(isinstance(layer, DoRALinear) for layer in layers.values())
    if use_dora and not all(isinstance(layer, DoRALinear) for layer in layers.values()):
        raise CourseError("With `peft` all updates of a model are DoRA's or none is.")
    weights: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    left = set(layers)
    for public, place in places.items():
        names = _linear_names(place)
        updated = [layers[name] for name in names if name in layers]
        if not updated:
            continue
        target = public.removesuffix(".weight")
        ups = [_scaled_up(model, name, layers.get(name)) for name in names]
        if len(updated) == len(names) and len({layer.lora.down for layer in updated}) == 1:
            down: Tensor = updated[0].lora.down  # r I
            up = torch.cat(ups)  # O r
        else:
            # The downs one below the other read x; each up on the diagonal writes its own rows.
            down = torch.cat([layer.lora.down for layer in updated])  # sum of r, I
            up = torch.block_diag(*ups)  # type: ignore[no-untyped-call]  # O, sum of r
        weights[PREFIX + target + DOWN] = down
        weights[PREFIX + target + UP] = _rows_to_public(place, up)
        if use_dora:
            lengths = torch.cat([_row_lengths(model, name) for name in names])  # O
            weights[PREFIX + target + MAGNITUDE] = _rows_to_public(place, lengths[:, None])[:, 0]
        ranks[target] = len(down)
        left -= set(names)
    if left:
        raise CourseError(f"{min(left)} has an update, but `peft` has no place for it.")
    values = {
        "peft_type": "LORA",
        "use_dora": use_dora,
        "target_modules": list(ranks),
        "rank_pattern": ranks,
        "alpha_pattern": ranks,  # alpha = r, because our alpha / r is in B already
        "lora_dropout": max(layer.lora.dropout.p for layer in layers.values()),
        "fan_in_fan_out": any(_is_transposed(place) for place in places.values()),
    }
    return values, weights


def _linear_names(place: Converted) -> list[str]:
    """Our Linears, of a place that is a matrix."""
    return [name.removesuffix(".weight") for name in place.ours if name.endswith(".weight")]


def _is_transposed(place: Converted) -> bool:
    """Whether the public matrix is [in, out]. An update of it is [out, in] all the same."""
    return place.to_ours is transposed


def _rows_to_ours(place: Converted, x: Tensor) -> Tensor:
    """Rows of outputs, [O, any], from their order to ours (DeBERTa's stand head by head)."""
    return x if _is_transposed(place) else place.to_ours(x)


def _rows_to_public(place: Converted, x: Tensor) -> Tensor:
    """The reverse of `_rows_to_ours`."""
    return x if _is_transposed(place) else place.to_public(x)


def _scaled_up(model: nn.Module, name: str, layer: LoRALinear | None) -> Tensor:
    """B with alpha / r in it; without columns where a Linear has no update."""
    if layer is None:
        weight = cast(Tensor, model.get_submodule(name).weight)
        return weight.new_zeros(len(weight), 0)
    return layer.lora.alpha / layer.lora.rank * layer.lora.up


def _row_lengths(model: nn.Module, name: str) -> Tensor:
    """The trained lengths of a Linear's rows; without an update those that they have."""
    module = model.get_submodule(name)
    if isinstance(module, DoRALinear):
        return module.magnitude.weight
    return torch.linalg.vector_norm(cast(Tensor, module.weight).detach(), dim=1)


LAYOUT = Layout(PREFIX, LoRALinear, (LoRA, Magnitude), _read, _write)
