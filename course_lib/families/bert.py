"""BERT and Megatron-BERT. Its relatives RoBERTa, DistilBERT, ALBERT, ... have files of their own.

BERT (Devlin et al. 2019) differs from the 2017 Transformer by: the encoder alone; learned
positions; a segment table; a norm on the embedding; GELU; a masked-language-model and a
next-sentence head.

Megatron-BERT (Shoeybi et al. 2019) differs from BERT by: the norm stands before each part and
behind the last block, and none on the embedding; smaller initial weights into the residual. The
classroom's `bert-mini` is built so.
"""

from dataclasses import replace
from typing import Any

from course_lib.families.encoder_heads import CLASSIFIER, per_token, pooled_body
from course_lib.families.family import Architecture, Family, classes
from course_lib.families.fields import Fields, Values
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Table
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.transformer import Transformer


def bert(vocab: int = 30522, *, length: int = 512, segments: int = 2, **size: Any) -> StackConfig:
    """A BERT of any size.

    Args:
        vocab: V.
        length: number of positions.
        segments: kinds of segment.
        size: `width`, `layers`, `heads`, ... as of `transformer`.
    """
    return replace(
        transformer(vocab, **size),
        embed=EmbedConfig(vocab, segments=segments, norm=True),
        position=Learned(length),
        causal=False,
        cross=False,
        eps=1e-12,
        activation="gelu",
        init_std=0.02,
    )


# How config.json says a BERT. Positions relative to each other and decoders are not read.
FIELDS = Fields.of(
    "bert",
    fixed={"embed": {"norm": True}, "norm": "post"},
    published={"position_embedding_type": "absolute", "is_decoder": False},
)

# How a BERT's weights are called: there, and here (weight_tables.py explains the signs).
EMBEDDINGS: Table = {
    "embeddings.word_embeddings.weight": "embed.tokens.weight",
    "embeddings.token_type_embeddings.weight": "embed.segments.weight",
    "embeddings.position_embeddings.weight": "position.table.weight",
    "embeddings.position_ids": None,  # 0, 1, 2, ...: older files hold it as a buffer
    "embeddings.LayerNorm.*": "embed.norm.*",
}
# From the attention's output to the next layer. DeBERTa uses the same names.
AFTER_ATTENTION: Table = {
    "encoder.layer.{layer}.attention.output.dense.*": "blocks.{layer}.attn.out.*",
    "encoder.layer.{layer}.attention.output.LayerNorm.*": "blocks.{layer}.attn_norm.*",
    "encoder.layer.{layer}.intermediate.dense.*": "blocks.{layer}.ff.up.*",
    "encoder.layer.{layer}.output.dense.*": "blocks.{layer}.ff.down.*",
    "encoder.layer.{layer}.output.LayerNorm.*": "blocks.{layer}.ff_norm.*",
}
BODY: Table = {
    **EMBEDDINGS,
    "encoder.layer.{layer}.attention.self.query.*": "blocks.{layer}.attn.q.*",
    "encoder.layer.{layer}.attention.self.key.*": "blocks.{layer}.attn.k.*",
    "encoder.layer.{layer}.attention.self.value.*": "blocks.{layer}.attn.v.*",
    **AFTER_ATTENTION,
}
# The parts outside of the body.
POOLER: Table = {"pooler.dense.*": "pooler.dense.*"}
MASKED: Table = {
    "cls.predictions.transform.dense.*": "head.dense.*",
    "cls.predictions.transform.LayerNorm.*": "head.norm.*",
    "cls.predictions.bias": "head.bias",
    "cls.predictions.decoder.bias": "head.bias",  # another name of this bias
}
# The output matrix, where it is not the table of token vectors.
OUTPUT: Table = {"cls.predictions.decoder.weight": "head.output.weight"}
NEXT: Table = {"cls.seq_relationship.*": "next.*"}
# A file for masked tokens may hold these parts, which its class does not use.
NO_POOLER: Table = {"pooler.dense.*": None}
NO_NEXT: Table = {"cls.seq_relationship.*": None}


def _classifier_options(body: Transformer, values: Values) -> dict[str, Any]:
    return {**classes(body, values), **_choice_options(body, values)}


def _choice_options(body: Transformer, values: Values) -> dict[str, Any]:
    return {"dropout": values.get("classifier_dropout")}  # None: the stack's


def _write_dropout(model: Any) -> dict[str, Any]:
    return {"classifier_dropout": model.dropout.p}


FAMILY = Family(
    name="bert",
    config=bert,
    model=lambda config, start: heads.MLM(Transformer(config)),
    objective="masked",
    read_config=FIELDS.read,
    write_config=FIELDS.write,
    prefix="bert.",
    table=BODY,
    pooler=POOLER,
    architectures={
        "BertModel": pooled_body(POOLER),
        "BertForMaskedLM": Architecture(heads.MLM, MASKED | NO_POOLER | NO_NEXT, output=OUTPUT),
        "BertForPreTraining": Architecture(
            heads.Pretraining, MASKED | POOLER | NEXT, output=OUTPUT
        ),
        "BertForSequenceClassification": Architecture(
            heads.Classifier, POOLER | CLASSIFIER, _classifier_options, write=_write_dropout
        ),
        "BertForMultipleChoice": Architecture(
            heads.MultipleChoice, POOLER | CLASSIFIER, _choice_options, write=_write_dropout
        ),
        **per_token("Bert", "classifier_dropout"),
    },
)


# Megatron-BERT


def moved_norms(config: StackConfig) -> StackConfig:
    """A configuration with Megatron-BERT's norms and initial weights (section 3, figure 7)."""
    return replace(
        config,
        norm="pre",
        final_norm=True,
        scaled_init=True,
        embed=replace(config.embed, norm=False),
    )


# Other names of the norms; none on the embedding, one behind the last block.
MEGATRON_BODY: Table = {
    public: ours for public, ours in BODY.items() if not public.endswith(".LayerNorm.*")
} | {
    "encoder.layer.{layer}.attention.ln.*": "blocks.{layer}.attn_norm.*",
    "encoder.layer.{layer}.ln.*": "blocks.{layer}.ff_norm.*",
    "encoder.ln.*": "norm.*",
}
MEGATRON_FAMILY = replace(
    FAMILY,
    name="megatron-bert",
    config=lambda vocab=30522, **size: moved_norms(bert(vocab, **size)),
    read_config=lambda values: moved_norms(FIELDS.read(values)),
    table=MEGATRON_BODY,
    architectures={f"Megatron{name}": public for name, public in FAMILY.architectures.items()},
)
