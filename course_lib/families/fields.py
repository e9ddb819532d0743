"""How a config.json says a configuration of ours: which of its entries is which of our fields.

The tables stand in fields.toml. A family adds what they cannot say by a function of its own.
"""

import tomllib
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.errors import CourseError
from course_lib.model.config import Activation, EmbedConfig, Learned, StackConfig

Values = Mapping[str, Any]  # of a config.json
# config.json's name of an activation -> ours
OUR_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
PUBLIC_ACTIVATIONS = {ours: public for public, ours in OUR_ACTIVATIONS.items()}


def changed(values: Values, **changes: Any) -> Values:
    """Other values of some fields, laid over a config.json. What is covered counts as unread."""
    return ChainMap(changes, values)  # type: ignore[arg-type]


class Entry(NamedTuple):
    """What an entry of a config.json means.

    Attributes:
        field: of ours, as "width", "embed.vocab" or "position.length".
        default: what a file without the entry means; None: the entry must be there.
    """

    field: str
    default: Any = None

    @property
    def part(self) -> str:
        """The part of the configuration that has the field: "embed", "position", or "" for none."""
        return self.field.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The field's name in that part."""
        return self.field.rpartition(".")[2]


@dataclass(frozen=True)
class Fields:
    """The entries of a family's config.json.

    Attributes:
        entries: what each means, by its public name.
        fixed: fields that all models of the family share.
        published: entries that have one value in all published models. No other value is read.
        position: makes the positions.
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
            rest: the other attributes.
        """
        text = Path(__file__).with_name("fields.toml").read_text("utf-8")
        entries = {}
        for public, ours in tomllib.loads(text)[family].items():
            entries[public] = Entry(ours) if isinstance(ours, str) else Entry(**ours)
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
        """From our configuration to the entries of a config.json.

        Another position scheme than the family's gets zeros, so that reading them back does not
        give `config`.
        """
        values = dict(self.published)
        for public, entry in self.entries.items():
            part = getattr(config, entry.part) if entry.part else config
            value: Any = getattr(part, entry.name, 0)
            values[public] = PUBLIC_ACTIVATIONS[value] if entry.name == "activation" else value
        return values


def _our_activation(public: str) -> str:
    """Our name of an activation in config.json."""
    if public not in OUR_ACTIVATIONS:
        known = ", ".join(OUR_ACTIVATIONS)
        raise CourseError(f"Activation {public!r} is not one of the course's ({known}).")
    return OUR_ACTIVATIONS[public]
