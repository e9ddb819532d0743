"""DeBERTa (He et al. 2021).

Differs from RoBERTa by: disentangled attention (section 3.1). No position is added to the token
vectors; every layer matches content with content, content with distance and distance with content,
and divides by sqrt(3 Dh) instead of sqrt(Dh); keys have no bias; eps 1e-7. The paper's enhanced
mask decoder, which adds absolute positions before the last softmax of pretraining, is no part of
the published model classes and is left out here too."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from course_lib.families import bert
from course_lib.families.bert import AROUND, CLASSIFIER, POOLER, per_token, pooled
from course_lib.families.rules import Architecture, Fields, Rule, Values, dropped, pairs
from course_lib.model import heads
from course_lib.model.config import Disentangled, StackConfig
from course_lib.model.seq2seq import Hidden


def deberta(vocab: int = 50265, *, length: int = 512, **size: Any) -> StackConfig:
    """A DeBERTa of any size; distances are told apart up to `length`. Other arguments as for
    `bert.bert`.
    """
    return replace(bert.bert(vocab, segments=0, **size), position=Disentangled(length), eps=1e-7)


FIELDS = Fields(
    {
        name: entry
        for name, entry in bert.FIELDS.entries.items()
        if name != "max_position_embeddings"
    }
    | {"type_vocab_size": ("embed.segments", 0), "layer_norm_eps": ("eps", 1e-7)},
    fixed=bert.FIELDS.fixed,
    published={
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["c2p", "p2c"],
        "talking_head": False,
        "pooler_hidden_act": "gelu",
    },
)


def _read_config(values: Values) -> StackConfig:
    terms = values.get("pos_att_type") or []
    terms = sorted(terms.lower().split("|")) if isinstance(terms, str) else sorted(terms)
    # what a file means that says nothing: transformers' defaults, which no published model has
    said = {
        "relative_attention": False,
        "position_biased_input": True,
        **values,
        "pos_att_type": terms,
    }
    clip = values.get("max_relative_positions", -1)
    position = Disentangled(clip if clip > 0 else values["max_position_embeddings"])
    return replace(FIELDS, position=lambda: position).read(said)


def _write_config(config: StackConfig) -> dict[str, Any]:
    clip = config.position.clip if isinstance(config.position, Disentangled) else 0
    # tokenizers cut at max_position_embeddings
    return FIELDS.write(config) | {
        "max_relative_positions": clip,
        "max_position_embeddings": max(512, clip),
    }


def _exchanged(x: Tensor, outer: int, inner: int) -> Tensor:
    """[outer inner Dh, D] to [inner outer Dh, D]: theirs is head by head, ours q, k and v one below
    the other.
    """
    return x.view(outer, inner, -1, x.shape[-1]).transpose(0, 1).reshape(x.shape)


def body(model: Any) -> tuple[Rule, ...]:
    """Their q, k and v are one matrix, head by head."""
    config, theirs, ours = model.stack.config, "encoder.layer.{}.attention.self", "blocks.{}.attn"
    qkv = (f"{ours}.q.weight", f"{ours}.k.weight", f"{ours}.v.weight")
    turns = [
        partial(_exchanged, outer=a, inner=b) for a, b in ((config.heads, 3), (3, config.heads))
    ]
    segments = Rule("embeddings.token_type_embeddings.weight", "embed.segments.weight")
    return (
        Rule("embeddings.word_embeddings.weight", "embed.tokens.weight"),
        *((segments,) if config.embed.segments else ()),
        # the enhanced mask decoder's
        *dropped("embeddings.position_embeddings.weight", "embeddings.position_ids"),
        *pairs("embeddings.LayerNorm", "embed.norm"),
        Rule("encoder.rel_embeddings.weight", "position.table.weight"),
        Rule(f"{theirs}.in_proj.weight", qkv, *turns),
        Rule(f"{theirs}.q_bias", f"{ours}.q.bias"),
        Rule(f"{theirs}.v_bias", f"{ours}.v.bias"),
        Rule(f"{theirs}.pos_proj.weight", f"{ours}.position.k.weight"),
        *pairs(f"{theirs}.pos_q_proj", f"{ours}.position.q"),
        *AROUND,
    )


PUBLISHED_HEAD = (  # the names of the published files
    *pairs("lm_predictions.lm_head.dense", "head.dense"),
    *pairs("lm_predictions.lm_head.LayerNorm", "head.norm"),
    Rule("lm_predictions.lm_head.bias", "head.bias"),
)

FAMILY = replace(
    bert.FAMILY,
    name="deberta",
    config=deberta,
    tokenizer="bpe",
    read_config=_read_config,
    write_config=_write_config,
    prefix="deberta.",
    rules=body,
    pooler=(),
    architectures={
        "DebertaModel": Architecture(Hidden, has_prefix=False),
        "DebertaForMaskedLM": Architecture(heads.MLM, bert.MASKED + PUBLISHED_HEAD),
        "DebertaForSequenceClassification": pooled(
            heads.Classifier,
            POOLER + CLASSIFIER,
            "cls_dropout",
            activation=F.gelu,
            inner="pooler_dropout",
        ),
        **per_token("Deberta"),
    },
)
