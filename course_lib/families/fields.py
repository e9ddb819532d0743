"""Translates a public config.json to our configuration and back, entry by entry.

The tables are in fields.toml: `num_hidden_layers = "layers"`. If a table is not enough, the
family's file has a function for the rest.
"""

import tomllib
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.errors import CourseError
from course_lib.model.config import Activation, EmbedConfig, Learned, StackConfig

Values = Mapping[str, Any]  # entries of a config.json
# config.json's name of an activation -> ours
OUR_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
PUBLIC_ACTIVATIONS = {ours: public for public, ours in OUR_ACTIVATIONS.items()}


def changed(values: Values, **changes: Any) -> Values:
    """The entries of a config.json, some of them with other values.

    `zoo` refuses a file with an entry that no code has read. Reading an entry that is changed here
    does not count as reading the file's own.

    >>> dict(changed({"n_layer": 12, "afn": "gelu"}, afn="gelu_new"))
    {'n_layer': 12, 'afn': 'gelu_new'}
    """
    return ChainMap(changes, values)  # type: ignore[arg-type]


class Entry(NamedTuple):
    """Our field for an entry of a config.json.

    Attributes:
        field: our field, for example "width", "embed.vocab" or "position.length".
        default: the value if the file lacks the entry; None: the entry is required.
    """

    field: str
    default: Any = None

    @property
    def part(self) -> str:
        """The part of the configuration that has the field: "embed", "position", or ""."""
        return self.field.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The name of the field in that part: "vocab" of "embed.vocab"."""
        return self.field.rpartition(".")[2]


@dataclass(frozen=True)
class Fields:
    """The entries of a family's config.json.

    Attributes:
        entries: public name of an entry -> our field.
        fixed: values of our fields that all models of the family share.
        published: entries that have the same value in all published models. Another value is
            refused.
        position: the class of the position scheme, or a function that makes it. Its arguments are
            the fields whose names begin with "position.".
    """

    entries: Mapping[str, Entry]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    published: Values = field(default_factory=dict)
    position: Callable[..., Any] = Learned

    @classmethod
    def of(cls, family: str, **rest: Any) -> "Fields":
        """The fields of a family.

        Args:
            family: the name of its table in `fields.toml`, which lists the entries.
            rest: the other attributes: `fixed`, `published` and `position`.
        """
        text = Path(__file__).with_name("fields.toml").read_text("utf-8")
        entries = {}
        for public, ours in tomllib.loads(text)[family].items():
            entries[public] = Entry(ours) if isinstance(ours, str) else Entry(**ours)
        return cls(entries, **rest)

    def read(self, values: Values, **own: Any) -> StackConfig:
        """The entries of a config.json to our configuration.

        Args:
            values: the entries of config.json.
            own: values of our fields for this model only, in addition to `fixed`.

        Raises:
            KeyError: a required entry is missing.
            CourseError: an entry of `published` has another value, or we do not have the
                activation.
        """
        # A missing entry means the published value.
        for name, value in self.published.items():
            if values.get(name, value) != value:
                raise CourseError(
                    f"Only models as published are read: {name} {value}, not {values[name]}."
                )

        stack = {**self.fixed, **own}
        embed = dict(stack.pop("embed", {}))
        parts: dict[str, dict[str, Any]] = {"": stack, "embed": embed, "position": {}}
        for public, entry in self.entries.items():
            value = values.get(public)
            if value is None:
                value = entry.default
            if value is None:
                raise KeyError(public)
            if entry.name == "activation":
                value = _our_activation(value)
            parts[entry.part][entry.name] = value
        return StackConfig(
            embed=EmbedConfig(**embed), position=self.position(**parts["position"]), **stack
        )

    def write(self, config: StackConfig) -> dict[str, Any]:
        """Our configuration to the entries of a config.json.

        If `config` has another position scheme than the family, its entries become 0. Reading
        them back then gives another configuration. `families.expresses` finds out by this that
        the family has no such model.
        """
        values = dict(self.published)
        for public, entry in self.entries.items():
            part = getattr(config, entry.part) if entry.part else config
            value: Any = getattr(part, entry.name, 0)
            values[public] = PUBLIC_ACTIVATIONS[value] if entry.name == "activation" else value
        return values


def read_tie_word_embeddings(values: Values, weight_names: Collection[str] = ()) -> bool:
    """Whether config.json ties the output matrix to the token embedding; yes by default.

    Args:
        values: the entries of config.json.
        weight_names: not used. A family whose files decide it has another function
            (`Architecture.read_tied`).

    Raises:
        CourseError: the entry is neither true nor false.
    """
    tied = values.get("tie_word_embeddings")
    if tied is None:
        return True
    if not isinstance(tied, bool):
        raise CourseError(f"tie_word_embeddings is true or false, not {tied}.")
    return tied


def read_classes(values: Values) -> int:
    """The number of classes: the caller's, else config.json's, else transformers' default of 2.

    Raises:
        CourseError: `num_labels` in config.json is not the number of names in `id2label`.
    """
    names = values.get("id2label") or {}
    count = values.get("num_labels")
    if names and count is not None and len(names) != count:
        raise CourseError(
            f"num_labels is {count}, but id2label names {len(names)} classes; correct one of them."
        )
    return int(values.get("classes") or len(names) or count or 2)


def _our_activation(public: str) -> str:
    if public not in OUR_ACTIVATIONS:
        known = ", ".join(OUR_ACTIVATIONS)
        raise CourseError(f"Activation {public!r} is not one of the course's ({known}).")
    return OUR_ACTIVATIONS[public]
