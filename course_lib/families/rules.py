"""What a family of models is: its configuration, and two tables that read public files.

One table says how its config.json is our configuration, the other how its weights are ours. Both
are read in both directions. `transformer` is the Transformer of 2017, from which every family says
how it differs.
"""

import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import Activation, EmbedConfig, Learned, Sinusoidal, StackConfig
from course_lib.model.transformer import Transformer

Values = Mapping[str, Any]  # of a config.json
# config.json's name of an activation -> ours
OUR_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
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
    """The decoder of a Transformer of any size, for `EncoderDecoder` (Vaswani et al. 2017).

    Where token vectors are an input, they are multiplied by sqrt(D) (section 3.4). They start with
    the variance 1 / D, so they are then as large as the sines that are added to them.

    Args:
        vocab: V, one vocabulary for both sides.
        width: D.
        layers: of each side.
        heads: H.
        hidden: width of the feed-forward, by default 4 D.
        dropout: of hidden states and attention weights.
        norm: "post" as in the paper, or "pre".
    """
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


def changed(values: Values, **changes: Any) -> Values:
    """Other values of some fields, laid over a config.json. What is covered counts as unread."""
    return ChainMap(changes, values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Fields:
    """How a config.json says a configuration.

    Attributes:
        entries: their entry -> our field, as "width" or "embed.vocab", and what a file without the
            entry means. None: it must be there.
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
        """The fields of a family.

        Args:
            family: the name of its table in `fields.toml`, which lists the entries.
            rest: the other attributes.
        """
        text = Path(__file__).with_name("fields.toml").read_text("utf-8")
        entries: dict[str, tuple[str, Any]] = {}
        for theirs, ours in tomllib.loads(text)[family].items():
            # "width", or ["width", default]
            entries[theirs] = (ours, None) if isinstance(ours, str) else tuple(ours)
        return cls(entries, **rest)

    def read(self, values: Values, **own: Any) -> StackConfig:
        """From a config.json to our configuration.

        Args:
            values: the entries of config.json.
            own: more fields of this one model, as `fixed`.

        Raises:
            KeyError: an entry is missing.
            CourseError: the course has no such model.
        """
        # A missing entry means the published value.
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
        """From our configuration to the entries of a config.json.

        Another position scheme than the family's gets zeros, so that reading them back does not
        give `config`.
        """
        values = dict(self.published)
        for theirs, (ours, _) in self.entries.items():
            part, _, name = ours.rpartition(".")  # "embed.vocab" -> embed, vocab
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
    """One weight of a public checkpoint: its name there and here.

    Attributes:
        theirs: its public name, with `{}` for the layer number.
        ours: its name here; several where their weight holds several of ours, stacked along the
            output; None where it is dropped on purpose.
        via: their tensor to ours, by default unchanged.
        back: our tensor to theirs, by default unchanged.
    """

    theirs: str
    ours: str | tuple[str, ...] | None
    via: Callable[[Tensor], Tensor] = lambda x: x
    back: Callable[[Tensor], Tensor] = lambda x: x

    @property
    def names(self) -> tuple[str, ...]:
        """Our names; none where the weight is dropped."""
        if self.ours is None:
            return ()
        if isinstance(self.ours, str):
            return (self.ours,)
        return self.ours

    def layers(self, model: nn.Module) -> list[str]:
        """The numbers of the layers that have this weight; [""] if it belongs to none."""
        if "{}" not in self.theirs:
            return [""]
        stack: Any = model.stack
        # Encoder and decoder may differ in depth.
        side = re.match(r"(?:stack\.)?(encoder|decoder)\.", "".join(self.names))
        if side is not None:
            stack = getattr(stack, side[1])
        return [str(n) for n in range(stack.config.layers)]


def pairs(theirs: str, ours: str, **layers: str) -> tuple[Rule, ...]:
    """Two rules for each linear layer or norm: its weight and its bias.

    Args:
        theirs: the module's public name.
        ours: its name here.
        layers: their name = ours, for several modules inside of it.

    >>> [rule.theirs for rule in pairs("attn", "attn", q_proj="q")]
    ['attn.q_proj.weight', 'attn.q_proj.bias']
    """
    modules = {theirs: ours}
    if layers:
        modules = {f"{theirs}.{name}": f"{ours}.{own}" for name, own in layers.items()}
    rules = []
    for public, own in modules.items():
        rules.append(Rule(f"{public}.weight", f"{own}.weight"))
        rules.append(Rule(f"{public}.bias", f"{own}.bias"))
    return tuple(rules)


def dropped(*theirs: str) -> tuple[Rule, ...]:
    """Rules for weights that are left out on purpose."""
    return tuple(Rule(name, None) for name in theirs)


# A table, or a function that makes it for a model of ours: some weights, as a gate's, are in some
# models of a family only.
Rules = tuple[Rule, ...] | Callable[[Any], tuple[Rule, ...]]


@dataclass(frozen=True)
class Architecture:
    """A public class, and the head of ours that equals it.

    Attributes:
        head: our class.
        rules: for the weights outside of the body.
        options: (body, values) -> the head's arguments. `values` are config.json's entries, the
            caller's options and, as "weights", the names of the tensors in the file.
        body: (configuration, values) -> the model below the head.
        write: model -> the entries of config.json beside the body's configuration.
        has_prefix: whether the body's weights have a prefix; a body saved alone has none.
    """

    head: type[nn.Module]
    rules: Rules = ()
    options: Callable[[Any, Values], dict[str, Any]] = lambda body, values: {}
    body: Callable[[StackConfig, Values], nn.Module] = lambda config, values: Transformer(config)
    write: Callable[[Any], dict[str, Any]] = lambda model: {}
    has_prefix: bool = True

    def build(self, config: StackConfig, values: Values) -> nn.Module:
        """A new model of this class, with random weights."""
        body = self.body(config, values)
        return self.head(body, **self.options(body, values))


def classes(body: nn.Module, values: Values) -> dict[str, Any]:
    """The number of classes: the caller's, else config.json's, else transformers' default of 2.

    Raises:
        CourseError: config.json names another number of classes than it counts.
    """
    names = values.get("id2label") or {}
    count = values.get("num_labels")
    if names and count is not None and len(names) != count:
        raise CourseError(
            f"num_labels is {count}, but id2label names {len(names)} classes; correct one of them."
        )
    return {"classes": int(values.get("classes") or len(names) or count or 2)}


@dataclass(frozen=True)
class Family:
    """Everything that tells one family of models from another.

    Attributes:
        name: the family's name here.
        config: (vocab, *, width, layers, heads, length) -> a configuration of any size.
        model: (configuration, id of the decoder's first token) -> the model that is pretrained.
        objective: the name in `objectives.OBJECTIVES` of its pretraining.
        read_config: from config.json to our configuration.
        write_config: from our configuration to config.json.
        prefix: of the body's weights in a file of a model with a head.
        rules: of the body's weights.
        architectures: the public classes by name.
        pooler: the pooler's rules, where public files count it to the body.
        tokenizer: the kind that its published models have.
        start: the role of the decoder's first token.
        published_as: the name in config.json, if it is not `name`.
    """

    name: str
    config: Callable[..., StackConfig]
    model: Callable[[StackConfig, int], nn.Module]
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
        """The rules of the body's weights; our names start at the stack."""
        return _for_model(self.rules, model)

    def all_rules(self, architecture: str, model: nn.Module) -> tuple[Rule, ...]:
        """All rules of a public class: the body's, our names under "stack.", and the head's."""
        rules = []
        for rule in self.body_rules(model):
            ours = tuple("stack." + name for name in rule.names)
            rules.append(replace(rule, ours=ours))
        head = _for_model(self.architectures[architecture].rules, model)
        return (*rules, *head)

    def prefixed(self, architecture: str, model: nn.Module) -> Callable[[str], str]:
        """A function from a name in the tables to the name in a file of this class."""
        bodies = expanded(self.body_rules(model) + self.pooler, model)
        prefix = self.prefix if self.architectures[architecture].has_prefix else ""
        return lambda name: prefix + name if name in bodies else name

    def bare(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same weights under the names of the tables: no prefix, no old names."""
        # Old files call a norm's weight gamma and its bias beta.
        today = {"gamma": "weight", "beta": "bias"}
        bare = {}
        for name, tensor in weights.items():
            stem, dot, last = name.removeprefix(self.prefix).rpartition(".")
            bare[stem + dot + today.get(last, last)] = tensor
        return bare


def _for_model(rules: Rules, model: nn.Module) -> tuple[Rule, ...]:
    """The rules that fit a model of ours."""
    return rules(model) if callable(rules) else rules


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
    """Weights under public names to weights under ours.

    Args:
        weights: public name -> tensor.
        rules: of this model. Several may name the same weight of ours: its name in older files and
            in newer ones. A file holds one of them.
        model: of ours, for the number of layers.

    Raises:
        CourseError: a weight of theirs has no rule, or a weight of ours that a rule names is not
            there.
    """
    # Strict in both directions: each weight of theirs has a rule ...
    table = expanded(rules, model)
    unknown = sorted(weights.keys() - table.keys())
    if unknown:
        raise CourseError(
            f"The checkpoint holds {unknown[0]}, for which there is no rule; is it of another"
            " model?"
        )
    # ... and each weight of ours comes from one of theirs.
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
    """Weights under our names to weights under public ones: the rules from right to left.

    Raises:
        CourseError: a weight of ours has no rule, or a weight that a rule names is not there.
    """
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
