"""`Family`: one model family's configuration, naming tables and public classes (`Architecture`).

A family translates a public folder to one of our models, and back. Its config.json becomes our
configuration (fields.py). Its weights get our names (weight_tables.py). A weight has four names on
its way from the file to the model:

    bert.embeddings.LayerNorm.gamma    in the file of an old BertForMaskedLM
        |  strip_prefix removes the family's prefix; gamma becomes weight
    embeddings.LayerNorm.weight        public name, as in the tables
        |  body_table translates it
    embed.norm.weight                  our name inside the body
        |  whole_table adds the name that the body has in every model, "stack."
    stack.embed.norm.weight            our name in the model

Saving goes the other way: `convert_back` with `whole_table`, then `add_prefix`. "Table" always
means such a table of names. The matrix of token vectors is called the token embedding.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from course_lib.families.fields import Values, read_tie_word_embeddings
from course_lib.families.weight_tables import (
    Table,
    TableOf,
    prefix_ours,
    table_for,
    written_out,
)
from course_lib.model.config import StackConfig
from course_lib.model.heads import is_tied
from course_lib.model.transformer import Transformer

# Old files call a norm's weight gamma and its bias beta.
TODAYS_ENDINGS = {"gamma": "weight", "beta": "bias"}


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
        token_embeddings: the public names of the token embedding. The first one is written. BART
            and T5 have three: the shared one, the encoder's and the decoder's.
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
    architectures: dict[str, "Architecture"]
    token_embeddings: tuple[str, ...] = ("embeddings.word_embeddings.weight",)
    pooler: Table = field(default_factory=dict)
    tokenizer: Literal["wordpiece", "bpe"] = "wordpiece"
    decoder_start: Literal["sep", "pad"] = "pad"
    published_as: str = ""

    @property
    def model_type(self) -> str:
        """The entry `model_type` of config.json."""
        return self.published_as or self.name

    def strip_prefix(self, name: str) -> str:
        """A weight's name in the tables, from its name in a file.

        "bert.embeddings.LayerNorm.gamma" -> "embeddings.LayerNorm.weight"
        """
        parts = name.removeprefix(self.prefix).split(".")
        parts[-1] = TODAYS_ENDINGS.get(parts[-1], parts[-1])
        return ".".join(parts)

    def body_table(self, model: nn.Module) -> Table:
        """The table of the body's weights. Our names in it are those inside the body.

        "embeddings.LayerNorm.*" -> "embed.norm.*"
        """
        return table_for(self.table, model)

    def whole_table(self, architecture: str, model: nn.Module) -> Table:
        """The table of a public class: the body's and the head's.

        "embeddings.LayerNorm.*" -> "stack.embed.norm.*", "cls.predictions.bias" -> "head.bias"
        """
        head = self.architectures[architecture].head_table(model)
        return {**prefix_ours("stack.", self.body_table(model)), **head}

    def add_prefix(
        self, weights: Mapping[str, Any], architecture: str, model: nn.Module
    ) -> dict[str, Any]:
        """The same weights under the names of a file: the body's get the family's prefix.

        For a BertForMaskedLM, "embeddings.LayerNorm.bias" becomes "bert.embeddings.LayerNorm.bias",
        and "cls.predictions.bias" stays.

        Args:
            weights: public name in the tables -> anything.
            architecture: the public class.
            model: our model, for the names of the body's weights.
        """
        if not self.architectures[architecture].has_prefix:
            return dict(weights)
        body_names = written_out({**self.body_table(model), **self.pooler}, model)
        return {
            self.prefix + name if name in body_names else name: weight
            for name, weight in weights.items()
        }


def build_transformer(config: StackConfig, values: Values) -> nn.Module:
    """The body of every family with a single stack."""
    return Transformer(config)


def no_options(body: nn.Module, values: Values) -> dict[str, Any]:
    """The head takes nothing but the body."""
    return {}


def no_entries(model: nn.Module) -> dict[str, Any]:
    """The body's configuration has all entries of config.json."""
    return {}


@dataclass(frozen=True)
class Architecture:
    """A public class, such as `BertForMaskedLM`, and our class for the same model.

    The body is the model below the head: a `Transformer` or an `EncoderDecoder`. This is
    `BertForMaskedLM`. bert.py leaves out the fields that have their default.

        Architecture(
            head=heads.MLM,
            table={
                "cls.predictions.transform.dense.*": "head.dense.*",
                "cls.predictions.transform.LayerNorm.*": "head.norm.*",
                "cls.predictions.bias": "head.bias",
                "cls.predictions.decoder.bias": "head.bias",  # a second name
                "pooler.dense.*": None,  # files may have a pooler, which this class does not use
                "cls.seq_relationship.*": None,  # the same for next-sentence prediction
            },
            read_options=no_options,  # heads.MLM(body)
            build_body=build_transformer,
            write_options=no_entries,
            has_prefix=True,  # "bert.encoder.layer.0...", not "encoder.layer.0..."
            output={
                "cls.predictions.decoder.weight": "head.output.weight",
                "cls.predictions.decoder.bias": Converted(("head.bias",), is_duplicate=True),
            },
            read_tied=read_tie_word_embeddings,
        )

    `values` below has the entries of config.json, and three more kinds of entries:

        "classes", ...       options of the caller, which override config.json
        "weights"            the names of the tensors in the file; missing for a new model
        "tied", "one_table"  False: the output matrix is not the token embedding; encoder and
                             decoder have a token embedding each (`zoo.public_weights.ties`)

    Attributes:
        head: our class.
        table: public name -> our name, for the weights outside the body.
        read_options: (body, values) -> the arguments of `head` after the body.
        build_body: (configuration, values) -> the body.
        write_options: model -> the entries of config.json that `Family.write_config` cannot know,
            because only the head or the encoder has them.
        has_prefix: whether the names of the body's weights have the family's prefix. They have none
            if the body is saved without a head.
        output: public name -> our name of the output matrix, and of all that the file has only with
            it, if the class predicts tokens. The matrix comes first. The entries are used if the
            matrix is not the token embedding.
        read_tied: (entries of config.json, names of the tensors in the file) -> whether the output
            matrix should be the token embedding.
    """

    head: type[nn.Module]
    table: TableOf = field(default_factory=dict)
    read_options: Callable[[Any, Values], dict[str, Any]] = no_options
    build_body: Callable[[StackConfig, Values], nn.Module] = build_transformer
    write_options: Callable[[Any], dict[str, Any]] = no_entries
    has_prefix: bool = True
    output: Table = field(default_factory=dict)
    read_tied: Callable[[Values, Collection[str]], bool] = read_tie_word_embeddings

    def build(self, config: StackConfig, values: Values) -> nn.Module:
        """A new model of this class, with random weights.

        Args:
            config: the body's configuration.
            values: the entries of config.json and the others that the class lists.
        """
        body = self.build_body(config, values)
        options = self.read_options(body, values)
        if self.output and not values.get("tied", True):
            options["tied"] = False
        return self.head(body, **options)

    def head_table(self, model: nn.Module) -> Table:
        """The table of the weights outside the body, for a model of this class."""
        table = table_for(self.table, model)
        if not self.output:  # no prediction of tokens, as in BertForSequenceClassification
            return table
        if is_tied(model):
            # A file may repeat the token embedding as "cls.predictions.decoder.weight", which is
            # not read. "cls.predictions.decoder.bias" is read, because `table` has it, too.
            unused: Table = {name: None for name in self.output if name not in table}
            return {**table, **unused}
        # An untied BertForMaskedLM has "cls.predictions.decoder.weight". transformers then needs
        # the bias under both names: "cls.predictions.bias" and "cls.predictions.decoder.bias".
        return {**table, **self.output}
