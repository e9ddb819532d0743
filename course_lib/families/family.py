"""`Family`: a family's configuration, its public classes (`Architecture`), and two tables.

One table translates the entries of its config.json to our configuration (fields.py), the other the
names of its weights to ours (weight_tables.py). Both work in both directions.
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
    """A public class, such as `BertForMaskedLM`, and our class for the same model.

    The body is the model below the head: a `Transformer` or an `EncoderDecoder`.

    Attributes:
        head: our class.
        table: public name -> our name, for the weights outside the body.
        options: (body, values) -> the arguments of `head`. `values` has the entries of config.json,
            the caller's options and, as "weights", the names of the tensors in the file.
        body: (configuration, values) -> the body.
        write: model -> the entries of config.json that the body's configuration does not have.
        has_prefix: whether the names of the body's weights have the family's prefix. They have none
            if the body is saved without a head.
        output: public name -> our name of the output matrix, if the class predicts tokens. It is
            used if that matrix is not the table of token vectors.
        says_tied: (values, names of the tensors in the file) -> whether the output matrix should be
            the table of token vectors.
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
            config: the body's configuration.
            values: the same as for `options`. With "tied": False, the output matrix is not the
                table of token vectors.
        """
        body = self.body(config, values)
        options = self.options(body, values)
        if self.output and not values.get("tied", True):
            options["tied"] = False
        return self.head(body, **options)

    def head_table(self, model: nn.Module) -> Table:
        """The table of the weights outside the body, for a model of this class."""
        table = table_for(self.table, model)
        if not self.output:
            return table
        if is_tied(model):
            return {**table, **dict.fromkeys(self.output, None)}
        # If the output matrix is not tied, its bias has two public names. Both are written.
        (matrix,) = self.output
        bias = matrix.removesuffix("weight") + "bias"
        second_name = {bias: Converted(("head.bias",), is_duplicate=True)} if bias in table else {}
        return {**table, **second_name, **self.output}


def says_tied(values: Values) -> bool:
    """Whether config.json ties the output matrix to the table of token vectors; yes by default.

    Raises:
        CourseError: the entry is neither true nor false.
    """
    tied = values.get("tie_word_embeddings")
    if tied is None:
        return True
    if not isinstance(tied, bool):
        raise CourseError(f"tie_word_embeddings is true or false, not {tied}.")
    return tied


def classes(body: nn.Module, values: Values) -> dict[str, Any]:
    """The argument `classes`: the caller's, else config.json's, else transformers' default of 2.

    Raises:
        CourseError: `num_labels` in config.json is not the number of names in `id2label`.
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
    """A family of models: everything that the rest of the course needs to know about it.

    Attributes:
        name: our name of the family.
        config: (vocab, *, width, layers, heads, length) -> a configuration of any size.
        model: (configuration, id of the decoder's first token) -> a new model for pretraining.
        objective: the pretraining objective, by its name in `objectives.OBJECTIVES`.
        read_config: entries of a config.json -> our configuration.
        write_config: our configuration -> entries of a config.json.
        prefix: what the names of the body's weights begin with if the model has a head, such as
            "bert.".
        table: public name -> our name, for the body's weights.
        architectures: the public classes by name.
        token_tables: the public names of the table of token vectors. The first one is written.
        pooler: the pooler's table, if public files have the pooler under the body's prefix.
        tokenizer: the kind of tokenizer that the published models have.
        decoder_start: the special token that the decoder begins with.
        published_as: `model_type` in config.json, if it is not `name`.
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
        """The entry `model_type` of config.json."""
        return self.published_as or self.name

    def body_table(self, model: nn.Module) -> Table:
        """The table of the body's weights. Our names in it are those inside the body."""
        return table_for(self.table, model)

    def whole_table(self, architecture: str, model: nn.Module) -> Table:
        """The table of a public class: the body's and the head's.

        Our names of the body's weights get the prefix "stack.", the body's name in every head.
        """
        head = self.architectures[architecture].head_table(model)
        return {**under("stack.", self.body_table(model)), **head}

    def prefixed(self, architecture: str, model: nn.Module) -> Callable[[str], str]:
        """A function that adds the family's prefix to the names of the body's weights.

        For a `BertForMaskedLM` it makes "embeddings.LayerNorm.bias" to
        "bert.embeddings.LayerNorm.bias", and leaves "cls.predictions.bias" as it is.
        """
        body_names = written_out({**self.body_table(model), **self.pooler}, model)
        prefix = self.prefix if self.architectures[architecture].has_prefix else ""
        return lambda name: prefix + name if name in body_names else name

    def bare(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same weights under the names of the tables, without prefixes and old names."""
        return {self.bare_name(name): tensor for name, tensor in weights.items()}

    def bare_name(self, name: str) -> str:
        """A weight's name in the tables: "bert.encoder.ln.gamma" -> "encoder.ln.weight"."""
        # Old files call a norm's weight gamma and its bias beta.
        new_names = {"gamma": "weight", "beta": "bias"}
        stem, dot, last = name.removeprefix(self.prefix).rpartition(".")
        return stem + dot + new_names.get(last, last)
