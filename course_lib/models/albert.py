"""ALBERT (Lan et al. 2020).

Differs from BERT by: one block applied L times; token vectors of 128, projected to the model's width; the second task
tells the order of two neighbouring pieces of text, instead of neighbours from strangers (all section 3.1). Version 2,
which is said here, has no dropout and the tanh GELU.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from course_lib import heads
from course_lib.config import EmbedConfig, StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.models import bert
from course_lib.models.bert import EMBEDDINGS, labels, pairs
from course_lib.stack import Stack


def albert(
    vocab: int = 30000, *, width: int, layers: int, heads: int, hidden: int | None = None, embed: int = 128,
    length: int = 512, dropout: float = 0.0,
) -> StackConfig:  # fmt: skip
    """An ALBERT of any size; `embed` is the width of the token vectors, below the model's."""
    config = bert.bert(vocab, width=width, layers=layers, heads=heads, hidden=hidden, length=length, dropout=dropout)
    return replace(config, embed=replace(config.embed, width=embed), shared=True, activation="gelu_tanh")


def albert_base() -> StackConfig:
    """768 wide, applied 12 times: 12M."""
    return albert(width=768, layers=12, heads=12)


def albert_large() -> StackConfig:
    """1024 wide, applied 24 times: 18M."""
    return albert(width=1024, layers=24, heads=16)


def albert_xlarge() -> StackConfig:
    """2048 wide, applied 24 times: 60M."""
    return albert(width=2048, layers=24, heads=16)


def albert_xxlarge() -> StackConfig:
    """4096 wide, applied 12 times: 235M in the paper's table, 223M counted."""
    return albert(width=4096, layers=12, heads=64)


def albert_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's ALBERT: one block of 128 with 4 heads, applied 4 times; token vectors of 32."""
    return albert(vocab, width=128, layers=4, heads=4, embed=32, length=length, dropout=dropout)


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' AlbertModel to ours."""
    if values.get("num_hidden_groups", 1) != 1 or values.get("inner_group_num", 1) != 1:
        raise CourseError("Only ALBERT as published is read: all layers share one block.")
    if values["embedding_size"] == values["hidden_size"]:
        raise CourseError(f"ALBERT's token vectors must be narrower than the model's width {values['hidden_size']}.")
    config = bert.read_config({"hidden_act": "gelu_new"} | dict(values))
    embed = EmbedConfig(config.embed.vocab, width=values["embedding_size"], segments=config.embed.segments, norm=True)
    return replace(
        config,
        embed=embed,
        shared=True,
        dropout=values.get("hidden_dropout_prob", 0.0),
        attention_dropout=values.get("attention_probs_dropout_prob", 0.0),
    )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    return bert.write_config(config) | {
        "embedding_size": config.embed.width or config.width,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    }


def _dropout(values: Mapping[str, Any]) -> float:
    return float(values.get("classifier_dropout_prob", 0.1))


def _write(model: nn.Module) -> dict[str, Any]:
    assert isinstance(model, heads.Classifier)
    return {"classifier_dropout_prob": model.dropout.p}


_SHARED = "encoder.albert_layer_groups.0.albert_layers.0"
BODY = (
    *EMBEDDINGS,
    *pairs("encoder.embedding_hidden_mapping_in", "embed.project"),
    *pairs(f"{_SHARED}.attention.query", "blocks.0.attn.q"),
    *pairs(f"{_SHARED}.attention.key", "blocks.0.attn.k"),
    *pairs(f"{_SHARED}.attention.value", "blocks.0.attn.v"),
    *pairs(f"{_SHARED}.attention.dense", "blocks.0.attn.out"),
    *pairs(f"{_SHARED}.attention.LayerNorm", "blocks.0.attn_norm"),
    *pairs(f"{_SHARED}.ffn", "blocks.0.ff.up"),
    *pairs(f"{_SHARED}.ffn_output", "blocks.0.ff.down"),
    *pairs(f"{_SHARED}.full_layer_layer_norm", "blocks.0.ff_norm"),
)
POOLER = pairs("pooler", "pooler.dense")
NO_POOLER = (Rule("pooler.weight", None), Rule("pooler.bias", None))
MASKED = (
    *pairs("predictions.dense", "head.dense"),
    *pairs("predictions.LayerNorm", "head.norm"),
    Rule("predictions.bias", "head.bias"),
    Rule("predictions.decoder.weight", None),  # tied to the token vectors
    Rule("predictions.decoder.bias", None),  # tied to predictions.bias
)
ORDER = pairs("sop_classifier.classifier", "next")
NO_ORDER = (Rule("sop_classifier.classifier.weight", None), Rule("sop_classifier.classifier.bias", None))

FAMILY = Family(
    model_type="albert",
    read_config=read_config,
    write_config=write_config,
    prefix="albert.",
    rules=BODY,
    pooler=POOLER,
    architectures={
        "AlbertModel": Architecture(lambda c, v: heads.Pooled(Stack(c)), POOLER, has_prefix=False),
        "AlbertForMaskedLM": Architecture(lambda c, v: heads.MLM(Stack(c)), MASKED + NO_POOLER + NO_ORDER),
        "AlbertForPreTraining": Architecture(lambda c, v: heads.Pretraining(Stack(c)), MASKED + POOLER + ORDER),
        "AlbertForSequenceClassification": Architecture(
            lambda c, v: heads.Classifier(Stack(c), labels(v), dropout=_dropout(v)),
            POOLER + pairs("classifier", "out"),
            write=_write,
        ),
        "AlbertForMultipleChoice": Architecture(
            lambda c, v: heads.Choice(Stack(c), dropout=_dropout(v)), POOLER + pairs("classifier", "out"), write=_write
        ),
        "AlbertForTokenClassification": Architecture(
            lambda c, v: heads.Tagger(Stack(c), labels(v)), pairs("classifier", "out")
        ),
        "AlbertForQuestionAnswering": Architecture(lambda c, v: heads.Span(Stack(c)), pairs("qa_outputs", "out")),
    },
)
