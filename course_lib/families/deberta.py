"""DeBERTa (He et al. 2021).

Differs from RoBERTa by: disentangled attention (section 3.1). No position is added to the token
vectors; every layer matches content with content, content with distance and distance with content,
and divides by sqrt(3 Dh) instead of sqrt(Dh). Keys have no bias; eps is 1e-7.

Known departure: the paper's enhanced mask decoder, which adds absolute positions before the last
softmax of pretraining, is missing here, as in the published model classes.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families import bert
from course_lib.families.bert import AFTER_ATTENTION, POOLER
from course_lib.families.encoder_heads import CLASSIFIER, per_token, pooled
from course_lib.families.family import Architecture
from course_lib.families.fields import Entry, Fields, Values, changed, read_tie_word_embeddings
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import Disentangled, StackConfig
from course_lib.model.seq2seq import Hidden


def deberta(
    vocab: int = 50265,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    length: int = 512,
) -> StackConfig:
    """A DeBERTa of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        length: larger distances between two tokens count as this one. A text may be longer.
    """
    config = bert.bert(
        vocab,
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden,
        dropout=dropout,
        segments=0,
    )
    return replace(config, position=Disentangled(length), eps=1e-7)


_ENTRIES = dict(bert.FIELDS.entries)
del _ENTRIES["max_position_embeddings"]  # DeBERTa has no table of absolute positions
_ENTRIES["type_vocab_size"] = Entry("embed.segments", default=0)
_ENTRIES["layer_norm_eps"] = Entry("eps", default=1e-7)
FIELDS = Fields(
    _ENTRIES,
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
    if isinstance(terms, str):  # "c2p|p2c", in any order
        terms = terms.lower().split("|")
    if values.get("pooler_hidden_size") not in (None, values["hidden_size"]):
        raise CourseError("A DeBERTa's pooler_hidden_size is its hidden_size.")
    clip = values.get("max_relative_positions", -1)
    if clip < 1:
        clip = values["max_position_embeddings"]
    entries = changed(
        values,
        pos_att_type=sorted(terms),
        # If the file lacks them, transformers' defaults hold. They are not the published values, so
        # `FIELDS.read` refuses the file.
        relative_attention=values.get("relative_attention", False),
        position_biased_input=values.get("position_biased_input", True),
    )
    return replace(FIELDS, position=lambda: Disentangled(clip)).read(entries)


def _write_config(config: StackConfig) -> dict[str, Any]:
    clip = config.position.clip if isinstance(config.position, Disentangled) else 0
    # Public tokenizers truncate texts to max_position_embeddings, so a small clip must not set it.
    return FIELDS.write(config) | {
        "max_relative_positions": clip,
        "max_position_embeddings": max(512, clip),
    }


def _reordered(x: Tensor, outer: int, inner: int) -> Tensor:
    """Reorder the rows of a matrix: [outer * inner * Dh, D] to [inner * outer * Dh, D]."""
    parts = x.view(outer, inner, -1, x.shape[-1])  # outer inner Dh D
    return parts.transpose(0, 1).reshape(x.shape)


def body_table(model: Any) -> Table:
    """Public names of the body's weights -> our names."""
    # The public file has q, k and v in one matrix: first q, k, v of head 0, then of head 1, ... We
    # have q of all heads, then k, then v.
    n_heads = model.stack.config.heads
    qkv = Converted(
        (
            "blocks.{layer}.attn.q.weight",
            "blocks.{layer}.attn.k.weight",
            "blocks.{layer}.attn.v.weight",
        ),
        to_ours=partial(_reordered, outer=n_heads, inner=3),
        to_public=partial(_reordered, outer=3, inner=n_heads),
    )
    segments: Table = {}
    if model.stack.config.embed.segments:
        segments["embeddings.token_type_embeddings.weight"] = "embed.segments.weight"
    attention = "encoder.layer.{layer}.attention.self"
    return {
        "embeddings.word_embeddings.weight": "embed.tokens.weight",
        **segments,
        # Only the enhanced mask decoder, which we lack, uses absolute positions.
        "embeddings.position_embeddings.weight": None,
        "embeddings.position_ids": None,
        "embeddings.LayerNorm.*": "embed.norm.*",
        "encoder.rel_embeddings.weight": "position.table.weight",
        f"{attention}.in_proj.weight": qkv,
        f"{attention}.q_bias": "blocks.{layer}.attn.q.bias",
        f"{attention}.v_bias": "blocks.{layer}.attn.v.bias",
        f"{attention}.pos_proj.weight": "blocks.{layer}.attn.position.k.weight",
        f"{attention}.pos_q_proj.*": "blocks.{layer}.attn.position.q.*",
        **AFTER_ATTENTION,
    }


# The published files name the head's weights differently from transformers.
PUBLISHED_HEAD: Table = {
    "lm_predictions.lm_head.dense.*": "head.dense.*",
    "lm_predictions.lm_head.LayerNorm.*": "head.norm.*",
    "lm_predictions.lm_head.bias": "head.bias",
}


def _read_tied(values: Values, weight_names: Collection[str]) -> bool:
    """A file with the published names has no output matrix, even if config.json says untied."""
    has_published_names = not PUBLISHED_HEAD.keys().isdisjoint(weight_names)
    return read_tie_word_embeddings(values) or has_published_names


FAMILY = replace(
    bert.FAMILY,
    name="deberta",
    config=deberta,
    tokenizer="bpe",
    read_config=_read_config,
    write_config=_write_config,
    prefix="deberta.",
    table=body_table,
    pooler={},
    architectures={
        "DebertaModel": Architecture(Hidden, has_prefix=False),
        "DebertaForMaskedLM": Architecture(
            heads.MLM,
            bert.MASKED | PUBLISHED_HEAD,
            output=bert.OUTPUT,
            read_tied=_read_tied,
        ),
        "DebertaForSequenceClassification": pooled(
            heads.Classifier,
            POOLER | CLASSIFIER,
            "cls_dropout",
            activation=F.gelu,
            pooler_dropout_entry="pooler_dropout",
        ),
        **per_token("Deberta"),
    },
)
