"""ALBERT (Lan et al. 2020).

Differs from BERT by: one block applied L times; token vectors of width 128, projected to the width
of the model; sentence-order prediction (which of two segments comes first?) instead of
next-sentence prediction (all section 3.1). This is version 2, which has no dropout, and GELU's tanh
approximation.

The course does not train sentence-order prediction. It only reads that head from public weights.
"""

from dataclasses import replace
from functools import partial

from course_lib.families import bert
from course_lib.families.encoder_heads import CLASSIFIER, per_token, pooled, pooled_body
from course_lib.families.family import Architecture
from course_lib.families.fields import Entry, Fields
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import StackConfig


def albert(
    vocab: int = 30000,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.0,
    length: int = 512,
    embed: int = 128,
) -> StackConfig:
    """An ALBERT of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        length: maximum number of tokens in an input.
        embed: size of the token embeddings, which a matrix projects to `width`.
    """
    config = bert.bert(
        vocab,
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden,
        dropout=dropout,
        length=length,
    )
    narrow = replace(config.embed, width=embed)
    return replace(config, embed=narrow, shared=True, activation="gelu_tanh")


# ALBERT's config.json is BERT's, except for these entries.
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
# Public names of an ALBERT's weights -> our names. All layers share the weights of layer 0.
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
# The weights outside the body. The pooler reads the first token.
POOLER: Table = {"pooler.*": "pooler.dense.*"}
MASKED: Table = {
    "predictions.dense.*": "head.dense.*",
    "predictions.LayerNorm.*": "head.norm.*",
    "predictions.bias": "head.bias",
    "predictions.decoder.bias": "head.bias",  # the same bias under a second name
}
OUTPUT: Table = {
    "predictions.decoder.weight": "head.output.weight",
    # If a file has this matrix, transformers needs the bias under its second name, too.
    "predictions.decoder.bias": Converted(("head.bias",), is_duplicate=True),
}
# Sentence-order prediction (section 3.1).
ORDER: Table = {"sop_classifier.classifier.*": "next.*"}
# A file of an AlbertForMaskedLM may contain these weights, which that class does not use.
UNUSED: Table = {"pooler.*": None, "sop_classifier.classifier.*": None}
_classified = partial(
    pooled, table=POOLER | CLASSIFIER, dropout_entry="classifier_dropout_prob", default=0.1
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
            write_options=lambda model: {"classifier_dropout_prob": model.dropout.p},
            output=OUTPUT,
        ),
        "AlbertForSequenceClassification": _classified(heads.Classifier),
        "AlbertForMultipleChoice": _classified(heads.MultipleChoice),
        **per_token("Albert", "classifier_dropout_prob"),
    },
)
