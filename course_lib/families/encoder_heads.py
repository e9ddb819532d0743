"""The public classes on top of BERT and its relatives, which differ in names and activations."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.families.family import Architecture, classes
from course_lib.families.fields import Values
from course_lib.families.weight_tables import Table, written_out
from course_lib.model import heads
from course_lib.model.transformer import Transformer

CLASSIFIER: Table = {"classifier.*": "out.*"}
SPAN: Table = {"qa_outputs.*": "out.*"}
# A dense layer with an activation, and then the last layer: RoBERTa and ELECTRA.
DENSE_CLASSIFIER: Table = {"classifier.dense.*": "pooler.dense.*", "classifier.out_proj.*": "out.*"}


def gelu_head(body: Transformer, values: Values) -> dict[str, Any]:
    """The masked-language-model head has GELU, whatever the layers have."""
    return {"activation": "gelu"}


def pooled_body(pooler: Table) -> Architecture:
    """A body with its pooler, which a file may lack.

    Args:
        pooler: its table.
    """
    (first, *_) = written_out(pooler)

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        return {"has_pooler": "weights" not in values or first in values["weights"]}

    def table(model: Any) -> Table:
        return {} if model.pooler is None else pooler

    return Architecture(heads.Pooled, table, options, has_prefix=False)


def per_token(name: str, dropout: str = "") -> dict[str, Architecture]:
    """The two classes that have one layer on every token, the same in all encoders.

    Args:
        name: of the family in front of the class's name.
        dropout: config.json's name of the tagger's dropout; by default it is the stack's.
    """

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        arguments = classes(body, values)
        if dropout:
            arguments["dropout"] = values.get(dropout)
        return arguments

    def write(model: Any) -> dict[str, Any]:
        return {dropout: model.dropout.p} if dropout else {}

    return {
        f"{name}ForTokenClassification": Architecture(
            heads.TokenClassifier, CLASSIFIER, options, write=write
        ),
        f"{name}ForQuestionAnswering": Architecture(heads.QuestionAnswering, SPAN),
    }


def pooled(
    head: type[nn.Module],
    table: Table,
    dropout: str,
    default: float | None = None,
    *,
    activation: Callable[[Tensor], Tensor] = torch.tanh,
    inner: str = "",
) -> Architecture:
    """A class with a pooler that differs from BERT's, and a linear layer.

    Args:
        head: our class.
        table: of the pooler and the last layer.
        dropout: config.json's name of the dropout before the last layer.
        default: that dropout where config.json does not have it; None: the stack's.
        activation: of the pooler.
        inner: config.json's name of the dropout before the pooler, if it has one.
    """

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        rate = values.get(dropout, default)
        if rate is None:
            rate = body.config.dropout
        inner_rate = rate if inner == dropout else values.get(inner, 0.0)
        arguments = {"pooler": heads.Pooler(body, activation, inner_rate), "dropout": rate}
        if head is heads.Classifier:
            arguments |= classes(body, values)
        return arguments

    def write(model: Any) -> dict[str, Any]:
        values = {dropout: model.dropout.p}
        if inner:
            values[inner] = model.pooler.dropout.p
        return values

    return Architecture(head, table, options, write=write)
