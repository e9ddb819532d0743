"""RoBERTa (Liu et al. 2019).

Differs from BERT by: how it is trained (ten times the text, larger batches, masks drawn anew each time, whole stretches
of text instead of sentence pairs and no next-sentence task). The model is BERT itself, over a byte-level vocabulary and
with a single segment.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from course_lib import heads
from course_lib.config import Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.models import bert
from course_lib.models.bert import NO_POOLER, POOLER, labels, pairs
from course_lib.stack import Stack

PAD = 1  # <pad> in the published vocabulary
OFFSET = PAD + 1  # rows in front of the published position table that no position uses: counting begins behind PAD


def roberta(
    vocab: int = 50265, *, width: int, layers: int, heads: int, hidden: int | None = None, length: int = 512,
    dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """A RoBERTa of any size."""
    config = bert.bert(
        vocab, width=width, layers=layers, heads=heads, hidden=hidden, length=length, segments=1, dropout=dropout
    )
    return replace(config, eps=1e-5)


def roberta_base() -> StackConfig:
    """12 layers of 768, 12 heads: 125M."""
    return roberta(width=768, layers=12, heads=12)


def roberta_large() -> StackConfig:
    """24 layers of 1024, 16 heads: 355M."""
    return roberta(width=1024, layers=24, heads=16)


def roberta_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's RoBERTa: `bert_mini` with one segment."""
    return roberta(vocab, width=128, layers=4, heads=4, length=length, dropout=dropout)


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' RobertaModel to ours."""
    if values.get("pad_token_id", PAD) != PAD or values.get("hidden_act", "gelu") != "gelu":
        raise CourseError(f"Only RoBERTa as published is read: GELU, pad_token_id {PAD}.")
    config = bert.read_config(values)
    return replace(config, position=Learned(values["max_position_embeddings"] - OFFSET))


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    values = bert.write_config(config)
    return values | {
        "max_position_embeddings": values["max_position_embeddings"] + OFFSET,
        "pad_token_id": PAD,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def without_offset(x: Tensor) -> Tensor:
    """The rows of a published position table that positions use."""
    return x[OFFSET:]


def with_offset(x: Tensor) -> Tensor:
    """The reverse of `without_offset`."""
    return torch.cat((x.new_zeros(OFFSET, x.shape[1]), x))


def _classifier(config: StackConfig, values: Mapping[str, Any]) -> heads.Classifier:
    stack, rate = Stack(config), classifier_dropout(config, values)
    return heads.Classifier(stack, labels(values), pooler=heads.Pooler(stack, dropout=rate), dropout=rate)


def classifier_dropout(config: StackConfig, values: Mapping[str, Any]) -> float:
    """Dropout of the head: config.json's, or the stack's where that says none."""
    rate = values.get("classifier_dropout")
    return config.dropout if rate is None else rate


def write_dropout(model: Any) -> dict[str, Any]:
    """The reverse of `classifier_dropout`."""
    return {"classifier_dropout": model.dropout.p}


TABLE = Rule("embeddings.position_embeddings.weight", "position.table.weight", without_offset, with_offset)
BODY = tuple(TABLE if rule.theirs == TABLE.theirs else rule for rule in bert.BODY)
MASKED = (
    *pairs("lm_head.dense", "head.dense"),
    *pairs("lm_head.layer_norm", "head.norm"),
    Rule("lm_head.bias", "head.bias"),
    Rule("lm_head.decoder.weight", None),  # tied to the token vectors
    Rule("lm_head.decoder.bias", None),  # tied to lm_head.bias
)

FAMILY = Family(
    model_type="roberta",
    read_config=read_config,
    write_config=write_config,
    prefix="roberta.",
    rules=BODY,
    pooler=POOLER,
    architectures={
        "RobertaModel": Architecture(lambda c, v: heads.Pooled(Stack(c)), POOLER, has_prefix=False),
        "RobertaForMaskedLM": Architecture(lambda c, v: heads.MLM(Stack(c)), MASKED + NO_POOLER),
        "RobertaForSequenceClassification": Architecture(
            _classifier,
            (*pairs("classifier.dense", "pooler.dense"), *pairs("classifier.out_proj", "out")),
            write=write_dropout,
        ),
        "RobertaForMultipleChoice": Architecture(
            lambda c, v: heads.Choice(Stack(c)), POOLER + pairs("classifier", "out")
        ),
        "RobertaForTokenClassification": Architecture(
            lambda c, v: heads.Tagger(Stack(c), labels(v)), pairs("classifier", "out")
        ),
        "RobertaForQuestionAnswering": Architecture(lambda c, v: heads.Span(Stack(c)), pairs("qa_outputs", "out")),
    },
)
