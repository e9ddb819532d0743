"""The Transformer of 2017, from which every family says how it differs, and what applies a family's
two tables: how its config.json is ours, and how its weights are. Both are read in both directions.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import EmbedConfig, Learned, Sinusoidal, StackConfig
from course_lib.model.transformer import Transformer

Values = Mapping[str, Any]  # of a config.json
OUR_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu"}
PUBLIC_ACTIVATIONS = {ours: theirs for theirs, ours in OUR_ACTIVATIONS.items()}


def transformer(
    vocab: int = 37000,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    norm: Literal["pre", "post"] = "post",
) -> StackConfig:
    """The decoder of a Transformer of any size (Vaswani et al. 2017), `layers` a side; for
    `EncoderDecoder`. Token vectors, one table for all, are times sqrt(D) where they are an input
    (section 3.4), and start with the variance 1 / D: so they are as large as the sines beside
    them."""
    return StackConfig(
        embed=EmbedConfig(vocab=vocab, scale=width**0.5),
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden or 4 * width,
        position=Sinusoidal(),
        causal=True,
        cross=True,
        norm=norm,
        final_norm=norm == "pre",
        activation="relu",
        dropout=dropout,
        attention_dropout=dropout,
        init_std=width**-0.5,
    )


@dataclass(frozen=True)
class Fields:
    """How a config.json says a configuration. entries: an entry -> our field, as "width" or
    "embed.vocab", and what a file without the entry means (None: it must be there). fixed: fields
    that all models of the family share. published: entries that have one value in all published
    models, and are read with no other. position: makes the positions."""

    entries: Mapping[str, tuple[str, Any]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    published: Values = field(default_factory=dict)
    position: Callable[..., Any] = Learned

    @classmethod
    def of(cls, family: str, **rest: Any) -> "Fields":
        """With the entries of a table of `fields.toml`."""
        table = tomllib.loads(Path(__file__).with_name("fields.toml").read_text("utf-8"))[family]
        return cls(
            {
                theirs: (ours, None) if isinstance(ours, str) else tuple(ours)
                for theirs, ours in table.items()
            },
            **rest,
        )

    def read(self, values: Values, **own: Any) -> StackConfig:
        """KeyError where an entry is missing. own: other fixed fields of this one model."""
        for name, value in self.published.items():
            if values.get(name, value) != value:
                raise CourseError(
                    f"Only models as published are read: {name} {value}, not {values[name]}."
                )
        parts: dict[str, dict[str, Any]] = {"": {**self.fixed, **own}, "embed": {}, "position": {}}
        parts["embed"] |= parts[""].pop("embed", {})
        for theirs, (ours, default) in self.entries.items():
            part, _, name = ours.rpartition(".")
            value = values.get(theirs)
            if value is None and (value := default) is None:
                raise KeyError(theirs)
            if name == "activation" and value not in OUR_ACTIVATIONS:
                raise CourseError(
                    f"Activation {value!r} is not one of the course's"
                    f" ({', '.join(OUR_ACTIVATIONS)})."
                )
            parts[part][name] = OUR_ACTIVATIONS[value] if name == "activation" else value
        embed, position = EmbedConfig(**parts["embed"]), self.position(**parts["position"])
        return StackConfig(embed=embed, position=position, **parts[""])

    def write(self, config: StackConfig) -> dict[str, Any]:
        """A position scheme of another kind has zeros, so that reading it back does not give
        `config`.
        """
        out = dict(self.published)
        for theirs, (ours, _) in self.entries.items():
            part, _, name = ours.rpartition(".")
            value: Any = getattr(getattr(config, part) if part else config, name, 0)
            out[theirs] = PUBLIC_ACTIVATIONS[value] if name == "activation" else value
        return out


@dataclass(frozen=True)
class Rule:
    """One line a weight of a public checkpoint: names, with `{}` for the layer number. ours is a
    tuple where their weight holds several of ours, stacked along the output; None where it is
    dropped on purpose. via: their tensor to ours; back: ours to theirs."""

    theirs: str
    ours: str | tuple[str, ...] | None
    via: Callable[[Tensor], Tensor] = lambda x: x
    back: Callable[[Tensor], Tensor] = lambda x: x

    @property
    def names(self) -> tuple[str, ...]:
        """Our names, none where the weight is dropped."""
        return (
            () if self.ours is None else (self.ours,) if isinstance(self.ours, str) else self.ours
        )

    def layers(self, model: nn.Module) -> list[str]:
        """The layer numbers that this weight has in a model of ours, [""] if it has none."""
        if "{}" not in self.theirs:
            return [""]
        stack: Any = model.stack
        if side := re.match(r"(?:stack\.)?(encoder|decoder)\.", "".join(self.names)):
            stack = getattr(stack, side[1])
        return [str(n) for n in range(stack.config.layers)]


def pairs(theirs: str, ours: str, **layers: str) -> tuple[Rule, ...]:
    """The two rules of a layer with a weight and a bias; or of several layers there, by their names
    = ours.
    """
    places = [(f"{theirs}.{name}", f"{ours}.{own}") for name, own in layers.items()] or [
        (theirs, ours)
    ]
    return tuple(
        Rule(f"{a}.{part}", f"{b}.{part}") for a, b in places for part in ("weight", "bias")
    )


def dropped(*theirs: str) -> tuple[Rule, ...]:
    """Weights that are left out on purpose."""
    return tuple(Rule(name, None) for name in theirs)


# A table, or what gives it for a model of ours: some weights stand in some models of a family only
# (a gate).
Rules = tuple[Rule, ...] | Callable[[Any], tuple[Rule, ...]]


@dataclass(frozen=True)
class Architecture:
    """A public class: the head of ours that equals it, and the rules for what stands outside the
    body. values are config.json's, the caller's options and, as "weights", the names of the tensors
    at hand. write: what config.json says beside the stack's configuration. has_prefix: public
    bodies saved alone carry no prefix."""

    head: type[nn.Module]
    rules: Rules = ()
    options: Callable[[Any, Values], dict[str, Any]] = lambda body, values: {}
    body: Callable[[StackConfig, Values], nn.Module] = lambda config, values: Transformer(config)
    write: Callable[[Any], dict[str, Any]] = lambda model: {}
    has_prefix: bool = True

    def build(self, config: StackConfig, values: Values) -> nn.Module:
        body = self.body(config, values)
        return self.head(body, **self.options(body, values))


def classes(body: nn.Module, values: Values) -> dict[str, Any]:
    """How many classes: what the caller asked for, else what config.json says, else transformers'
    default of two.
    """
    return {"classes": int(values.get("classes") or len(values.get("id2label") or {0: "", 1: ""}))}


@dataclass(frozen=True)
class Family:
    """Everything that tells one family of models from another. objective: the name
    in `objectives.OBJECTIVES` of what pretrains it. prefix: of
    the body's weights inside a model with a head. pooler: its rules, where public files count it to
    the body. start: the role of a decoder's first token."""

    name: str
    config: Callable[..., StackConfig]  # (vocab, *, width, layers, heads, length)
    model: Callable[[StackConfig, int], nn.Module]  # (config, start)
    objective: str
    read_config: Callable[[Values], StackConfig]
    write_config: Callable[[StackConfig], dict[str, Any]]
    prefix: str
    rules: Rules
    architectures: dict[str, Architecture]
    pooler: tuple[Rule, ...] = ()
    tokenizer: Literal["wordpiece", "bpe"] = "wordpiece"
    start: Literal["sep", "pad"] = "pad"
    published_as: str = ""

    @property
    def model_type(self) -> str:
        """The name in config.json."""
        return self.published_as or self.name

    def body_rules(self, model: nn.Module) -> tuple[Rule, ...]:
        """The body's table for a model of ours, ours relative to the stack."""
        return self.rules(model) if callable(self.rules) else self.rules

    def all_rules(self, architecture: str, model: nn.Module) -> tuple[Rule, ...]:
        """The whole table: the body's, ours under "stack.", and what stands outside."""
        outside = self.architectures[architecture].rules
        body = (
            replace(rule, ours=tuple("stack." + name for name in rule.names))
            for rule in self.body_rules(model)
        )
        return (*body, *(outside(model) if callable(outside) else outside))

    def prefixed(self, architecture: str, model: nn.Module) -> Callable[[str], str]:
        """From a name in the tables to the name in a file of this class."""
        bodies = expanded(self.body_rules(model) + self.pooler, model)
        prefix = self.prefix if self.architectures[architecture].has_prefix else ""
        return lambda name: prefix + name if name in bodies else name

    def bare(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names without the body's prefix, and with today's names for a norm's weight and bias
        (once gamma, beta).
        """
        today = {"gamma": "weight", "beta": "bias"}
        out = {}
        for name, tensor in weights.items():
            stem, dot, last = name.removeprefix(self.prefix).rpartition(".")
            out[stem + dot + today.get(last, last)] = tensor
        return out


def expanded(rules: tuple[Rule, ...], model: nn.Module) -> dict[str, Rule]:
    """The rules by their public names, with the numbers of a model's layers filled in."""
    return {
        rule.theirs.format(layer): replace(
            rule, ours=tuple(name.format(layer) for name in rule.names)
        )
        for rule in rules
        for layer in rule.layers(model)
    }


def convert(
    weights: Mapping[str, Tensor], rules: tuple[Rule, ...], model: nn.Module
) -> dict[str, Tensor]:
    """Public names to ours, strict: every weight of theirs has a rule, every weight of ours that a
    rule names is found. Several rules may name the same weight of ours: older names of it, of which
    a file holds one."""
    table = expanded(rules, model)
    if unknown := sorted(weights.keys() - table.keys()):
        raise CourseError(
            f"The checkpoint holds {unknown[0]}, for which there is no rule; is it of another"
            " model?"
        )
    found = {table[name].names for name in weights}
    first = {rule.names: name for name, rule in reversed(table.items()) if rule.names}
    if missing := sorted(name for names, name in first.items() if names not in found):
        said = ", ".join(missing[:4])
        raise CourseError(
            f"The checkpoint lacks {len(missing)} weights that this model needs, among them {said}."
        )
    out: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if names := table[name].names:
            parts = table[name].via(tensor).chunk(len(names))
            out |= {ours: part.contiguous() for ours, part in zip(names, parts, strict=True)}
    return out


def convert_back(
    weights: Mapping[str, Tensor], rules: tuple[Rule, ...], model: nn.Module
) -> dict[str, Tensor]:
    """Ours to public names, by the same rules read from right to left, and as strict."""
    out: dict[str, Tensor] = {}
    left = set(weights)
    for name, rule in expanded(rules, model).items():
        if absent := [ours for ours in rule.names if ours not in weights]:
            raise CourseError(
                f"The model has no weight {absent[0]}, which the public layout needs."
            )
        if not left.isdisjoint(rule.names):  # else an older name of what is written already
            left -= set(rule.names)
            out[name] = rule.back(torch.cat([weights[ours] for ours in rule.names])).contiguous()
    if left:
        raise CourseError(
            f"No rule says where {sorted(left)[0]} goes in the public layout ({len(left)} such"
            " weights)."
        )
    return out
