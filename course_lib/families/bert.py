"""BERT and Megatron-BERT. The similar families RoBERTa, DistilBERT, ALBERT, ... have other files.

BERT (Devlin et al. 2019) differs from the 2017 Transformer by: the encoder alone; learned
positions; a segment table; a norm on the embedding; GELU; a masked-language-model and a
next-sentence head.

Megatron-BERT (Shoeybi et al. 2019) differs from BERT by: a norm before attention and feed-forward
and one after the last block, instead of after each of them and on the embedding; smaller initial
weights where a layer adds to the residual. The classroom's `bert-mini` is a Megatron-BERT.
"""

from dataclasses import replace
from typing import Any

from course_lib.families.encoder_heads import CLASSIFIER, per_token, pooled_body
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Fields, Values, read_classes
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.transformer import Transformer


def bert(
    vocab: int = 30522,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    length: int = 512,
    segments: int = 2,
) -> StackConfig:
    """A BERT of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        length: maximum number of tokens in an input; each position has a learned vector.
        segments: number of segments (the texts of a pair); 0: no segment embeddings.
    """
    config = transformer(
        vocab, width=width, layers=layers, heads=heads, hidden=hidden, dropout=dropout
    )
    return replace(
        config,
        embed=EmbedConfig(vocab, segments=segments, norm=True),
        position=Learned(length),
        causal=False,
        cross=False,
        eps=1e-12,
        activation="gelu",
        init_std=0.02,
    )


# BERT's config.json. Models with relative positions and decoders are refused.
FIELDS = Fields.of(
    "bert",
    fixed={"embed": {"norm": True}, "norm": "post"},
    published={"position_embedding_type": "absolute", "is_decoder": False},
)

# Public names of a BERT's weights -> our names. {layer} is the number of a layer, * is "weight" and
# "bias", and None is a weight that we do not use.
EMBEDDINGS: Table = {
    "embeddings.word_embeddings.weight": "embed.tokens.weight",
    "embeddings.token_type_embeddings.weight": "embed.segments.weight",
    "embeddings.position_embeddings.weight": "position.table.weight",
    "embeddings.position_ids": None,  # the numbers 0, 1, 2, ..., a buffer in older files
    "embeddings.LayerNorm.*": "embed.norm.*",
}
# The rest of a layer, after the attention weights. DeBERTa uses the same names.
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
# The weights outside the body.
POOLER: Table = {"pooler.dense.*": "pooler.dense.*"}
MASKED: Table = {
    "cls.predictions.transform.dense.*": "head.dense.*",
    "cls.predictions.transform.LayerNorm.*": "head.norm.*",
    "cls.predictions.bias": "head.bias",
    "cls.predictions.decoder.bias": "head.bias",  # the same bias under a second name
}
# The output matrix, if it is not the token embedding.
OUTPUT: Table = {
    "cls.predictions.decoder.weight": "head.output.weight",
    # If a file has this matrix, transformers needs the bias under its second name, too.
    "cls.predictions.decoder.bias": Converted(("head.bias",), is_duplicate=True),
}
NEXT: Table = {"cls.seq_relationship.*": "next.*"}
# A file of a BertForMaskedLM may contain these weights, which that class does not use.
NO_POOLER: Table = {"pooler.dense.*": None}
NO_NEXT: Table = {"cls.seq_relationship.*": None}


def _classifier_options(body: Transformer, values: Values) -> dict[str, Any]:
    return {"classes": read_classes(values), **_choice_options(body, values)}


def _choice_options(body: Transformer, values: Values) -> dict[str, Any]:
    return {"dropout": values.get("classifier_dropout")}  # None: the rate of the stack


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
            heads.Classifier, POOLER | CLASSIFIER, _classifier_options, write_options=_write_dropout
        ),
        "BertForMultipleChoice": Architecture(
            heads.MultipleChoice, POOLER | CLASSIFIER, _choice_options, write_options=_write_dropout
        ),
        **per_token("Bert", "classifier_dropout"),
    },
)


# Megatron-BERT


def moved_norms(config: StackConfig) -> StackConfig:
    """The configuration with Megatron-BERT's norms and initial weights (section 3, figure 7)."""
    return replace(
        config,
        norm="pre",
        final_norm=True,
        scaled_init=True,
        embed=replace(config.embed, norm=False),
    )


# Megatron-BERT has other names for the norms. It has none on the embedding, but one after the last
# block.
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
