"""The model for a task: a copy of a body, and the head of this kind of task on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from torch import nn

from course_lib import families
from course_lib.errors import CourseError
from course_lib.families.weight_tables import convert_back
from course_lib.model import heads
from course_lib.model.config import Kind, Pool, with_dropout
from course_lib.model.resize import copy_weights, with_vocabulary
from course_lib.model.transformer import Transformer
from course_lib.training.finetune_config import FinetuneConfig
from course_lib.training.task_data import TaskData

Wrap = Callable[[Transformer], nn.Module]


@runtime_checkable
class TaskBody(Protocol):
    """A body that makes its own model for a task (`families.baselines.Words`)."""

    config: Any

    def for_task(
        self,
        kind: Kind,
        classes: int | None,
        *,
        pretrained: bool,
        frozen: bool,
        dropout: float | None,
    ) -> nn.Module:
        """The model for one task, on a copy of the body."""


def body_of(model: nn.Module) -> Any:
    """What is tuned of a model: the Transformer that it is or owns, or the body itself."""
    if isinstance(model, TaskBody | Transformer):
        return model
    body = getattr(model, "stack", None)
    if not isinstance(body, Transformer):
        raise CourseError(
            f"Fine-tuning starts from a Transformer, or its owner; a {type(model).__name__} has"
            " none."
        )
    return body


@dataclass(frozen=True)
class HeadOptions:
    """The settings of a new head.

    Attributes:
        classes: the number of classes; 1 for a score.
        pool: which token's vector a classifier reads.
        bias: whether a classifier's last layer has a bias.
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


def build(
    model: nn.Module,
    data: TaskData,
    config: FinetuneConfig,
    peft: Wrap | None,
    on_top: Wrap | None,
) -> nn.Module:
    """The model that is trained: a copy of the body, and the task's head.

    Args:
        model: what the caller gave.
        data: the task.
        config: of the fine-tuning.
        peft: wraps the body, whose weights then stay as they are.
        on_top: wraps the body once more, under the head.
    """
    kind = data.frame.kind
    body = body_of(model)
    if isinstance(body, TaskBody):
        return body.for_task(
            kind,
            data.frame.classes,
            pretrained=config.pretrained,
            frozen=config.frozen,
            dropout=config.dropout,
        )

    is_causal = body.config.causal
    tokens = data.frame.tokenizer.vocab.size
    body = _copy(body, tokens, pretrained=config.pretrained, dropout=config.dropout)
    if peft is not None:
        body = cast(Transformer, peft(body))
    under_head = body if on_top is None else cast(Transformer, on_top(body))
    head = HeadOptions(
        classes=data.frame.classes or 1,
        pool=config.pool or ("last" if is_causal else "first"),
        bias=config.out is None or not is_causal,
    )
    tuned = HEADS[kind](under_head, head)
    tuned.multi_label = data.frame.multi_label  # type: ignore[assignment]

    if config.pretrained:
        _copy_pooler(model, tuned)
    if config.frozen:
        body.requires_grad_(False)
    if config.out is not None:
        _fit_public_class(tuned)
    return tuned


def _copy_pooler(model: nn.Module, tuned: nn.Module) -> None:
    """Let a classifier begin with the model's own pooler, if both have one (BERT's)."""
    pooler: Any = getattr(model, "pooler", None)
    if pooler is None or not isinstance(tuned, heads.Classifier) or tuned.pool != "first":
        return
    own_pooler: Any = tuned.pooler
    own_pooler.load_state_dict(pooler.state_dict())
    own_pooler.activation = pooler.activation


def _copy(
    stack: Transformer, tokens: int, *, pretrained: bool, dropout: float | None
) -> Transformer:
    """The same model apart from the original.

    Its table has a row for each of the `tokens`, a decoder's marks (`inputs.with_marks`) among
    them.
    """
    rows = max(tokens, stack.config.embed.vocab)
    config = with_vocabulary(stack.config, rows)
    if dropout is not None:
        config = with_dropout(config, dropout)
    body = Transformer(config)
    if pretrained:
        copy_weights(stack, body)
    return body


def _fit_public_class(model: nn.Module) -> None:
    """Make the head that of the public class it will be saved as.

    Raises:
        CourseError: if there is no public class for this model, or it pools in another way. It is
            known before any training.
    """
    family = families.family_of(model)
    name = families.public_class(model, family) or ""
    families.check_pool(model, family.architectures[name])
    options = family.architectures[name].options(cast(Any, model).stack, {})
    # ELECTRA's, DistilBERT's and ModernBERT's classes have a pooler of their own.
    public_pooler = options.get("pooler")
    own_pooler: Any = getattr(model, "pooler", None)
    if public_pooler is not None and own_pooler is not None:
        own_pooler.activation = public_pooler.activation
        own_pooler.norm = public_pooler.norm
    # ModernBERT's have one more layer on every token.
    if "transform" in options:
        model.transform = options["transform"]
    convert_back(model.state_dict(), family.whole_table(name, model), model)
