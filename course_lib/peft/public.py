"""Folders of the library `peft`, in and out: adapter_config.json and adapter_model.safetensors, equal outputs.

LoRA, prompt tuning and prefix tuning, and with them a head that was trained along. Names are translated by the rules
of `course_lib.hf`. Where one public matrix is several of ours (GPT-2's q, k, v), an update of theirs is cut into ours;
ours become one of the summed rank, which is the same update.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib import hf
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.heads import Pooler
from course_lib.peft.front import Front, Prefix, Prefixed, Prompt, Prompted, in_front
from course_lib.peft.inject import Base, freeze, put
from course_lib.peft.lora import LoRA, LoRALinear
from course_lib.peft.weights import read
from course_lib.seq2seq import EncoderDecoder
from course_lib.stack import Stack

Model = TypeVar("Model", bound=nn.Module)
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TASKS = {
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "Model": "FEATURE_EXTRACTION",
}
HEADS = ("classifier", "classification_head", "score", "qa_outputs")
REFUSED = ("use_dora", "layer_replication", "alora_invocation_tokens", "use_qalora", "use_bdlora", "target_parameters")
NO_PREFIX = "`peft` gives several layers of an encoder-decoder the same rows of its prefix, which ours has not."


@dataclass(frozen=True)
class Place:
    """Where a public weight stands in our model: one name, or several side by side."""

    ours: tuple[str, ...]
    rule: hf.Rule

    @property
    def modules(self) -> list[str]:
        """The modules that own the weights."""
        return [name.rpartition(".")[0] for name in self.ours]


def load_pretrained(model: Model, folder: str | Path, *, model_type: str, architecture: str) -> Model:
    """Put what `peft` has trained into the model of ours that equals its base, in place. The base is frozen.

    Args:
        model: as `hf.load_pretrained` gave it. folder: of the adapter. model_type, architecture: the base's, as
            `hf.save_pretrained` takes them: "bert", "BertForSequenceClassification".

    Raises:
        CourseError: another method, settings or weights that are not the course's, another base, another width.
            Nothing is changed then.
    """
    folder = Path(folder)
    values = read_json(folder / CONFIG)
    weights = {name: x.float() for name, x in read(folder / WEIGHTS).items()}
    method = values.get("peft_type")
    places = _places(model, model_type, architecture)
    if any(isinstance(module, Front | LoRALinear) for module in model.modules()):
        raise CourseError("The model carries trained weights of a method already; begin with the bare base.")
    if method == "LORA":
        _load_lora(model, values, weights, places, folder)
    elif method in ("PROMPT_TUNING", "PREFIX_TUNING"):
        _load_front(model, method, weights, places, folder)
    else:
        raise CourseError(f"{folder} holds {method}; the course reads LORA, PROMPT_TUNING and PREFIX_TUNING.")
    return model


def save_pretrained(
    model: nn.Module, folder: str | Path, *, model_type: str, architecture: str, base: str | None = None
) -> None:
    """Write a folder that `peft.PeftModel.from_pretrained` loads onto the public base to the same outputs.

    Args:
        model: with updates of `lora`, or behind a `prompt` or `prefix`. A head is written, too, and what else was
            trained. base: the base's name or folder, noted in the configuration.

    Raises:
        CourseError: nothing that the library knows, or in a place where it has nothing; all that is trained is written.
    """
    places = _places(model, model_type, architecture)
    fronts = [module for module in model.modules() if isinstance(module, Front)]
    updates = {name: module.lora for name, module in model.named_modules() if isinstance(module, LoRALinear)}
    if bool(updates) == bool(fronts) or len(fronts) > 1:
        raise CourseError("Only a model with LoRA updates, or with one prompt or prefix, has a form in `peft`.")
    prefix = "base_model.model." if updates else "base_model."
    if updates:
        values, weights = _saved_lora(updates, places)
    else:
        values, weights = _saved_front(model, fronts[0])
    whole = _whole(model, places)
    _check_all(model, places)
    modules = sorted({name.rpartition(".")[0] for name in whole})
    values |= {
        "task_type": next((task for end, task in TASKS.items() if architecture.endswith(end)), None),
        "base_model_name_or_path": base,
        "inference_mode": True,
        "modules_to_save": modules or None,
    }
    named = {prefix * (name != "prompt_embeddings") + name: x for name, x in (weights | whole).items()}
    with atomic_write(Path(folder) / WEIGHTS, "wb") as file:
        file.write(to_bytes({n: x.detach().contiguous() for n, x in named.items()}, metadata={"format": "pt"}))
    write_json(Path(folder) / CONFIG, values)


def _places(model: nn.Module, model_type: str, architecture: str) -> dict[str, Place]:
    """Public name -> place, for every weight that has one."""
    family = hf.families().get(model_type)
    if family is None or architecture not in family.architectures:
        raise CourseError(f"Nothing is known of {architecture!r} in the family {model_type!r}.")
    chosen = family.architectures[architecture]
    layers: int = model.stack.config.layers  # type: ignore[assignment, union-attr]
    body = {rule.theirs for rule in hf._rules(family.rules, model) + family.pooler}
    out = {}
    for rule in hf._all_rules(family, chosen, model):
        prefix = family.prefix if chosen.has_prefix and rule.theirs in body else ""
        for layer in hf._layers(rule, layers) if rule.ours is not None else ():
            ours = (rule.ours,) if isinstance(rule.ours, str) else cast(tuple[str, ...], rule.ours)
            out[prefix + rule.theirs.format(layer)] = Place(tuple(name.format(layer) for name in ours), rule)
    return out


def _load_lora(
    model: nn.Module,
    values: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    places: Mapping[str, Place],
    folder: Path,
) -> None:
    if refused := [name for name in REFUSED if values.get(name)]:
        raise CourseError(f"{folder}/{CONFIG} sets {refused[0]}, which the course's LoRA has not.")
    bare = {name.removeprefix("base_model.model.").replace(".base_layer.", "."): x for name, x in weights.items()}
    targets = [name.removesuffix(".lora_A.weight") for name in bare if name.endswith(".lora_A.weight")]
    new: dict[str, LoRALinear] = {}
    for target in targets:
        a, b = bare.pop(f"{target}.lora_A.weight"), bare.pop(f"{target}.lora_B.weight", torch.empty(0))
        place = places.get(f"{target}.weight")
        modules = place.modules if place is not None else []
        found = [module for name, module in model.named_modules() if name in modules and isinstance(module, Base)]
        if len(found) != len(modules) or not modules:
            raise CourseError(f"{folder} has an update of {target}, which this model has not; is it of another base?")
        alpha = _alpha(values, target, len(a))
        for name, linear, part in zip(modules, found, b.chunk(len(modules)), strict=True):
            update = LoRA(linear.in_features, linear.out_features, len(a), alpha, values.get("lora_dropout", 0.0))
            if update.a.shape != a.shape or update.b.shape != part.shape:
                raise CourseError(
                    f"{folder}: the update of {target} is for {a.shape[1]} inputs and {len(b)} outputs; {name} has "
                    f"{linear.in_features} and {linear.out_features}{' each' * (len(modules) > 1)}."
                )
            update.a.data, update.b.data = a.clone(), part.clone()
            new[name] = LoRALinear(linear, update.to(linear.weight.device)).train(linear.training)
    whole = _fitting(model, bare, places, folder)
    for name, layer in new.items():
        put(model, name, layer)
    freeze(model)
    _set(model, whole)


def _alpha(values: Mapping[str, Any], target: str, rank: int) -> float:
    """The strength for one matrix: the first pattern that ends its name, else the common one."""
    patterns = values.get("alpha_pattern") or {}
    own = (alpha for key, alpha in patterns.items() if re.match(rf"(.*\.)?({key})$", target))
    alpha = float(next(own, values["lora_alpha"]))
    return alpha * rank**0.5 if values.get("use_rslora") else alpha  # alpha / sqrt(r) instead of alpha / r


def _load_front(
    model: nn.Module, method: str, weights: Mapping[str, Tensor], places: Mapping[str, Place], folder: Path
) -> None:
    bare = {name.removeprefix("base_model."): x for name, x in weights.items()}
    if "prompt_embeddings" not in bare:
        raise CourseError(f"{folder}/{WEIGHTS} has no prompt_embeddings.")
    table = bare.pop("prompt_embeddings")
    body = cast(Any, model).stack
    both = isinstance(body, EncoderDecoder)
    config = body.config
    is_prompt = method == "PROMPT_TUNING"
    if both and not is_prompt:
        raise CourseError(f"{folder}: {NO_PREFIX}")
    size = body.encoder.embed.tokens if both else body.embed.tokens
    width = size.embedding_dim if is_prompt else config.layers * 2 * config.heads * config.dh
    if table.dim() != 2 or table.shape[1] != width:
        raise CourseError(f"{folder}: prompt_embeddings is {list(table.shape)}, but this model takes {width} a row.")
    if is_prompt and both:
        table = table[: len(table) // 2]  # the library keeps as many for the decoder, and does not use them
    whole = _fitting(model, bare, places, folder)

    def before(stack: Stack) -> Front:
        like = stack.embed.tokens.weight
        if is_prompt:
            vectors = table.to(like) / stack.config.embed.scale  # the library's stand behind the scaling (BART)
            return Prompted(stack, Prompt(vectors), whole=both or _reads_first(model))
        prefix = Prefix(len(table), table.shape[1], 1, None, 0.0).to(like)
        prefix.weight.data = table.to(like)
        return Prefixed(stack, prefix)

    in_front(model, before, sides=("encoder",))
    _set(model, whole)


def _reads_first(model: nn.Module) -> bool:
    """Whether the head reads the first hidden state: with `peft` the prompt's, not [CLS]."""
    return isinstance(getattr(model, "pooler", None), Pooler)


def _saved_lora(updates: Mapping[str, LoRA], places: Mapping[str, Place]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    weights: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    left, transposed = set(updates), False
    for public, place in places.items():
        parts = [updates.get(module) for module in place.modules]
        if not public.endswith(".weight") or not any(parts):
            continue
        target = public.removesuffix(".weight")
        left -= set(place.modules)
        transposed |= place.rule.via is hf.transposed
        a, b, alphas[target] = _joined(parts)
        ranks[target] = len(a)
        weights |= {f"{target}.lora_A.weight": a, f"{target}.lora_B.weight": b}
    if left:
        raise CourseError(f"{sorted(left)[0]} has an update, but no place in the public layout.")
    rank, alpha = next(iter(ranks.values())), next(iter(alphas.values()))
    values = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": next(iter(updates.values())).dropout.p,
        "target_modules": list(ranks),
        "rank_pattern": {name: r for name, r in ranks.items() if r != rank},
        "alpha_pattern": {name: x for name, x in alphas.items() if x != alpha},
        "fan_in_fan_out": transposed,
        "bias": "none",
    }
    return values, weights


def _joined(parts: Iterable[LoRA | None]) -> tuple[Tensor, Tensor, float]:
    """A, B and alpha of one update that does what these do side by side; None changes nothing there."""
    parts = list(parts)
    some = [part for part in parts if part is not None]
    first = some[0]
    if all(part is not None and torch.equal(part.a, first.a) and part.alpha == first.alpha for part in parts):
        return first.a, torch.cat([part.b for part in some]), first.alpha
    scale = first.alpha / first.rank
    rank, outputs = sum(part.rank for part in some), len(first.b)
    b = first.b.new_zeros(outputs * len(parts), rank)
    column = 0
    for number, part in enumerate(parts):
        if part is not None:
            rows = slice(number * outputs, (number + 1) * outputs)
            b[rows, column : column + part.rank] = part.b.detach() * (part.alpha / part.rank / scale)
            column += part.rank
    return torch.cat([part.a for part in some]), b, scale * rank


def _saved_front(model: nn.Module, front: Front) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = front.config
    both = isinstance(getattr(model, "stack", None), EncoderDecoder)
    values: dict[str, Any] = {
        "num_virtual_tokens": front.length,
        "num_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_transformer_submodules": 1,
    }
    if isinstance(front, Prefixed):
        if both:
            raise CourseError(NO_PREFIX)
        own = {"peft_type": "PREFIX_TUNING", "token_dim": config.heads * config.dh, "prefix_projection": False}
        return values | own, {"prompt_embeddings": front.prefix.table}
    assert isinstance(front, Prompted)
    if _reads_first(model) and not front.whole:
        raise CourseError(
            "The library's heads read the first vector, which would be the prompt's instead of [CLS]'s; keep this "
            "model by peft.save, or build it with Prompted(..., whole=True)."
        )
    table = front.prompt.weight * config.embed.scale
    own = {"peft_type": "PROMPT_TUNING", "token_dim": table.shape[1], "prompt_tuning_init": "RANDOM"}
    own |= {"num_transformer_submodules": 2} if both else {}
    return values | own, {"prompt_embeddings": table.repeat(2, 1) if both else table}


def _whole(model: nn.Module, places: Mapping[str, Place]) -> dict[str, Tensor]:
    """The head, and what else is trained without being a method's, by public names."""
    own = {name.replace(".base.", "."): weight for name, weight in model.named_parameters()}
    trained = {name for name, weight in own.items() if weight.requires_grad}
    return {
        public: place.rule.back(torch.cat([own[name].detach() for name in place.ours]))
        for public, place in places.items()
        if trained & set(place.ours) or (public.startswith(HEADS) and place.ours[0] in own)
    }


def _check_all(model: nn.Module, places: Mapping[str, Place]) -> None:
    """Nothing that is trained may be lost."""
    known = {
        id(x) for module in model.modules() if isinstance(module, LoRA | Prefix | Prompt) for x in module.parameters()
    }
    placed = {name for place in places.values() for name in place.ours}
    for name, weight in model.named_parameters():
        if weight.requires_grad and id(weight) not in known and name.replace(".base.", ".") not in placed:
            raise CourseError(f"{name} is trained, but `peft` has no place for it; keep this model by peft.save.")


def _fitting(
    model: nn.Module, bare: Mapping[str, Tensor], places: Mapping[str, Place], folder: Path
) -> dict[str, Tensor]:
    """Whole weights by our names.

    Raises:
        CourseError: one has no place, or another shape.
    """
    out: dict[str, Tensor] = {}
    own = dict(model.named_parameters())
    for name, x in bare.items():
        place = places.get(name)
        if place is None:
            raise CourseError(f"{folder}/{WEIGHTS} has {name}, for which this model has no place.")
        for target, part in zip(place.ours, place.rule.via(x).chunk(len(place.ours)), strict=True):
            if target not in own or own[target].shape != part.shape:
                raise CourseError(
                    f"{folder}: {name} has shape {list(x.shape)}, which is not that of {target} in this model."
                )
            out[target] = part
    return out


@torch.no_grad()
def _set(model: nn.Module, whole: Mapping[str, Tensor]) -> None:
    """Set these weights, and leave them trainable."""
    own = {name.replace(".base.", "."): weight for name, weight in model.named_parameters()}
    for name, x in whole.items():
        own[name].copy_(x)
        own[name].requires_grad_(True)
