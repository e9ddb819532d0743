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
from course_lib.families.bert import CLASSIFIER, EMBEDDINGS, per_token, pooled
from course_lib.families.rules import Architecture, Fields, dropped, pairs
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
        "hidden_act": ("activation", "gelu_new"),
        "hidden_dropout_prob": ("dropout", 0.0),
        "attention_probs_dropout_prob": ("attention_dropout", 0.0),
        "embedding_size": ("embed.width", None),
    },
    fixed={**bert.FIELDS.fixed, "shared": True},
    published={"num_hidden_groups": 1, "inner_group_num": 1},
)
# All layers are this one, so no rule has a layer number.
_SHARED = "encoder.albert_layer_groups.0.albert_layers.0"
BODY = (
    *EMBEDDINGS,
    *pairs("encoder.embedding_hidden_mapping_in", "embed.project"),
    *pairs(f"{_SHARED}.attention", "blocks.0.attn", query="q", key="k", value="v", dense="out"),
    *pairs(f"{_SHARED}.attention.LayerNorm", "blocks.0.attn_norm"),
    *pairs(f"{_SHARED}.ffn", "blocks.0.ff.up"),
    *pairs(f"{_SHARED}.ffn_output", "blocks.0.ff.down"),
    *pairs(f"{_SHARED}.full_layer_layer_norm", "blocks.0.ff_norm"),
)
# The parts outside of the body. The pooler reads the first token, for tasks on a whole text.
POOLER = pairs("pooler", "pooler.dense")
# Public weights for masked tokens may hold a pooler all the same, which nothing reads.
NO_POOLER = dropped("pooler.weight", "pooler.bias")
MASKED = bert.masked(
    "predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder"
)
# The second task: which of two segments came first (section 3.1, "sentence-order prediction").
ORDER = pairs("sop_classifier.classifier", "next")
NO_ORDER = dropped("sop_classifier.classifier.weight", "sop_classifier.classifier.bias")
_classified = partial(
    pooled, rules=POOLER + CLASSIFIER, dropout="classifier_dropout_prob", default=0.1
)

FAMILY = replace(
    bert.FAMILY,
    name="albert",
    config=albert,
    read_config=FIELDS.read,
    write_config=FIELDS.write,
    prefix="albert.",
    rules=BODY,
    pooler=POOLER,
    architectures={
        "AlbertModel": Architecture(heads.Pooled, POOLER, has_prefix=False),
        "AlbertForMaskedLM": Architecture(heads.MLM, MASKED + NO_POOLER + NO_ORDER),
        "AlbertForPreTraining": Architecture(heads.Pretraining, MASKED + POOLER + ORDER),
        "AlbertForSequenceClassification": _classified(heads.Classifier),
        "AlbertForMultipleChoice": _classified(heads.MultipleChoice),
        **per_token("Albert", "classifier_dropout_prob"),
    },
)
