"""DistilBERT (Sanh et al. 2019).

Differs from BERT by: half the layers, no segments and no pooler in the body; it learns from BERT's answers (section 2:
soft targets, masked words, the direction of the hidden states) and starts from every second of BERT's layers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from course_lib import heads
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.hf import Architecture, Family, Rule
from course_lib.models.bert import PUBLIC_ACTIVATIONS, activation, bert, labels, pairs
from course_lib.seq2seq import Hidden
from course_lib.stack import Stack


def distilbert(
    vocab: int = 30522, *, width: int, layers: int, heads: int, hidden: int | None = None, length: int = 512,
    dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """A DistilBERT of any size."""
    return bert(
        vocab, width=width, layers=layers, heads=heads, hidden=hidden, length=length, segments=0, dropout=dropout
    )


def distilbert_base() -> StackConfig:
    """6 layers of 768, 12 heads: 66M."""
    return distilbert(width=768, layers=6, heads=12)


def distilbert_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's DistilBERT: 2 of `bert_mini`'s 4 layers."""
    return distilbert(vocab, width=128, layers=2, heads=4, length=length, dropout=dropout)


def student(teacher: Stack, layers: int | None = None) -> Stack:
    """A student that begins as every second layer of its teacher (section 2, "student initialization").

    Args:
        teacher: a trained BERT. layers: L of the student, by default half the teacher's; they are taken evenly.

    The segment table is left behind: its first row, which stood in every sum, joins the positions.
    """
    config = teacher.config
    layers = layers or max(1, config.layers // 2)
    own = Stack(replace(config, layers=layers, embed=replace(config.embed, segments=0)))
    weights = {n: w for n, w in teacher.state_dict().items() if not n.startswith(("blocks.", "embed.segments."))}
    if teacher.embed.segments is not None:
        weights["position.table.weight"] = weights["position.table.weight"] + teacher.embed.segments.weight[0]
    own.load_state_dict(weights, strict=False)
    for layer, block in enumerate(own.blocks):
        block.load_state_dict(teacher.blocks[layer * config.layers // layers].state_dict())
    return own


EPS = 1e-12  # config.json does not say it


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' DistilBertModel to ours."""
    return StackConfig(
        embed=EmbedConfig(vocab=values["vocab_size"], norm=True),
        width=values["dim"],
        layers=values["n_layers"],
        heads=values["n_heads"],
        hidden=values["hidden_dim"],
        position=Learned(values["max_position_embeddings"]),
        norm="post",
        eps=EPS,
        activation=activation({"activation": "gelu"} | dict(values), "activation"),
        dropout=values.get("dropout", 0.1),
        attention_dropout=values.get("attention_dropout", 0.1),
        init_std=values.get("initializer_range", 0.02),
    )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    return {
        "vocab_size": config.embed.vocab,
        "dim": config.width,
        "n_layers": config.layers,
        "n_heads": config.heads,
        "hidden_dim": config.hidden,
        "max_position_embeddings": config.position.length if isinstance(config.position, Learned) else 0,
        "activation": PUBLIC_ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "initializer_range": config.init_std,
    }


def _pooled(stack: Stack, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"pooler": heads.Pooler(stack, torch.relu), "dropout": values.get("seq_classif_dropout", 0.2)}


def _classifier(config: StackConfig, values: Mapping[str, Any]) -> heads.Classifier:
    stack = Stack(config)
    return heads.Classifier(stack, labels(values), **_pooled(stack, values))


def _choice(config: StackConfig, values: Mapping[str, Any]) -> heads.Choice:
    stack = Stack(config)
    return heads.Choice(stack, **_pooled(stack, values))


def _write(model: nn.Module) -> dict[str, Any]:
    assert isinstance(model, heads.Classifier)
    return {"seq_classif_dropout": model.dropout.p}


BODY = (
    Rule("embeddings.word_embeddings.weight", "embed.tokens.weight"),
    Rule("embeddings.position_embeddings.weight", "position.table.weight"),
    Rule("embeddings.position_ids", None),
    *pairs("embeddings.LayerNorm", "embed.norm"),
    *pairs("transformer.layer.{}.attention.q_lin", "blocks.{}.attn.q"),
    *pairs("transformer.layer.{}.attention.k_lin", "blocks.{}.attn.k"),
    *pairs("transformer.layer.{}.attention.v_lin", "blocks.{}.attn.v"),
    *pairs("transformer.layer.{}.attention.out_lin", "blocks.{}.attn.out"),
    *pairs("transformer.layer.{}.sa_layer_norm", "blocks.{}.attn_norm"),
    *pairs("transformer.layer.{}.ffn.lin1", "blocks.{}.ff.up"),
    *pairs("transformer.layer.{}.ffn.lin2", "blocks.{}.ff.down"),
    *pairs("transformer.layer.{}.output_layer_norm", "blocks.{}.ff_norm"),
)
MASKED = (
    *pairs("vocab_transform", "head.dense"),
    *pairs("vocab_layer_norm", "head.norm"),
    Rule("vocab_projector.bias", "head.bias"),
    Rule("vocab_projector.weight", None),  # tied to the token vectors
)
POOLED = (*pairs("pre_classifier", "pooler.dense"), *pairs("classifier", "out"))

FAMILY = Family(
    model_type="distilbert",
    read_config=read_config,
    write_config=write_config,
    prefix="distilbert.",
    rules=BODY,
    architectures={
        "DistilBertModel": Architecture(lambda c, v: Hidden(Stack(c)), has_prefix=False),
        "DistilBertForMaskedLM": Architecture(lambda c, v: heads.MLM(Stack(c)), MASKED),
        "DistilBertForSequenceClassification": Architecture(_classifier, POOLED, write=_write),
        "DistilBertForMultipleChoice": Architecture(_choice, POOLED, write=_write),
        "DistilBertForTokenClassification": Architecture(
            lambda c, v: heads.Tagger(Stack(c), labels(v)), pairs("classifier", "out")
        ),
        "DistilBertForQuestionAnswering": Architecture(lambda c, v: heads.Span(Stack(c)), pairs("qa_outputs", "out")),
    },
)
