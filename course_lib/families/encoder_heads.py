"""The public classes with heads that BERT's relatives share, up to names and activations."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.families.family import Architecture
from course_lib.families.fields import Values, read_classes
from course_lib.families.weight_tables import Table, written_out
from course_lib.model import heads
from course_lib.model.transformer import Transformer

CLASSIFIER: Table = {"classifier.*": "out.*"}
SPAN: Table = {"qa_outputs.*": "out.*"}
# RoBERTa and ELECTRA: the classifier is a dense layer with an activation, and a linear layer.
DENSE_CLASSIFIER: Table = {"classifier.dense.*": "pooler.dense.*", "classifier.out_proj.*": "out.*"}


def gelu_head(body: Transformer, values: Values) -> dict[str, Any]:
    """The masked-language-model head always has GELU, even if the stack has another activation."""
    return {"activation": "gelu"}


def pooled_body(pooler: Table) -> Architecture:
    """The class of a body with its pooler. A file without the pooler's weights can be read, too.

    Args:
        pooler: the pooler's table.
    """
    weight_name = next(iter(written_out(pooler)))  # a file with the pooler has this name

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        return {"has_pooler": "weights" not in values or weight_name in values["weights"]}

    def table(model: Any) -> Table:
        # `Sentence`, too, is saved as a body, and has no pooler at all.
        return {} if getattr(model, "pooler", None) is None else pooler

    return Architecture(heads.Pooled, table, options, has_prefix=False)


def per_token(name: str, dropout_entry: str = "") -> dict[str, Architecture]:
    """The two classes with a linear layer on every token, which are the same in all encoders.

    Args:
        name: what the names of the classes begin with, such as "Bert".
        dropout_entry: the entry of config.json with the dropout of token classification; "": there
            is none, and the rate of the stack is used.
    """

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        arguments: dict[str, Any] = {"classes": read_classes(values)}
        if dropout_entry:
            arguments["dropout"] = values.get(dropout_entry)  # None: the rate of the stack
        return arguments

    def write(model: Any) -> dict[str, Any]:
        return {dropout_entry: model.dropout.p} if dropout_entry else {}

    return {
        f"{name}ForTokenClassification": Architecture(
            heads.TokenClassifier, CLASSIFIER, options, write_options=write
        ),
        f"{name}ForQuestionAnswering": Architecture(heads.QuestionAnswering, SPAN),
    }


def pooled(
    head: type[nn.Module],
    table: Table,
    dropout_entry: str,
    default: float | None = None,
    *,
    activation: Callable[[Tensor], Tensor] = torch.tanh,
    pooler_dropout_entry: str = "",
) -> Architecture:
    """A class with a pooler that differs from BERT's, and a linear layer.

    Args:
        head: our class.
        table: the table of the pooler and the last layer.
        dropout_entry: the entry of config.json with the dropout before the last layer.
        default: the rate if config.json lacks that entry; None: the rate of the stack.
        activation: the activation in the pooler.
        pooler_dropout_entry: the entry of config.json with the dropout before the pooler; "": no
            dropout there.
    """

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        rate = values.get(dropout_entry, default)
        if rate is None:
            rate = body.config.dropout
        if pooler_dropout_entry == dropout_entry:
            pooler_rate = rate
        else:
            pooler_rate = values.get(pooler_dropout_entry, 0.0)
        arguments = {"pooler": heads.Pooler(body, activation, pooler_rate), "dropout": rate}
        if head is heads.Classifier:
            arguments["classes"] = read_classes(values)
        return arguments

    def write(model: Any) -> dict[str, Any]:
        values = {dropout_entry: model.dropout.p}
        if pooler_dropout_entry:
            values[pooler_dropout_entry] = model.pooler.dropout.p
        return values

    return Architecture(head, table, options, write_options=write)
