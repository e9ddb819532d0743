"""Public weights in and out: one table of rules a family, strict in both directions.

A folder in the Hugging Face layout (config.json + safetensors) becomes a model of this course, and back. Each family's
file in `models/` holds its rules; this file only applies them. Pickled weights are never opened.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import hub
from course_lib.config import StackConfig
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json


def identity(x: Tensor) -> Tensor:
    """Leave a weight as it is."""
    return x


def transposed(x: Tensor) -> Tensor:
    """GPT's `Conv1D` stores [in, out]; a Linear stores [out, in]. Its own inverse."""
    return x.t().contiguous() if x.ndim == 2 else x


@dataclass(frozen=True)
class Rule:
    """One line a weight of a public checkpoint.

    theirs, ours: names, with `{}` for the layer number. ours is a tuple where their weight holds several of ours,
    stacked along the output; None where it is dropped on purpose. via: their tensor to ours; back: ours to theirs.
    """

    theirs: str
    ours: str | tuple[str, ...] | None
    via: Callable[[Tensor], Tensor] = identity
    back: Callable[[Tensor], Tensor] = identity

    def match(self, name: str) -> str | None:
        """The layer number in a name ("" if the rule has none); None if the name is another's."""
        pattern = re.escape(self.theirs).replace(r"\{\}", r"(\d+)")
        found = re.fullmatch(pattern, name)
        return None if found is None else "".join(found.groups()[:1])


# A table, or what gives it for a model of ours: some weights stand in some models of a family only (a gate).
Rules = tuple[Rule, ...] | Callable[[nn.Module], tuple[Rule, ...]]


@dataclass(frozen=True)
class Architecture:
    """A public class name, the model of ours that equals it, and the rules for what stands outside the body.

    build: gets our config and config.json's values, among them the caller's options and, as "weights", the names of
    the tensors at hand. write: what config.json says beside the stack's configuration.
    """

    build: Callable[[StackConfig, Mapping[str, Any]], nn.Module]
    rules: Rules = ()
    has_prefix: bool = True  # public bodies saved alone carry no prefix
    write: Callable[[nn.Module], dict[str, Any]] = lambda model: {}


@dataclass(frozen=True)
class Family:
    """Everything `hf.py` has to know of a model type."""

    model_type: str
    read_config: Callable[[Mapping[str, Any]], StackConfig]
    write_config: Callable[[StackConfig], dict[str, Any]]
    prefix: str  # of the body's weights inside a model with a head, e.g. "bert."
    rules: Rules  # for the body; `ours` relative to the stack
    pooler: tuple[Rule, ...] = ()  # for the pooler, where public files count it to the body
    architectures: dict[str, Architecture] = field(default_factory=dict)


def families() -> dict[str, Family]:
    """Model type -> family. A new family is one more entry here."""
    from course_lib.models import albert, bart, bert, deberta, distilbert, electra, gpt, megatron_bert, roberta, t5

    encoders = (m.FAMILY for m in (bert, megatron_bert, roberta, albert, distilbert, electra, deberta))
    return {f.model_type: f for f in (*encoders, gpt.GPT1_FAMILY, gpt.GPT2_FAMILY, bart.FAMILY, t5.FAMILY)}


def convert(weights: Mapping[str, Tensor], rules: tuple[Rule, ...], layers: int) -> dict[str, Tensor]:
    """Public names to ours, strict: every weight of theirs has a rule, every weight of ours that a rule names is found.

    Several rules may name the same weight of ours: older names of it, of which a file holds one.

    Args:
        weights: their tensors by name. rules: the table. layers: L, so that a missing layer is noticed.

    Raises:
        CourseError: a weight without a rule, or a rule without its weight.
    """
    out: dict[str, Tensor] = {}
    needed = {
        (rule.ours, layer): rule.theirs.format(layer)
        for rule in reversed(rules)  # a message says the first rule's name
        if rule.ours is not None
        for layer in _layers(rule, layers)
    }
    for name, tensor in weights.items():
        rule, layer = _rule_for(name, rules)
        if rule.ours is None:
            continue
        needed.pop((rule.ours, layer), None)
        ours = (rule.ours,) if isinstance(rule.ours, str) else rule.ours
        for target, part in zip(ours, rule.via(tensor).chunk(len(ours), dim=0), strict=True):
            out[target.format(layer)] = part.contiguous()
    if needed:
        missing = ", ".join(sorted(needed.values())[:4])
        raise CourseError(f"The checkpoint lacks {len(needed)} weights that this model needs, among them {missing}.")
    return out


def convert_back(weights: Mapping[str, Tensor], rules: tuple[Rule, ...], layers: int) -> dict[str, Tensor]:
    """Ours to public names, by the same rules read from right to left.

    Raises:
        CourseError: one of our weights has no rule, or a rule names a weight that the model has not.
    """
    out: dict[str, Tensor] = {}
    left = set(weights)
    for rule in rules:
        if rule.ours is None:
            continue
        ours = (rule.ours,) if isinstance(rule.ours, str) else rule.ours
        for layer in _layers(rule, layers):
            names = [name.format(layer) for name in ours]
            if absent := [n for n in names if n not in weights]:
                raise CourseError(f"The model has no weight {absent[0]}, which the public layout needs.")
            if left.isdisjoint(names):  # an older name of what is written already
                continue
            left -= set(names)
            out[rule.theirs.format(layer)] = rule.back(torch.cat([weights[n] for n in names])).contiguous()
    if left:
        raise CourseError(f"No rule says where {sorted(left)[0]} goes in the public layout ({len(left)} such weights).")
    return out


def load_pretrained(source: str | Path, *, architecture: str | None = None, **build: Any) -> nn.Module:
    """A model of this course with the weights of a checkpoint in the Hugging Face layout, in eval mode.

    Args:
        source: a folder written by `save_pretrained` (theirs or ours), or a model of the Hugging Face hub such as
            "bert-base-uncased" or "OWNER/NAME@REVISION": fetched once (JSON and safetensors only), then taken from the
            cache, also without a network. `zoo.open_model` gives the tokenizer too.
        architecture: the public class to read it as, by default the one that config.json names.
        build: options for the head, such as classes=3.

    Raises:
        CourseError: no such folder, or not to be had from the hub; an unknown model type or architecture, pickled
            weights only, a weight missing, left over or of the wrong shape. The model is never half-loaded.
    """
    folder = hub.pretrained(source)
    values = read_json(folder / "config.json")
    family = families().get(values.get("model_type", ""))
    if family is None:
        known = ", ".join(families())
        raise CourseError(f"{folder}: model type {values.get('model_type')!r} is not one of the course's ({known}).")
    name = architecture or (values.get("architectures") or [""])[0]
    if name not in family.architectures:
        known = ", ".join(family.architectures)
        raise CourseError(
            f"{folder}: architecture {name!r} is not known for {family.model_type}; choose one of {known}."
        )
    chosen = family.architectures[name]
    try:
        config = family.read_config(values)
    except KeyError as error:
        raise CourseError(f"{folder}/config.json has no field {error}, which a {family.model_type} needs.") from None
    theirs = _bare(_read_weights(folder), family)
    model = chosen.build(config, values | build | {"weights": frozenset(theirs)})
    weights = convert(theirs, _all_rules(family, chosen, model), config.layers)
    load_strictly(model, weights, str(folder))
    return model.eval()


def load_strictly(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Load every weight or none.

    Raises:
        CourseError: names or shapes differ; says which and in what file.
    """
    own = model.state_dict()
    if missing := sorted(own.keys() - weights.keys()):
        raise CourseError(f"{where}: the weight {missing[0]} is missing ({len(missing)} in all).")
    if extra := sorted(weights.keys() - own.keys()):
        raise CourseError(f"{where}: the weight {extra[0]} has no place in this model ({len(extra)} in all).")
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            raise CourseError(
                f"{where}: {name} has shape {list(tensor.shape)}, but the configuration says {list(own[name].shape)}."
            )
    model.load_state_dict(dict(weights))


def save_pretrained(model: nn.Module, folder: str | Path, *, model_type: str, architecture: str) -> None:
    """Write a folder that transformers' `from_pretrained` loads to the same outputs.

    Args:
        model: a model whose class is the one `architecture` builds. folder: made if needed.
        model_type: one of `families()`, e.g. "bert". architecture: the public class, e.g. "BertForMaskedLM".

    Raises:
        CourseError: an unknown type or architecture, a configuration that the public model cannot express.
    """
    from safetensors.torch import save

    family = families().get(model_type)
    if family is None or architecture not in family.architectures:
        raise CourseError(f"Nothing is known of {architecture!r} in the family {model_type!r}.")
    chosen = family.architectures[architecture]
    config: StackConfig = model.stack.config  # type: ignore[assignment, union-attr]
    values = family.write_config(config) | chosen.write(model)
    values |= {"model_type": model_type, "architectures": [architecture]}
    if family.read_config(values) != config:
        raise CourseError(
            f"{model_type} cannot express this configuration; compare it with the family's presets by diff()."
        )
    if (out := getattr(model, "out", None)) is not None:
        values["id2label"] = {str(n): f"LABEL_{n}" for n in range(out.out_features)}
    rules = _all_rules(family, chosen, model)
    weights = convert_back(model.state_dict(), rules, config.layers)
    prefix = family.prefix if chosen.has_prefix else ""
    bodies = {rule.theirs for rule in _rules(family.rules, model) + family.pooler}
    named = {prefix + n if _rule_for(n, rules)[0].theirs in bodies else n: t for n, t in weights.items()}
    with atomic_write(Path(folder) / "model.safetensors", "wb") as file:
        file.write(save(named, metadata={"format": "pt"}))
    write_json(Path(folder) / "config.json", values)


def _rules(rules: Rules, model: nn.Module | None) -> tuple[Rule, ...]:
    if not callable(rules):
        return rules
    assert model is not None, "these rules depend on the model"
    return rules(model)


def _all_rules(family: Family, chosen: Architecture, model: nn.Module | None = None) -> tuple[Rule, ...]:
    def inside(ours: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if isinstance(ours, tuple):
            return tuple("stack." + name for name in ours)
        return None if ours is None else "stack." + ours

    body = tuple(Rule(rule.theirs, inside(rule.ours), rule.via, rule.back) for rule in _rules(family.rules, model))
    return body + _rules(chosen.rules, model)


def _layers(rule: Rule, layers: int) -> list[str]:
    return [str(n) for n in range(layers)] if "{}" in rule.theirs else [""]


def _rule_for(name: str, rules: tuple[Rule, ...]) -> tuple[Rule, str]:
    for rule in rules:
        if (layer := rule.match(name)) is not None:
            return rule, layer
    raise CourseError(f"The checkpoint holds {name}, for which there is no rule; is it of another model?")


def _bare(weights: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Names without the body's prefix, and with today's names for a norm's weight and bias (once gamma and beta)."""
    today = {"gamma": "weight", "beta": "bias"}
    out = {}
    for name, tensor in weights.items():
        name = name.removeprefix(family.prefix)
        stem, dot, last = name.rpartition(".")
        out[stem + dot + today.get(last, last)] = tensor
    return out


def _read_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CourseError(f"{folder} holds no safetensors file; pickled weights are not opened, so convert them first.")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise CourseError(
                f"{file} cannot be read ({error}); it is damaged or cut short, so fetch it again."
            ) from None
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
