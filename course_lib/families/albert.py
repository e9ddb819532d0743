"""ALBERT (Lan et al. 2020).

Differs from BERT by: one block applied L times; token vectors of 128, projected to the model's
width; the second task asks for the order of two segments, instead of whether they belong together
(all section 3.1). This is version 2, which has no dropout, and GELU's tanh approximation.

No batch of the course asks for that order: the head is only read from public weights.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from course_lib.families import bert
from course_lib.families.encoder_heads import CLASSIFIER, per_token, pooled, pooled_body
from course_lib.families.family import Architecture
from course_lib.families.fields import Entry, Fields
from course_lib.families.weight_tables import Table
from course_lib.model import heads
from course_lib.model.config import StackConfig


def albert(
    vocab: int = 30000, *, embed: int = 128, dropout: float = 0.0, **size: Any
) -> StackConfig:
    """An ALBERT of any size.

    Args:
        vocab: V.
        embed: width of the token vectors.
        dropout: of hidden states and attention weights.
        size: `width`, `layers`, `heads`, ... as of `bert.bert`.
    """
    config = bert.bert(vocab, dropout=dropout, **size)
    narrow = replace(config.embed, width=embed)
    return replace(config, embed=narrow, shared=True, activation="gelu_tanh")


# How config.json says an ALBERT: as a BERT, but for these entries.
FIELDS = Fields(
    {
        **bert.FIELDS.entries,
        "hidden_act": Entry("activation", default="gelu_new"),
        "hidden_dropout_prob": Entry("dropout", default=0.0),
        "attention_probs_dropout_prob": Entry("attention_dropout", default=0.0),
        "embedding_size": Entry("embed.width"),
    },
    fixed={**bert.FIELDS.fixed, "shared": True},
    published={"num_hidden_groups": 1, "inner_group_num": 1},
)
# How an ALBERT's weights are called: there, and here. All layers are this one.
_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
BODY: Table = {
    **bert.EMBEDDINGS,
    "encoder.embedding_hidden_mapping_in.*": "embed.project.*",
    f"{_LAYER}.attention.query.*": "blocks.0.attn.q.*",
    f"{_LAYER}.attention.key.*": "blocks.0.attn.k.*",
    f"{_LAYER}.attention.value.*": "blocks.0.attn.v.*",
    f"{_LAYER}.attention.dense.*": "blocks.0.attn.out.*",
    f"{_LAYER}.attention.LayerNorm.*": "blocks.0.attn_norm.*",
    f"{_LAYER}.ffn.*": "blocks.0.ff.up.*",
    f"{_LAYER}.ffn_output.*": "blocks.0.ff.down.*",
    f"{_LAYER}.full_layer_layer_norm.*": "blocks.0.ff_norm.*",
}
# The parts outside of the body. The pooler reads the first token, for tasks on a whole text.
POOLER: Table = {"pooler.*": "pooler.dense.*"}
MASKED: Table = {
    "predictions.dense.*": "head.dense.*",
    "predictions.LayerNorm.*": "head.norm.*",
    "predictions.bias": "head.bias",
    "predictions.decoder.bias": "head.bias",  # another name of this bias
}
OUTPUT: Table = {"predictions.decoder.weight": "head.output.weight"}
# The second task: which of two segments came first (section 3.1, "sentence-order prediction").
ORDER: Table = {"sop_classifier.classifier.*": "next.*"}
# Weights for masked tokens may hold a pooler and this head all the same, which nothing reads.
UNUSED: Table = {"pooler.*": None, "sop_classifier.classifier.*": None}
_classified = partial(
    pooled, table=POOLER | CLASSIFIER, dropout="classifier_dropout_prob", default=0.1
)

FAMILY = replace(
    bert.FAMILY,
    name="albert",
    config=albert,
    read_config=FIELDS.read,
    write_config=FIELDS.write,
    prefix="albert.",
    table=BODY,
    pooler=POOLER,
    architectures={
        "AlbertModel": pooled_body(POOLER),
        "AlbertForMaskedLM": Architecture(heads.MLM, MASKED | UNUSED, output=OUTPUT),
        "AlbertForPreTraining": Architecture(
            heads.Pretraining,
            MASKED | POOLER | ORDER,
            lambda body, values: {"dropout": values.get("classifier_dropout_prob", 0.1)},
            write=lambda model: {"classifier_dropout_prob": model.dropout.p},
            output=OUTPUT,
        ),
        "AlbertForSequenceClassification": _classified(heads.Classifier),
        "AlbertForMultipleChoice": _classified(heads.MultipleChoice),
        **per_token("Albert", "classifier_dropout_prob"),
    },
)
