"""RoBERTa (Liu et al. 2019).

Differs from BERT by: its training, a byte-level vocabulary, one segment instead of two.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families import bert
from course_lib.families.encoder_heads import (
    CLASSIFIER,
    DENSE_CLASSIFIER,
    gelu_head,
    per_token,
    pooled,
    pooled_body,
)
from course_lib.families.family import Architecture
from course_lib.families.fields import Values
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import Learned, StackConfig
from course_lib.model.transformer import Transformer

PAD = 1  # <pad> in RoBERTa's published vocabulary
# The first rows of the published position table are not used: its positions begin at PAD + 1.
OFFSET = PAD + 1


def roberta(
    vocab: int = 50265,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    length: int = 512,
) -> StackConfig:
    """A RoBERTa of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        length: maximum number of tokens in an input.
    """
    config = bert.bert(
        vocab,
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden,
        dropout=dropout,
        length=length,
        segments=1,
    )
    return replace(config, eps=1e-5)


FIELDS = replace(
    bert.FIELDS,
    published={**bert.FIELDS.published, "pad_token_id": PAD},
    position=lambda length: Learned(length - OFFSET),
)


def _read_config(values: Values) -> StackConfig:
    pad = values.get("pad_token_id", PAD)
    if isinstance(pad, int) and pad != PAD:
        raise CourseError(
            f"pad_token_id is {pad}, but RoBERTa's positions begin behind {PAD} here. If the model"
            f" was trained with {PAD}, correct the field. Otherwise its position table has"
            f" {pad + 1} unused rows in front and needs {OFFSET}: change that, and then"
            " max_position_embeddings and pad_token_id."
        )
    return FIELDS.read(values)


def _write_config(config: StackConfig) -> dict[str, Any]:
    values = FIELDS.write(config)
    values["max_position_embeddings"] += OFFSET
    return values | {"bos_token_id": 0, "eos_token_id": 2}


def without_offset(x: Tensor) -> Tensor:
    """The published position table without its unused first rows."""
    return x[OFFSET:]


def with_offset(x: Tensor) -> Tensor:
    """The reverse of `without_offset`."""
    unused = x.new_zeros(OFFSET, x.shape[1])
    return torch.cat((unused, x))


BODY: Table = {
    **bert.BODY,
    "embeddings.position_embeddings.weight": Converted(
        ("position.table.weight",), to_ours=without_offset, to_public=with_offset
    ),
}
MASKED: Table = {
    "lm_head.dense.*": "head.dense.*",
    "lm_head.layer_norm.*": "head.norm.*",
    "lm_head.bias": "head.bias",
    "lm_head.decoder.bias": "head.bias",  # the same bias under a second name
}
OUTPUT: Table = {
    "lm_head.decoder.weight": "head.output.weight",
    # If a file has this matrix, transformers needs the bias under its second name, too.
    "lm_head.decoder.bias": Converted(("head.bias",), is_duplicate=True),
}
FAMILY = replace(
    bert.FAMILY,
    name="roberta",
    config=roberta,
    model=lambda config, start: heads.MLM(Transformer(config), activation="gelu"),
    tokenizer="bpe",
    read_config=_read_config,
    write_config=_write_config,
    prefix="roberta.",
    table=BODY,
    architectures={
        "RobertaModel": pooled_body(bert.POOLER),
        "RobertaForMaskedLM": Architecture(
            heads.MLM,
            MASKED | bert.NO_POOLER,
            gelu_head,
            output=OUTPUT,
        ),
        "RobertaForSequenceClassification": pooled(
            heads.Classifier,
            DENSE_CLASSIFIER,
            "classifier_dropout",
            pooler_dropout_entry="classifier_dropout",
        ),
        "RobertaForMultipleChoice": Architecture(heads.MultipleChoice, bert.POOLER | CLASSIFIER),
        **per_token("Roberta", "classifier_dropout"),
    },
)
