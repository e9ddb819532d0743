"""What a family of models is: its configuration, its public classes, and two tables.

One table says how its config.json is our configuration (fields.py), the other how its weights are
ours (weight_tables.py). Both are read in both directions.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families.fields import Values
from course_lib.families.weight_tables import (
    Converted,
    Table,
    TableOf,
    table_for,
    under,
    written_out,
)
from course_lib.model.config import StackConfig
from course_lib.model.heads import is_tied
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
        output: the output matrix, if the class gives logits of tokens: public name -> ours. The
            entry holds where that matrix is not the table of token vectors.
        says_tied: (values, names of the file's weights) -> whether it is meant to be that table.
    """

    head: type[nn.Module]
    table: TableOf = field(default_factory=dict)
    options: Callable[[Any, Values], dict[str, Any]] = lambda body, values: {}
    body: Callable[[StackConfig, Values], nn.Module] = lambda config, values: Transformer(config)
    write: Callable[[Any], dict[str, Any]] = lambda model: {}
    has_prefix: bool = True
    output: Table = field(default_factory=dict)
    says_tied: Callable[[Values, Collection[str]], bool] = lambda values, names: says_tied(values)

    def build(self, config: StackConfig, values: Values) -> nn.Module:
        """A new model of this class, with random weights.

        Args:
            config: of the body.
            values: as for `options`. "tied": False gives the head an output matrix of its own.
        """
        body = self.body(config, values)
        options = self.options(body, values)
        if self.output and not values.get("tied", True):
            options["tied"] = False
        return self.head(body, **options)

    def head_table(self, model: nn.Module) -> Table:
        """The table of the weights outside of the body, for a model of this class."""
        table = table_for(self.table, model)
        if not self.output:
            return table
        if is_tied(model):
            return {**table, **dict.fromkeys(self.output, None)}
        # The bias of an output matrix of its own has two public names. Both are written.
        (matrix,) = self.output
        bias = matrix.removesuffix("weight") + "bias"
        second_name = {bias: Converted(("head.bias",), again=True)} if bias in table else {}
        return {**table, **second_name, **self.output}


def says_tied(values: Values) -> bool:
    """Whether config.json says that the output matrix is the table of token vectors; it need not.

    Raises:
        CourseError: it says neither yes nor no.
    """
    tied = values.get("tie_word_embeddings")
    if tied is None:
        return True
    if not isinstance(tied, bool):
        raise CourseError(f"tie_word_embeddings is true or false, not {tied}.")
    return tied


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
        token_tables: the public names of the table of token vectors. The first one is written.
        pooler: the pooler's table, where public files count it to the body.
        tokenizer: the kind that its published models have.
        decoder_start: the special token that the decoder begins with.
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
    token_tables: tuple[str, ...] = ("embeddings.word_embeddings.weight",)
    pooler: Table = field(default_factory=dict)
    tokenizer: Literal["wordpiece", "bpe"] = "wordpiece"
    decoder_start: Literal["sep", "pad"] = "pad"
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
        head = self.architectures[architecture].head_table(model)
        return {**under("stack.", self.body_table(model)), **head}

    def prefixed(self, architecture: str, model: nn.Module) -> Callable[[str], str]:
        """A function from a name in the tables to the name in a file of this class."""
        bodies = written_out({**self.body_table(model), **self.pooler}, model)
        prefix = self.prefix if self.architectures[architecture].has_prefix else ""
        return lambda name: prefix + name if name in bodies else name

    def bare(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same weights under the names of the tables: no prefix, no old names."""
        return {self.bare_name(name): tensor for name, tensor in weights.items()}

    def bare_name(self, name: str) -> str:
        """A weight's name in the tables."""
        # Old files call a norm's weight gamma and its bias beta.
        today = {"gamma": "weight", "beta": "bias"}
        stem, dot, last = name.removeprefix(self.prefix).rpartition(".")
        return stem + dot + today.get(last, last)
