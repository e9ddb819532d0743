"""DeBERTa (He et al. 2021).

Differs from RoBERTa by: disentangled attention (section 3.1). No position is added to the token vectors; every layer
matches content with content, content with distance and distance with content, and divides by sqrt(3 Dh) instead of
sqrt(Dh); keys have no bias; eps 1e-7. The paper's enhanced mask decoder, which adds absolute positions before the last
softmax of pretraining, is no part of the published model classes and is left out here too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from course_lib import heads
from course_lib.config import Disentangled, EmbedConfig, StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.layers import ACTIVATIONS
from course_lib.models import bert
from course_lib.models.bert import AROUND, PUBLIC_ACTIVATIONS, activation, labels, pairs
from course_lib.positions import Crosswise
from course_lib.seq2seq import Hidden
from course_lib.stack import Stack


def deberta(
    vocab: int = 50265, *, width: int, layers: int, heads: int, hidden: int | None = None, clip: int = 512,
    dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """A DeBERTa of any size; distances are told apart up to `clip`."""
    config = bert.bert(vocab, width=width, layers=layers, heads=heads, hidden=hidden, segments=0, dropout=dropout)
    return replace(config, position=Disentangled(clip), eps=1e-7)


def deberta_base() -> StackConfig:
    """12 layers of 768, 12 heads: 139M."""
    return deberta(width=768, layers=12, heads=12)


def deberta_large() -> StackConfig:
    """24 layers of 1024, 16 heads: 405M."""
    return deberta(width=1024, layers=24, heads=16)


def deberta_mini(vocab: int = 3072, clip: int = 64, dropout: float = 0.0) -> StackConfig:
    """The classroom's DeBERTa: 4 layers of 128, 4 heads; farther than 64 tokens is far."""
    return deberta(vocab, width=128, layers=4, heads=4, clip=clip, dropout=dropout)


TERMS = {"c2p": "content_to_position", "p2c": "position_to_content"}  # theirs: ours


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' DebertaModel to ours."""
    if not values.get("relative_attention", False) or values.get("position_biased_input", True):
        raise CourseError("Only DeBERTa as published is read: relative_attention true, position_biased_input false.")
    width = values["hidden_size"]
    if values.get("talking_head", False) or values.get("embedding_size", width) != width:
        raise CourseError("Only DeBERTa as published is read: no talking_head, token vectors as wide as the model.")
    kinds = values.get("pos_att_type") or []
    kinds = [kind.strip() for kind in kinds.lower().split("|")] if isinstance(kinds, str) else kinds
    if unknown := sorted(set(kinds) - set(TERMS)):
        raise CourseError(f"pos_att_type has {unknown[0]!r}; the course knows {' and '.join(TERMS)}.")
    clip = values.get("max_relative_positions", -1)
    return StackConfig(
        embed=EmbedConfig(vocab=values["vocab_size"], segments=values.get("type_vocab_size", 0), norm=True),
        width=width,
        layers=values["num_hidden_layers"],
        heads=values["num_attention_heads"],
        hidden=values["intermediate_size"],
        position=Disentangled(
            clip if clip > 0 else values["max_position_embeddings"],
            **{ours: theirs in kinds for theirs, ours in TERMS.items()},
        ),
        norm="post",
        eps=values.get("layer_norm_eps", 1e-7),
        activation=activation({"hidden_act": "gelu"} | dict(values), "hidden_act"),
        dropout=values.get("hidden_dropout_prob", 0.1),
        attention_dropout=values.get("attention_probs_dropout_prob", 0.1),
        init_std=values.get("initializer_range", 0.02),
    )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    position = config.position if isinstance(config.position, Disentangled) else Disentangled()
    return {
        "vocab_size": config.embed.vocab,
        "type_vocab_size": config.embed.segments,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": [theirs for theirs, ours in TERMS.items() if getattr(position, ours)],
        "max_relative_positions": position.clip,
        "max_position_embeddings": max(512, position.clip),  # no table has this length; tokenizers cut there
        "layer_norm_eps": config.eps,
        "hidden_act": PUBLIC_ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.init_std,
    }


def by_head(heads: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Their [H (q k v) Dh, D] to our three [H Dh, D] one below the other; and the reverse."""

    def via(x: Tensor) -> Tensor:
        return x.view(heads, 3, -1, x.shape[-1]).transpose(0, 1).reshape(x.shape)

    def back(x: Tensor) -> Tensor:
        return x.view(3, heads, -1, x.shape[-1]).transpose(0, 1).reshape(x.shape)

    return via, back


def body(model: nn.Module) -> tuple[Rule, ...]:
    """Their q, k and v are one matrix, head by head; a term that the model has not has no projection."""
    assert isinstance(model.stack, Stack)
    config, theirs, ours = model.stack.config, "encoder.layer.{}.attention.self", "blocks.{}.attn"
    own = model.stack.get_submodule("blocks.0.attn.position")
    assert isinstance(own, Crosswise)
    qkv = (f"{ours}.q.weight", f"{ours}.k.weight", f"{ours}.v.weight")
    segments = Rule("embeddings.token_type_embeddings.weight", "embed.segments.weight")
    return (
        Rule("embeddings.word_embeddings.weight", "embed.tokens.weight"),
        *((segments,) if config.embed.segments else ()),
        Rule("embeddings.position_embeddings.weight", None),  # the enhanced mask decoder's
        Rule("embeddings.position_ids", None),
        *pairs("embeddings.LayerNorm", "embed.norm"),
        Rule("encoder.rel_embeddings.weight", "position.table.weight"),
        Rule(f"{theirs}.in_proj.weight", qkv, *by_head(config.heads)),
        Rule(f"{theirs}.q_bias", f"{ours}.q.bias"),
        Rule(f"{theirs}.v_bias", f"{ours}.v.bias"),
        *((Rule(f"{theirs}.pos_proj.weight", f"{ours}.position.k.weight"),) if own.k is not None else ()),
        *(pairs(f"{theirs}.pos_q_proj", f"{ours}.position.q") if own.q is not None else ()),
        *AROUND,
    )


def _classifier(config: StackConfig, values: Mapping[str, Any]) -> heads.Classifier:
    if values.get("pooler_hidden_act", "gelu") != "gelu":
        raise CourseError("Only DeBERTa as published is read: a pooler with GELU.")
    stack, rate = Stack(config), values.get("cls_dropout")
    pooler = heads.Pooler(stack, ACTIVATIONS["gelu"], dropout=values.get("pooler_dropout", 0.0))
    return heads.Classifier(stack, labels(values), pooler=pooler, dropout=rate)


def _write(model: nn.Module) -> dict[str, Any]:
    assert isinstance(model, heads.Classifier)
    return {"pooler_dropout": model.pooler.dropout.p, "cls_dropout": model.dropout.p, "pooler_hidden_act": "gelu"}


MASKED = (
    *bert.MASKED,
    *pairs("lm_predictions.lm_head.dense", "head.dense"),  # the names of the published files
    *pairs("lm_predictions.lm_head.LayerNorm", "head.norm"),
    Rule("lm_predictions.lm_head.bias", "head.bias"),
)

FAMILY = Family(
    model_type="deberta",
    read_config=read_config,
    write_config=write_config,
    prefix="deberta.",
    rules=body,
    architectures={
        "DebertaModel": Architecture(lambda c, v: Hidden(Stack(c)), has_prefix=False),
        "DebertaForMaskedLM": Architecture(lambda c, v: heads.MLM(Stack(c)), MASKED),
        "DebertaForSequenceClassification": Architecture(
            _classifier, (*pairs("pooler.dense", "pooler.dense"), *pairs("classifier", "out")), write=_write
        ),
        "DebertaForTokenClassification": Architecture(
            lambda c, v: heads.Tagger(Stack(c), labels(v)), pairs("classifier", "out")
        ),
        "DebertaForQuestionAnswering": Architecture(lambda c, v: heads.Span(Stack(c)), pairs("qa_outputs", "out")),
    },
)
