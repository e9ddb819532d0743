"""Trained weights in files: our own (one safetensors file), and the folders of the library `peft`,
in and out.

Their names are translated by the rules of `families`. Where one public matrix is several of ours
(GPT-2's q, k, v), an update of theirs is cut into ours, which share its A; ours become one of the
summed rank, which is the same update."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from course_lib.families.gpt import transposed
from course_lib.families.rules import Rule
from course_lib.files import atomic_write, read_json, write_json
from course_lib.model.transformer import Transformer
from course_lib.peft.front import Front, Prefixed, Prompted, Vectors
from course_lib.peft.methods import Base, LoRA, LoRALinear, Model, freeze, put

# of a public weight: its names in our model, several side by side; how it is converted
Place = tuple[list[str], Rule]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TASKS = {
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "Model": "FEATURE_EXTRACTION",
}
HEADS = ("classifier", "classification_head", "score", "qa_outputs")
NOT_OURS = (
    "With `peft` a pooler would read the prompt instead of [CLS], and two stacks have one prompt;"
    " here not."
)
REFUSED = (
    "use_dora",
    "use_rslora",
    "layer_replication",
    "alora_invocation_tokens",
    "use_qalora",
    "target_parameters",
)


def save(model: nn.Module, path: str | Path) -> None:
    """Write every trainable weight, and nothing else, to one safetensors file."""
    _write(
        {name: weight for name, weight in model.named_parameters() if weight.requires_grad},
        Path(path),
    )


@torch.no_grad()
def load(model: nn.Module, path: str | Path) -> None:
    """Read what `save` wrote into a model prepared by the same method with the same sizes. All or
    nothing.
    """
    weights = _read(Path(path))
    own = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if {name: x.shape for name, x in weights.items()} != {name: x.shape for name, x in own.items()}:
        how = "prepare it by the method, pattern and sizes that the file was saved with"
        raise CourseError(f"{path} does not fit this model; {how}.")
    for name, weight in own.items():
        weight.copy_(weights[name])


def _write(weights: Mapping[str, Tensor], path: Path) -> None:
    with atomic_write(path, "wb") as file:
        kept = {name: x.detach().contiguous() for name, x in weights.items()}
        file.write(to_bytes(kept, metadata={"format": "pt"}))


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return from_bytes(path.read_bytes())
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror or error}.") from None
    except SafetensorError as error:
        raise CourseError(
            f"{path} is no safetensors file, or a damaged one ({error}); fetch it again."
        ) from None


def load_pretrained(
    model: Model, folder: str | Path, *, model_type: str, architecture: str
) -> Model:
    """Put what `peft` has trained (LoRA, a prompt or a prefix, perhaps a head beside it) into the
    model of ours that equals its base, in place or not at all. The base is frozen. model_type,
    architecture: the base's, as `zoo.save_pretrained` takes them: "gpt2", "GPT2LMHeadModel"."""
    folder = Path(folder)
    values, places = read_json(folder / CONFIG), _places(model, model_type, architecture)
    if refused := [name for name in REFUSED if values.get(name)]:
        raise CourseError(f"{folder}/{CONFIG} sets {refused[0]}, which the course's LoRA has not.")
    method = values.get("peft_type")
    start = "base_model.model." if method == "LORA" else "base_model."
    stored = _read(folder / WEIGHTS).items()
    weights = {
        name.removeprefix(start).replace(".base_layer.", "."): x.float() for name, x in stored
    }
    table = weights.pop("prompt_embeddings", None)
    updates = {name: weights.pop(name) for name in list(weights) if ".lora_" in name}
    if not updates and table is None:
        raise CourseError(
            f"{folder} holds {method}; the course reads LORA, PROMPT_TUNING and PREFIX_TUNING."
        )
    whole = _fitting(model, weights, places)
    layers = _layers(model, values, updates, places)
    if table is not None:
        _put_in_front(model, table, method == "PROMPT_TUNING")
    for name, layer in layers.items():
        put(model, name, layer.train(layer.base.training))
    freeze(model)
    own = _parameters(model)
    for name, x in whole.items():
        own[name].data.copy_(x)
        own[name].requires_grad_(True)
    return model


def save_pretrained(
    model: nn.Module, folder: str | Path, *, model_type: str, architecture: str
) -> None:
    """Write a folder that `peft.PeftModel.from_pretrained` loads onto the public base to the same
    outputs. model: with updates of one call of `lora`, or behind a `prompt` or `prefix`; what else
    was trained is written, too."""
    places, own = _places(model, model_type, architecture), _parameters(model)
    front = getattr(model, "stack", None)
    values, weights = (
        _written_front(model, front)
        if isinstance(front, Front)
        else _written_updates(model, places)
    )
    added = {
        id(x) for m in model.modules() if isinstance(m, LoRA | Vectors) for x in m.parameters()
    }
    trained = {name for name, x in own.items() if x.requires_grad and id(x) not in added}
    whole = {
        public: rule.back(torch.cat([own[name].detach() for name in names]))
        for public, (names, rule) in places.items()
        if trained & set(names) or (public.startswith(HEADS) and names[0] in own)
    }
    if lost := trained - {name for names, _ in places.values() for name in names}:
        raise CourseError(
            f"{min(lost)} is trained, but `peft` has no place for it; keep this model by peft.save."
        )
    start = "base_model." if isinstance(front, Front) else "base_model.model."
    _write(weights | {start + name: x for name, x in whole.items()}, Path(folder) / WEIGHTS)
    values |= {
        "task_type": next(
            (task for end, task in TASKS.items() if architecture.endswith(end)), None
        ),
        "inference_mode": True,
        "modules_to_save": sorted({name.rpartition(".")[0] for name in whole}) or None,
    }
    write_json(Path(folder) / CONFIG, values)


def _places(model: nn.Module, model_type: str, architecture: str) -> dict[str, Place]:
    """Public name -> place, for every weight that has one."""
    family = MODEL_TYPES.get(model_type)
    if family is None or architecture not in family.architectures:
        raise CourseError(f"Nothing is known of {architecture!r} in the family {model_type!r}.")
    named = family.prefixed(architecture, model)
    return {
        named(rule.theirs.format(layer)): ([name.format(layer) for name in rule.names], rule)
        for rule in family.all_rules(architecture, model)
        for layer in (rule.layers(model) if rule.names else ())
    }


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """By the names that they have without a method."""
    return {name.replace(".base.", "."): weight for name, weight in model.named_parameters()}


def _fitting(
    model: nn.Module, weights: Mapping[str, Tensor], places: Mapping[str, Place]
) -> dict[str, Tensor]:
    """Whole weights by our names."""
    own = _parameters(model)
    out: dict[str, Tensor] = {}
    for name, x in weights.items():
        names, rule = places.get(name, ([], None))
        parts = dict(zip(names, rule.via(x).chunk(len(names)), strict=True)) if rule else {}
        if not parts or any(
            ours not in own or own[ours].shape != part.shape for ours, part in parts.items()
        ):
            raise CourseError(
                f"The folder's {name} has no place in this model; is it of another base?"
            )
        out |= parts
    return out


def _layers(
    model: nn.Module,
    values: Mapping[str, Any],
    updates: Mapping[str, Tensor],
    places: Mapping[str, Place],
) -> dict[str, LoRALinear]:
    """The Linears with the library's updates beside them, by their names."""
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Base)}
    layers: dict[str, LoRALinear] = {}
    targets = [
        name.removesuffix(".lora_A.weight") for name in updates if name.endswith(".lora_A.weight")
    ]
    if len(updates) != 2 * len(targets):
        raise CourseError(
            "The folder has updates of other things than Linears, or of another form than B A."
        )
    for target in targets:
        a, b = updates[f"{target}.lora_A.weight"], updates[f"{target}.lora_B.weight"]
        names = [name.rpartition(".")[0] for name in places.get(f"{target}.weight", ([], None))[0]]
        if not names or not all(
            name in linears and linears[name].in_features == a.shape[1] for name in names
        ):
            raise CourseError(
                f"The folder's update of {target} does not fit this model; is it of another base?"
            )
        patterns = (values.get("alpha_pattern") or {}).items()
        own = (alpha for key, alpha in patterns if re.match(rf"(.*\.)?({key})$", target))
        alpha, dropout = next(own, values.get("lora_alpha", 8)), values.get("lora_dropout", 0.0)
        shared = nn.Parameter(a)  # one A above q, k and v, trained as one
        for name, part in zip(names, b.chunk(len(names)), strict=True):
            layers[name] = LoRALinear(linears[name], len(a), alpha, dropout)
            layers[name].lora.a, layers[name].lora.b.data = shared, part.clone()
    return layers


def _written_updates(
    model: nn.Module, places: Mapping[str, Place]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What stands side by side in the public matrix has blocks in its B and the summed rank; alpha
    / r is in B, too.
    """
    found = {
        name: module.lora
        for name, module in model.named_modules()
        if isinstance(module, LoRALinear)
    }
    if not found:
        raise CourseError(
            "Only a model with LoRA updates, or one behind a prompt or prefix, has a form in"
            " `peft`."
        )
    weights: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for public, (names, _) in places.items():
        parts = [found.get(name.rpartition(".")[0]) for name in names if name.endswith(".weight")]
        some = [part for part in parts if part is not None]
        if some:
            target, nothing = public.removesuffix(".weight"), some[0].b.new_zeros(len(some[0].b), 0)
            a = torch.cat([part.a for part in some])
            blocks = [
                nothing if part is None else part.alpha / part.rank * part.b for part in parts
            ]
            b = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
            weights |= {
                f"base_model.model.{target}.lora_A.weight": a,
                f"base_model.model.{target}.lora_B.weight": b,
            }
            ranks[target] = len(a)
    values = {
        "peft_type": "LORA",
        "target_modules": list(ranks),
        "rank_pattern": ranks,
        "alpha_pattern": ranks,
        "lora_dropout": max(lora.dropout.p for lora in found.values()),
        "fan_in_fan_out": any(rule.via is transposed for _, rule in places.values()),
        "bias": "none",
    }
    return values, weights


def _put_in_front(model: nn.Module, table: Tensor, is_prompt: bool) -> None:
    stack = getattr(model, "stack", None)
    if (
        not isinstance(stack, Transformer)
        or isinstance(stack, Front)
        or (is_prompt and getattr(model, "pooler", None) is not None)
    ):
        raise CourseError(NOT_OURS)
    config, rows = stack.config, table.to(stack.embed.tokens.weight)
    width = (
        stack.embed.tokens.embedding_dim
        if is_prompt
        else config.layers * 2 * config.heads * config.dh
    )
    if table.shape[1] != width:
        raise CourseError(
            f"What stands in front has {table.shape[1]} numbers a row; this model takes {width}."
        )
    cast(Any, model).stack = Prompted(stack, rows) if is_prompt else Prefixed(stack, rows)


def _written_front(model: nn.Module, front: Front) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config, is_prompt = front.config, isinstance(front, Prompted)
    if is_prompt and getattr(model, "pooler", None) is not None:
        raise CourseError(NOT_OURS)
    rows = (
        front.prompt.weight if isinstance(front, Prompted) else cast(Prefixed, front).prefix.table
    )
    values = {
        "peft_type": "PROMPT_TUNING" if is_prompt else "PREFIX_TUNING",
        "num_virtual_tokens": front.length,
        "num_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_transformer_submodules": 1,
        "token_dim": rows.shape[1] if is_prompt else config.heads * config.dh,
    }
    return values, {"prompt_embeddings": rows}
