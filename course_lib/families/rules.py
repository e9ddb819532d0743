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
    """How a config.json says a configuration.

    Attributes:
        entries: their entry -> our field, as "width" or "embed.vocab", and what a file without the
            entry means (None: it must be there).
        fixed: fields that all models of the family share.
        published: entries that have one value in all published models. No other value is read.
        position: makes the positions.
    """

    entries: Mapping[str, tuple[str, Any]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    published: Values = field(default_factory=dict)
    position: Callable[..., Any] = Learned

    @classmethod
    def of(cls, family: str, **rest: Any) -> "Fields":
        """With the entries of a table of `fields.toml`."""
        text = Path(__file__).with_name("fields.toml").read_text("utf-8")
        entries: dict[str, tuple[str, Any]] = {}
        for theirs, ours in tomllib.loads(text)[family].items():
            entries[theirs] = (ours, None) if isinstance(ours, str) else tuple(ours)
        return cls(entries, **rest)

    def read(self, values: Values, **own: Any) -> StackConfig:
        """The configuration that a config.json says.

        Args:
            values: of config.json.
            own: other fixed fields of this one model.

        Raises:
            KeyError: an entry is missing.
            CourseError: a value is none that the course has.
        """
        for name, value in self.published.items():
            if values.get(name, value) != value:
                raise CourseError(
                    f"Only models as published are read: {name} {value}, not {values[name]}."
                )
        stack = {**self.fixed, **own}
        # "embed.vocab" is a field of the part "embed"; "width" has no part: it is the stack's.
        embed_fields = dict(stack.pop("embed", {}))
        parts: dict[str, dict[str, Any]] = {"": stack, "embed": embed_fields, "position": {}}
        for theirs, (ours, default) in self.entries.items():
            part, _, name = ours.rpartition(".")
            value = values.get(theirs)
            if value is None:
                value = default
            if value is None:
                raise KeyError(theirs)
            parts[part][name] = _our_activation(value) if name == "activation" else value
        embed = EmbedConfig(**parts["embed"])
        position = self.position(**parts["position"])
        return StackConfig(embed=embed, position=position, **stack)

    def write(self, config: StackConfig) -> dict[str, Any]:
        """The entries of a configuration.

        A position scheme of another kind has zeros, so that reading it back does not give `config`.
        """
        values = dict(self.published)
        for theirs, (ours, _) in self.entries.items():
            part, _, name = ours.rpartition(".")
            owner = getattr(config, part) if part else config
            value: Any = getattr(owner, name, 0)
            values[theirs] = PUBLIC_ACTIVATIONS[value] if name == "activation" else value
        return values


def _our_activation(theirs: str) -> str:
    """Our name of an activation in config.json."""
    if theirs not in OUR_ACTIVATIONS:
        known = ", ".join(OUR_ACTIVATIONS)
        raise CourseError(f"Activation {theirs!r} is not one of the course's ({known}).")
    return OUR_ACTIVATIONS[theirs]


@dataclass(frozen=True)
class Rule:
    """One line a weight of a public checkpoint.

    Attributes:
        theirs: its public name, with `{}` for the layer number.
        ours: its name here; several where their weight holds several of ours, stacked along the
            output; None where it is dropped on purpose.
        via: their tensor to ours.
        back: our tensor to theirs.
    """

    theirs: str
    ours: str | tuple[str, ...] | None
    via: Callable[[Tensor], Tensor] = lambda x: x
    back: Callable[[Tensor], Tensor] = lambda x: x

    @property
    def names(self) -> tuple[str, ...]:
        """Our names, none where the weight is dropped."""
        if self.ours is None:
            return ()
        return (self.ours,) if isinstance(self.ours, str) else self.ours

    def layers(self, model: nn.Module) -> list[str]:
        """The layer numbers that this weight has in a model of ours, [""] if it has none."""
        if "{}" not in self.theirs:
            return [""]
        stack: Any = model.stack
        side = re.match(r"(?:stack\.)?(encoder|decoder)\.", "".join(self.names))
        if side is not None:
            stack = getattr(stack, side[1])
        return [str(n) for n in range(stack.config.layers)]


def pairs(theirs: str, ours: str, **layers: str) -> tuple[Rule, ...]:
    """The two rules of a layer, for its weight and its bias.

    Args:
        theirs: the layer's public name.
        ours: its name here.
        layers: their name = ours, of several layers inside of it.

    >>> [rule.theirs for rule in pairs("attn", "attn", q_proj="q")]
    ['attn.q_proj.weight', 'attn.q_proj.bias']
    """
    places = [(f"{theirs}.{name}", f"{ours}.{own}") for name, own in layers.items()]
    if not places:
        places = [(theirs, ours)]
    rules = []
    for a, b in places:
        rules += [Rule(f"{a}.weight", f"{b}.weight"), Rule(f"{a}.bias", f"{b}.bias")]
    return tuple(rules)


def dropped(*theirs: str) -> tuple[Rule, ...]:
    """Weights that are left out on purpose."""
    return tuple(Rule(name, None) for name in theirs)


# A table; or a function that gives it for a model of ours, because some weights (a gate) are in
# some models of a family only.
Rules = tuple[Rule, ...] | Callable[[Any], tuple[Rule, ...]]


@dataclass(frozen=True)
class Architecture:
    """A public class, and the head of ours that equals it.

    Attributes:
        head: ours.
        rules: for the weights outside the body.
        options: (body, values) -> the head's arguments. values are config.json's, the caller's
            options and, as "weights", the names of the tensors at hand.
        body: (configuration, values) -> what the head stands on.
        write: model -> what config.json says beside the stack's configuration.
        has_prefix: whether the body's weights carry a prefix; bodies saved alone carry none.
    """

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
    names = values.get("id2label") or {0: "", 1: ""}
    return {"classes": int(values.get("classes") or len(names))}


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
        bare = {}
        for name, tensor in weights.items():
            stem, dot, last = name.removeprefix(self.prefix).rpartition(".")
            bare[stem + dot + today.get(last, last)] = tensor
        return bare


def expanded(rules: tuple[Rule, ...], model: nn.Module) -> dict[str, Rule]:
    """The rules by their public names, with the numbers of a model's layers filled in."""
    table = {}
    for rule in rules:
        for layer in rule.layers(model):
            ours = tuple(name.format(layer) for name in rule.names)
            table[rule.theirs.format(layer)] = replace(rule, ours=ours)
    return table


def convert(
    weights: Mapping[str, Tensor], rules: tuple[Rule, ...], model: nn.Module
) -> dict[str, Tensor]:
    """Public names to ours.

    Several rules may name the same weight of ours: older names of it, of which a file holds one.

    Raises:
        CourseError: a weight of theirs has no rule, or a weight of ours that a rule names is not
            there.
    """
    table = expanded(rules, model)
    unknown = sorted(weights.keys() - table.keys())
    if unknown:
        raise CourseError(
            f"The checkpoint holds {unknown[0]}, for which there is no rule; is it of another"
            " model?"
        )
    present = {table[name].names for name in weights}
    # Of several public names of one weight, the first is the one to ask for.
    first = {rule.names: name for name, rule in reversed(table.items()) if rule.names}
    missing = sorted(name for names, name in first.items() if names not in present)
    if missing:
        some = ", ".join(missing[:4])
        raise CourseError(
            f"The checkpoint lacks {len(missing)} weights that this model needs, among them {some}."
        )
    converted: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        rule = table[name]
        if not rule.names:
            continue
        parts = rule.via(tensor).chunk(len(rule.names))
        for ours, part in zip(rule.names, parts, strict=True):
            converted[ours] = part.contiguous()
    return converted


def convert_back(
    weights: Mapping[str, Tensor], rules: tuple[Rule, ...], model: nn.Module
) -> dict[str, Tensor]:
    """Ours to public names, by the same rules read from right to left, and as strict."""
    converted: dict[str, Tensor] = {}
    left = set(weights)
    for name, rule in expanded(rules, model).items():
        absent = [ours for ours in rule.names if ours not in weights]
        if absent:
            raise CourseError(
                f"The model has no weight {absent[0]}, which the public layout needs."
            )
        if left.isdisjoint(rule.names):
            continue  # dropped on purpose, or an older name of what is written already
        left -= set(rule.names)
        stacked = torch.cat([weights[ours] for ours in rule.names])
        converted[name] = rule.back(stacked).contiguous()
    if left:
        raise CourseError(
            f"No rule says where {sorted(left)[0]} goes in the public layout ({len(left)} such"
            " weights)."
        )
    return converted
