"""DistilBERT (Sanh et al. 2019).

Differs from BERT by: half the layers, no segments and no pooler. `student` makes one of a BERT.
"""

from dataclasses import replace
from functools import partial

import torch

from course_lib.families import bert
from course_lib.families.encoder_heads import CLASSIFIER, SPAN, per_token, pooled
from course_lib.families.family import Architecture
from course_lib.families.fields import Fields
from course_lib.families.weight_tables import Table
from course_lib.model import heads
from course_lib.model.seq2seq import Hidden
from course_lib.model.transformer import Transformer


def student(teacher: Transformer, layers: int | None = None) -> Transformer:
    """A student that starts as every second layer of its teacher (section 2, "student
    initialization").

    DistilBERT has no segment table. The vector of segment 0 is added to every position vector
    instead. Students of a pre-norm BERT or a RoBERTa keep one segment, because the public formats
    of Megatron-BERT and RoBERTa have a segment table.

    Args:
        teacher: a BERT, or a model of a similar family.
        layers: number of layers of the student, by default half of the teacher's. They are copied
            from evenly spaced layers.
    """
    config = teacher.config
    layers = layers or max(1, config.layers // 2)
    keeps_segments = config.norm == "pre" or config.embed.segments == 1
    embed = replace(config.embed, segments=int(keeps_segments))
    model = Transformer(replace(config, layers=layers, embed=embed))

    # Copy embedding and norms here; segments and blocks follow below.
    skipped = ("blocks.", "embed.segments.")
    weights = {
        name: tensor
        for name, tensor in teacher.state_dict().items()
        if not name.startswith(skipped)
    }
    table = weights["position.table.weight"]
    if teacher.embed.segments is None:
        first_segment = torch.zeros_like(table[:1])
    else:
        first_segment = teacher.embed.segments.weight[:1]
    if keeps_segments:
        weights["embed.segments.weight"] = first_segment
    else:
        weights["position.table.weight"] = table + first_segment
    model.load_state_dict(weights, strict=False)  # not strict: the blocks are not in it

    for layer, block in enumerate(model.blocks):
        source = teacher.blocks[layer * config.layers // layers]
        block.load_state_dict(source.state_dict())
    return model


# DistilBERT's config.json has no entry for eps.
FIELDS = Fields.of("distilbert", fixed={**bert.FIELDS.fixed, "eps": 1e-12})
BODY: Table = {
    "embeddings.word_embeddings.weight": "embed.tokens.weight",
    "embeddings.position_embeddings.weight": "position.table.weight",
    "embeddings.position_ids": None,
    "embeddings.LayerNorm.*": "embed.norm.*",
    "transformer.layer.{layer}.attention.q_lin.*": "blocks.{layer}.attn.q.*",
    "transformer.layer.{layer}.attention.k_lin.*": "blocks.{layer}.attn.k.*",
    "transformer.layer.{layer}.attention.v_lin.*": "blocks.{layer}.attn.v.*",
    "transformer.layer.{layer}.attention.out_lin.*": "blocks.{layer}.attn.out.*",
    "transformer.layer.{layer}.sa_layer_norm.*": "blocks.{layer}.attn_norm.*",
    "transformer.layer.{layer}.ffn.lin1.*": "blocks.{layer}.ff.up.*",
    "transformer.layer.{layer}.ffn.lin2.*": "blocks.{layer}.ff.down.*",
    "transformer.layer.{layer}.output_layer_norm.*": "blocks.{layer}.ff_norm.*",
}
MASKED: Table = {
    "vocab_transform.*": "head.dense.*",
    "vocab_layer_norm.*": "head.norm.*",
    "vocab_projector.bias": "head.bias",
}
POOLED: Table = {"pre_classifier.*": "pooler.dense.*", **CLASSIFIER}
_distilled = partial(
    pooled, table=POOLED, dropout_entry="seq_classif_dropout", default=0.2, activation=torch.relu
)

FAMILY = replace(
    bert.FAMILY,
    name="distilbert",
    config=partial(bert.bert, segments=0),
    read_config=FIELDS.read,
    write_config=FIELDS.write,
    prefix="distilbert.",
    table=BODY,
    pooler={},
    architectures={
        "DistilBertModel": Architecture(Hidden, has_prefix=False),
        "DistilBertForMaskedLM": Architecture(
            heads.MLM, MASKED, output={"vocab_projector.weight": "head.output.weight"}
        ),
        "DistilBertForSequenceClassification": _distilled(heads.Classifier),
        "DistilBertForMultipleChoice": _distilled(heads.MultipleChoice),
        **per_token("DistilBert"),
        "DistilBertForQuestionAnswering": Architecture(
            heads.QuestionAnswering,
            SPAN,
            lambda body, values: {"dropout": values.get("qa_dropout", 0.1)},
            write_options=lambda model: {"qa_dropout": model.dropout.p},
        ),
    },
)
