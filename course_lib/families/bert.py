"""BERT, Megatron-BERT, RoBERTa and DistilBERT.

BERT (Devlin et al. 2019) differs from the 2017 Transformer by: the encoder alone; learned
positions; a segment table; a norm on the embedding; GELU; a masked-language-model and a
next-sentence head.

Megatron-BERT (Shoeybi et al. 2019) differs from BERT by: the norm stands before each part and
behind the last block, and none on the embedding; smaller initial weights into the residual. The
classroom's `bert-mini` is built so.

RoBERTa (Liu et al. 2019) differs from BERT by: its training, a byte-level vocabulary, a single
segment.

DistilBERT (Sanh et al. 2019) differs from BERT by: half the layers, no segments and no pooler.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.families.family import Architecture, Family, classes
from course_lib.families.fields import Fields, Values
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.seq2seq import Hidden
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


def moved_norms(config: StackConfig) -> StackConfig:
    """A configuration with Megatron-BERT's norms and initial weights (section 3, figure 7)."""
    return replace(
        config,
        norm="pre",
        final_norm=True,
        scaled_init=True,
        embed=replace(config.embed, norm=False),
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
CLASSIFIER: Table = {"classifier.*": "out.*"}
SPAN: Table = {"qa_outputs.*": "out.*"}
MASKED: Table = {
    "cls.predictions.transform.dense.*": "head.dense.*",
    "cls.predictions.transform.LayerNorm.*": "head.norm.*",
    "cls.predictions.bias": "head.bias",
    "cls.predictions.decoder.*": None,  # other names of the token vectors and of this bias
}
NEXT: Table = {"cls.seq_relationship.*": "next.*"}
# A file for masked tokens may hold these parts, which its class does not use.
NO_POOLER: Table = {"pooler.dense.*": None}
NO_NEXT: Table = {"cls.seq_relationship.*": None}


def dropout_from(
    field: str, options: Callable[[Any, Values], dict[str, Any]]
) -> Callable[[Any, Values], dict[str, Any]]:
    """A head's options, and the dropout before its last layer from this field of config.json."""
    return lambda body, values: {**options(body, values), "dropout": values.get(field)}


def written_dropout(field: str) -> Callable[[Any], dict[str, Any]]:
    """The reverse of `dropout_from`."""
    return lambda model: {field: model.dropout.p}


def per_token(name: str, dropout: str = "") -> dict[str, Architecture]:
    """The two classes that have one layer on every token, the same in all encoders.

    Args:
        name: of the family in front of the class's name.
        dropout: config.json's name of the tagger's dropout; by default it is the stack's.
    """
    tagger = Architecture(heads.TokenClassifier, CLASSIFIER, classes)
    if dropout:
        options = dropout_from(dropout, classes)
        tagger = replace(tagger, options=options, write=written_dropout(dropout))
    return {
        f"{name}ForTokenClassification": tagger,
        f"{name}ForQuestionAnswering": Architecture(heads.QuestionAnswering, SPAN),
    }


def pooled(
    head: type[nn.Module],
    table: Table,
    dropout: str,
    default: float | None = None,
    *,
    activation: Callable[[Tensor], Tensor] = torch.tanh,
    inner: str = "",
) -> Architecture:
    """A class with a pooler that differs from BERT's, and a linear layer.

    Args:
        head: our class.
        table: of the pooler and the last layer.
        dropout: config.json's name of the dropout before the last layer.
        default: that dropout where config.json does not have it; None: the stack's.
        activation: of the pooler.
        inner: config.json's name of the dropout before the pooler, if it has one.
    """

    def options(body: Transformer, values: Values) -> dict[str, Any]:
        rate = values.get(dropout, default)
        if rate is None:
            rate = body.config.dropout
        inner_rate = rate if inner == dropout else values.get(inner, 0.0)
        arguments = {"pooler": heads.Pooler(body, activation, inner_rate), "dropout": rate}
        if head is heads.Classifier:
            arguments |= classes(body, values)
        return arguments

    def write(model: Any) -> dict[str, Any]:
        values = {dropout: model.dropout.p}
        if inner:
            values[inner] = model.pooler.dropout.p
        return values

    return Architecture(head, table, options, write=write)


_classified = partial(
    Architecture, table=POOLER | CLASSIFIER, write=written_dropout("classifier_dropout")
)
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
        "BertModel": Architecture(heads.Pooled, POOLER, has_prefix=False),
        "BertForMaskedLM": Architecture(heads.MLM, MASKED | NO_POOLER | NO_NEXT),
        "BertForPreTraining": Architecture(heads.Pretraining, MASKED | POOLER | NEXT),
        "BertForSequenceClassification": _classified(
            heads.Classifier, options=dropout_from("classifier_dropout", classes)
        ),
        "BertForMultipleChoice": _classified(
            heads.MultipleChoice,
            options=dropout_from("classifier_dropout", lambda body, values: {}),
        ),
        **per_token("Bert", "classifier_dropout"),
    },
)


# Megatron-BERT


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


# RoBERTa

PAD = 1  # <pad> in RoBERTa's published vocabulary
# First rows of the published position table that no position uses: counting begins behind PAD.
OFFSET = PAD + 1


def roberta(vocab: int = 50265, **size: Any) -> StackConfig:
    """A RoBERTa of any size; the arguments are those of `bert`."""
    config = bert(vocab, segments=1, **size)
    return replace(config, eps=1e-5)


ROBERTA_FIELDS = replace(
    FIELDS,
    published={**FIELDS.published, "pad_token_id": PAD},
    position=lambda length: Learned(length - OFFSET),
)


def _write_roberta(config: StackConfig) -> dict[str, Any]:
    values = ROBERTA_FIELDS.write(config)
    values["max_position_embeddings"] += OFFSET
    return values | {"bos_token_id": 0, "eos_token_id": 2}


def without_offset(x: Tensor) -> Tensor:
    """A published position table without its unused first rows."""
    return x[OFFSET:]


def with_offset(x: Tensor) -> Tensor:
    """The reverse of `without_offset`."""
    unused = x.new_zeros(OFFSET, x.shape[1])
    return torch.cat((unused, x))


def gelu_head(body: Transformer, values: Values) -> dict[str, Any]:
    """The masked-language-model head has GELU, whatever the layers have."""
    return {"activation": "gelu"}


ROBERTA_BODY: Table = {
    **BODY,
    "embeddings.position_embeddings.weight": Converted(
        ("position.table.weight",), to_ours=without_offset, to_public=with_offset
    ),
}
ROBERTA_MASKED: Table = {
    "lm_head.dense.*": "head.dense.*",
    "lm_head.layer_norm.*": "head.norm.*",
    "lm_head.bias": "head.bias",
    "lm_head.decoder.*": None,  # other names of the token vectors and of this bias
}
DENSE_CLASSIFIER: Table = {"classifier.dense.*": "pooler.dense.*", "classifier.out_proj.*": "out.*"}
ROBERTA_FAMILY = replace(
    FAMILY,
    name="roberta",
    config=roberta,
    model=lambda config, start: heads.MLM(Transformer(config), activation="gelu"),
    tokenizer="bpe",
    read_config=ROBERTA_FIELDS.read,
    write_config=_write_roberta,
    prefix="roberta.",
    table=ROBERTA_BODY,
    architectures={
        "RobertaModel": Architecture(heads.Pooled, POOLER, has_prefix=False),
        "RobertaForMaskedLM": Architecture(heads.MLM, ROBERTA_MASKED | NO_POOLER, gelu_head),
        "RobertaForSequenceClassification": pooled(
            heads.Classifier, DENSE_CLASSIFIER, "classifier_dropout", inner="classifier_dropout"
        ),
        "RobertaForMultipleChoice": Architecture(heads.MultipleChoice, POOLER | CLASSIFIER),
        **per_token("Roberta", "classifier_dropout"),
    },
)


# DistilBERT


def student(teacher: Transformer, layers: int | None = None) -> Transformer:
    """A student that begins as every second layer of its teacher (section 2, "student
    initialization").

    The segment table's first row, which stood in every sum, joins the positions. Students of a
    pre-norm BERT and of a RoBERTa keep it: Megatron-BERT's and RoBERTa's layouts have such a table.

    Args:
        teacher: a BERT or one of its relatives.
        layers: of the student, taken evenly; by default half of the teacher's.
    """
    config = teacher.config
    layers = layers or max(1, config.layers // 2)
    keeps_segments = config.norm == "pre" or config.embed.segments == 1
    embed = replace(config.embed, segments=int(keeps_segments))
    own = Transformer(replace(config, layers=layers, embed=embed))

    # Embedding and norms are copied; blocks and segments follow below.
    later = ("blocks.", "embed.segments.")
    weights = {
        name: tensor for name, tensor in teacher.state_dict().items() if not name.startswith(later)
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
    own.load_state_dict(weights, strict=False)

    for layer, block in enumerate(own.blocks):
        source = teacher.blocks[layer * config.layers // layers]
        block.load_state_dict(source.state_dict())
    return own


# DistilBERT's config.json does not say eps.
DISTIL_FIELDS = Fields.of("distilbert", fixed={**FIELDS.fixed, "eps": 1e-12})
DISTIL_BODY: Table = {
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
DISTIL_MASKED: Table = {
    "vocab_transform.*": "head.dense.*",
    "vocab_layer_norm.*": "head.norm.*",
    "vocab_projector.bias": "head.bias",
    "vocab_projector.weight": None,  # another name of the token vectors
}
DISTIL_POOLED: Table = {"pre_classifier.*": "pooler.dense.*", **CLASSIFIER}
_distilled = partial(
    pooled, table=DISTIL_POOLED, dropout="seq_classif_dropout", default=0.2, activation=torch.relu
)

DISTIL_FAMILY = replace(
    FAMILY,
    name="distilbert",
    config=lambda vocab=30522, **size: bert(vocab, segments=0, **size),
    read_config=DISTIL_FIELDS.read,
    write_config=DISTIL_FIELDS.write,
    prefix="distilbert.",
    table=DISTIL_BODY,
    pooler={},
    architectures={
        "DistilBertModel": Architecture(Hidden, has_prefix=False),
        "DistilBertForMaskedLM": Architecture(heads.MLM, DISTIL_MASKED),
        "DistilBertForSequenceClassification": _distilled(heads.Classifier),
        "DistilBertForMultipleChoice": _distilled(heads.MultipleChoice),
        **per_token("DistilBert"),
    },
)
