"""What a family of models is: its configuration, its public classes, and two tables.

One table says how its config.json is our configuration (fields.py), the other how its weights are
ours (weight_tables.py). Both are read in both directions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families.fields import Values
from course_lib.families.weight_tables import Table, TableOf, table_for, under, written_out
from course_lib.model.config import StackConfig
from course_lib.model.transformer import Transformer


@dataclass(frozen=True)
class Architecture:
    """A public class, and the head of ours that equals it.

    Attributes:
        head: our class.
        table: of the weights outside of the body.
        options: (body, values) -> the head's arguments. `values` are config.json's entries, the
            caller's options and, as "weights", the names of the tensors in the file.
        body: (configuration, values) -> the model below the head.
        write: model -> the entries of config.json beside the body's configuration.
        has_prefix: whether the body's weights have a prefix; a body saved alone has none.
    """

    head: type[nn.Module]
    table: TableOf = field(default_factory=dict)
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
        table: of the body's weights.
        architectures: the public classes by name.
        pooler: the pooler's table, where public files count it to the body.
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
    table: TableOf
    architectures: dict[str, Architecture]
    pooler: Table = field(default_factory=dict)
    tokenizer: Literal["wordpiece", "bpe"] = "wordpiece"
    start: Literal["sep", "pad"] = "pad"
    published_as: str = ""

    @property
    def model_type(self) -> str:
        """The name in config.json."""
        return self.published_as or self.name

    def body_table(self, model: nn.Module) -> Table:
        """The table of the body's weights; our names start at the stack."""
        return table_for(self.table, model)

    def whole_table(self, architecture: str, model: nn.Module) -> Table:
        """The table of a public class: the body's, our names under "stack.", and the head's."""
        head = table_for(self.architectures[architecture].table, model)
        return {**under("stack.", self.body_table(model)), **head}

    def prefixed(self, architecture: str, model: nn.Module) -> Callable[[str], str]:
        """A function from a name in the tables to the name in a file of this class."""
        bodies = written_out({**self.body_table(model), **self.pooler}, model)
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
