"""LoRA and DoRA in a folder of the library `peft`.

One public matrix may be several of ours: GPT-2 has q, k and v in one. Reading cuts an update of it
into ours, which share its `down`. Writing joins ours into one whose rank is the sum of theirs; it
adds the same to the matrix. A row's length (DoRA) stays as it is, for each row belongs to one of
ours.
"""

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
REFUSED = (
    "use_rslora",
    "layer_replication",
    "alora_invocation_tokens",
    "use_qalora",
    "target_parameters",
)


def _read(stored: Stored) -> Callable[[], None]:
    """What puts a folder's updates into the model; a `CourseError` if they do not fit."""
    refused = [name for name in REFUSED if stored.config.get(name)]
    if refused:
        raise CourseError(
            f"adapter_config.json sets {refused[0]}, which the course's LoRA has not."
        )
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


def _layers(stored: Stored, target: str, updates: Mapping[str, Tensor]) -> dict[str, LoRALinear]:
    """Our Linears that one public matrix is, each with its part of the update beside it."""
    down = updates[target + DOWN]
    place = stored.places.get(f"{target}.weight")
    names = [] if place is None else _linear_names(place)
    linears = {name: m for name, m in stored.model.named_modules() if isinstance(m, Base)}
    fits = [name in linears and linears[name].in_features == down.shape[1] for name in names]
    if not names or not all(fits):
        raise CourseError(
            f"The folder's update of {target} does not fit this model; is it of another base?"
        )
    kind = DoRALinear if target + MAGNITUDE in updates else LoRALinear
    alpha = _alpha(stored.config, target)
    dropout = stored.config.get("lora_dropout", 0.0)
    shared = nn.Parameter(down)  # one above q, k and v, trained as one
    ups = updates[target + UP].chunk(len(names))
    layers = {}
    for name, up in zip(names, ups, strict=True):
        layer = kind(linears[name], len(down), alpha, dropout)
        layer.lora.down = shared
        layer.lora.up.data = up.clone()
        layers[name] = layer
    if kind is DoRALinear:
        lengths = updates[target + MAGNITUDE].chunk(len(names))
        for layer, length in zip(layers.values(), lengths, strict=True):
            cast(DoRALinear, layer).magnitude.weight.data = length.clone()
    return layers


def _alpha(config: Mapping[str, Any], target: str) -> float:
    """The strength of one update: of the first pattern that its name fits, or of all."""
    for pattern, alpha in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", target):
            return float(alpha)
    return float(config.get("lora_alpha", 8))


def _write(model: nn.Module, places: Places) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The folder's configuration and weights."""
    modules = model.named_modules()
    layers = {name: module for name, module in modules if isinstance(module, LoRALinear)}
    use_dora = any(isinstance(layer, DoRALinear) for layer in layers.values())
    if use_dora and not all(isinstance(layer, DoRALinear) for layer in layers.values()):
        raise CourseError("With `peft` all updates of a model are DoRA's or none is.")
    weights: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for public, place in places.items():
        names = _linear_names(place)
        updated = [layers[name] for name in names if name in layers]
        if not updated:
            continue
        target = public.removesuffix(".weight")
        # The downs one below the other read x; each up on the diagonal writes its own rows only.
        down = torch.cat([layer.lora.down for layer in updated])  # sum of r, I
        ups = [_scaled_up(model, name, layers.get(name)) for name in names]
        weights[PREFIX + target + DOWN] = down
        weights[PREFIX + target + UP] = torch.block_diag(*ups)  # type: ignore[no-untyped-call]
        if use_dora:
            lengths = [_row_lengths(model, name) for name in names]
            weights[PREFIX + target + MAGNITUDE] = torch.cat(lengths)
        ranks[target] = len(down)
    values = {
        "peft_type": "LORA",
        "use_dora": use_dora,
        "target_modules": list(ranks),
        "rank_pattern": ranks,
        "alpha_pattern": ranks,  # alpha = r, because our alpha / r is in B already
        "lora_dropout": max(layer.lora.dropout.p for layer in layers.values()),
        "fan_in_fan_out": any(place.to_ours is transposed for place in places.values()),
        "bias": "none",
    }
    return values, weights


def _linear_names(place: Converted) -> list[str]:
    """Our Linears, of a place that is a matrix."""
    return [name.removesuffix(".weight") for name in place.ours if name.endswith(".weight")]


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
