"""The model for a task: a copy of a pretrained body, with a new head on top.

The body is all of a model but its output layer; the head is the output layer for the task. For a
BERT and a task with two classes, `build` returns

    Classifier
        stack     the body: embeddings and 12 layers, a copy of the pretrained ones
        out       the head: a new matrix from 768 numbers to 2 classes, random at first
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import nn

from course_lib import families
from course_lib.errors import CourseError
from course_lib.families.family import Family
from course_lib.families.weight_tables import convert_back
from course_lib.model import heads
from course_lib.model.config import Kind, Pool, with_dropout
from course_lib.model.transformer import Transformer
from course_lib.training.finetune_config import FinetuneConfig
from course_lib.training.task_data import TaskData

TABLE = "embed.tokens.weight"  # the name of the token embeddings in a Transformer
# A function that adds new weights to a body, or a network on top of it. The result has the body's
# interface.
Wrap = Callable[[Transformer], nn.Module]


@runtime_checkable
class TaskBody(Protocol):
    """A body that builds its own model for a task, such as `families.baselines.Words`."""

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


def build(
    model: nn.Module,
    data: TaskData,
    config: FinetuneConfig,
    peft: Wrap | None,
    on_top: Wrap | None,
) -> nn.Module:
    """Build the model that is fine-tuned: a copy of the body, and a new head for the task.

    Args:
        model: a Transformer, a model with a Transformer in its `stack`, or a `TaskBody`. It stays
            as it is.
        data: the encoded task.
        config: the settings of the fine-tuning.
        peft: adds a few new weights to the body; only they and the head are trained (`peft.lora`).
        on_top: puts further layers between the body and the head, such as a BiLSTM.

    Raises:
        CourseError: `model` has no Transformer; or the result is to be saved (`config.out`), and no
            public class has this head, its pooling and these weights.
    """
    original = body_of(model)
    kind = data.frame.kind
    if isinstance(original, TaskBody):  # no Transformer, so none of the steps below fits it
        return original.for_task(
            kind,
            data.frame.classes,
            pretrained=config.pretrained,
            frozen=config.frozen,
            dropout=config.dropout,
        )

    # 1. Copy the body.
    body = copy_body(original, data.frame.tokenizer.vocab.size, config)

    # 2. Adapt it.
    if peft is not None:
        body = cast(Transformer, peft(body))
    top = body
    if on_top is not None:
        top = cast(Transformer, on_top(body))

    # 3. Add the head.
    is_causal = original.config.causal
    head = _new_head(
        top,
        kind,
        classes=data.frame.classes or 1,  # without classes the only output is a score
        # In a causal model only the last token has seen the whole text.
        pool=config.pool or ("last" if is_causal else "first"),
        # transformers' GPT classifiers have no bias, so one that is saved must not have one either.
        bias=config.out is None or not is_causal,
    )
    head.multi_label = data.frame.multi_label

    # 4. Initialise the head. All its weights are random, except a pretrained pooler (BERT's).
    if config.pretrained:
        _copy_pooler(model, head)
    if config.out is not None:
        _match_public_class(head)
        check_can_be_saved(head)  # before the training, which would be lost

    # 5. Freeze the body. `peft` and `frozen` exclude each other (finetune.py), so no weight that
    #    `peft` added is frozen here. The layers of `on_top` are trained, as the head is.
    if config.frozen:
        body.requires_grad_(False)
    return head


def body_of(model: nn.Module) -> Any:
    """The part of a model that fine-tuning copies: a Transformer, or a `TaskBody`.

    Raises:
        CourseError: the model neither is a Transformer nor has one.
    """
    if isinstance(model, TaskBody | Transformer):
        return model
    body = getattr(model, "stack", None)
    if not isinstance(body, Transformer):
        raise CourseError(
            f"Fine-tuning starts from a Transformer, or its owner; a {type(model).__name__} has"
            " none."
        )
    return body


def copy_body(original: Transformer, vocabulary: int, config: FinetuneConfig) -> Transformer:
    """A copy of a body in float32, perhaps with a larger vocabulary.

    For a task a decoder's tokenizer gets three new special tokens (`inputs.with_task_tokens`). So
    the copy gets a token table with three more rows (vectors), which are random at first.

    Args:
        original: the body; it stays unchanged, and the copy shares no weights with it.
        vocabulary: number of tokens of the task's tokenizer.
        config: gives the dropout. Without `pretrained`, all weights of the copy are random.
    """
    # A token table may have more rows than the tokenizer has tokens; it never loses one.
    old_rows = original.config.embed.vocab
    larger = replace(original.config.embed, vocab=max(vocabulary, old_rows))
    body_config = replace(original.config, embed=larger)
    if config.dropout is not None:
        body_config = with_dropout(body_config, config.dropout)
    body = Transformer(body_config)
    if config.pretrained:
        weights = {name: value.float() for name, value in original.state_dict().items()}
        new_rows = body.state_dict()[TABLE][old_rows:]
        old_table = weights[TABLE]
        weights[TABLE] = torch.cat([old_table, new_rows.to(old_table.device)])
        body.load_state_dict(weights)  # copies the values
    return body


def _new_head(body: Transformer, kind: Kind, classes: int, pool: Pool, bias: bool) -> heads.Head:
    """A new head for this kind of task, on a body; it draws random weights."""
    match kind:
        case "single" | "pair":
            return heads.Classifier(body, classes=classes, pool=pool, bias=bias)
        case "tagging":
            return heads.TokenClassifier(body, classes=classes)
        case "choice":
            return heads.MultipleChoice(body, pool=pool)
        case "span":
            return heads.QuestionAnswering(body)


def _copy_pooler(model: nn.Module, head: heads.Head) -> None:
    """Copy a pretrained pooler into a classifier, if both models have one (BERT)."""
    pooler: Any = getattr(model, "pooler", None)
    if pooler is None or not isinstance(head, heads.Classifier) or head.pooler is None:
        return
    head.pooler.load_state_dict(pooler.state_dict())
    head.pooler.activation = pooler.activation


def _match_public_class(head: heads.Head) -> None:
    """Give a new head the layers of the public class that it will be saved as.

    Raises:
        CourseError: no public class has this head and configuration, or its pooling differs.
    """
    family, name = _public_class(head)
    families.check_pool(head, family.architectures[name])
    options = family.architectures[name].read_options(head.stack, {})
    # The poolers of ELECTRA, DistilBERT and ModernBERT differ from BERT's.
    public_pooler = options.get("pooler")
    if public_pooler is not None and isinstance(head, heads.Classifier) and head.pooler is not None:
        head.pooler.activation = public_pooler.activation
        head.pooler.norm = public_pooler.norm
    # ModernBERT has one more layer before the outputs for each token.
    if "transform" in options:
        head.transform = options["transform"]


def check_can_be_saved(model: nn.Module) -> None:
    """Refuse a model that cannot be saved: convert its weights as for a file, but write nothing.

    Raises:
        CourseError: no public class has exactly these weights.
    """
    family, name = _public_class(model)
    convert_back(model.state_dict(), family.whole_table(name, model), model)


def _public_class(model: nn.Module) -> tuple[Family, str]:
    """The family that a model is saved in, and the name of its class in transformers."""
    family = families.family_of(model)
    name = families.public_class(model, family)
    if name is None:
        raise CourseError(
            f"The family {family.name} has no public class for a {type(model).__name__}."
        )
    return family, name
