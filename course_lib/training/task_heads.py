"""Which head a kind of task puts on a model's body."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from course_lib.model import heads
from course_lib.model.config import Kind, Pool
from course_lib.model.transformer import Transformer


@dataclass(frozen=True)
class HeadOptions:
    """What a head can be told.

    Attributes:
        classes: of the labels; 1 for a score.
        pool: which token's vector a classifier reads.
        bias: of a classifier's last layer.
    """

    classes: int
    pool: Pool
    bias: bool


def _classifier(body: Transformer, options: HeadOptions) -> nn.Module:
    return heads.Classifier(body, classes=options.classes, pool=options.pool, bias=options.bias)


def _token_classifier(body: Transformer, options: HeadOptions) -> nn.Module:
    return heads.TokenClassifier(body, classes=options.classes)


def _multiple_choice(body: Transformer, options: HeadOptions) -> nn.Module:
    return heads.MultipleChoice(body, pool=options.pool)


def _question_answering(body: Transformer, options: HeadOptions) -> nn.Module:
    return heads.QuestionAnswering(body)


# How the head of each kind of task is made, and which kind of task a head is for.
HEADS: dict[Kind, Callable[[Transformer, HeadOptions], nn.Module]] = {
    "single": _classifier,
    "pair": _classifier,
    "tagging": _token_classifier,
    "choice": _multiple_choice,
    "span": _question_answering,
}
KINDS: dict[type[nn.Module], Kind] = {
    heads.Classifier: "single",  # or "pair", which has the same head
    heads.TokenClassifier: "tagging",
    heads.MultipleChoice: "choice",
    heads.QuestionAnswering: "span",
}
