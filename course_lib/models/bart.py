"""BART (Lewis et al. 2020).

Differs from the 2017 Transformer by: learned positions; a norm on the embedding of both sides; GELU; the decoder begins
with the end-of-sentence token; one table of token vectors for source, target and output. Trained to restore corrupted
text; to classify, the decoder reads the text a second time and its last token speaks.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.models.bert import PUBLIC_ACTIVATIONS, activation, labels, pairs
from course_lib.models.roberta import with_offset, without_offset
from course_lib.seq2seq import EncoderDecoder, Hidden, Seq2SeqClassifier, Seq2SeqLM, Seq2SeqSpan

START = 2  # </s> in the published vocabulary


def bart(
    vocab: int = 50265, *, width: int, layers: int, heads: int, hidden: int | None = None, length: int = 1024,
    dropout: float = 0.1, attention_dropout: float = 0.0,
) -> StackConfig:  # fmt: skip
    """The decoder of a BART of any size, `layers` a side; for `EncoderDecoder`."""
    return StackConfig(
        embed=EmbedConfig(vocab=vocab, norm=True),
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden or 4 * width,
        position=Learned(length),
        causal=True,
        cross=True,
        norm="post",
        activation="gelu",
        dropout=dropout,
        attention_dropout=attention_dropout,
    )


def bart_base() -> StackConfig:
    """6 + 6 layers of 768, 12 heads: 139M."""
    return bart(width=768, layers=6, heads=12)


def bart_large() -> StackConfig:
    """12 + 12 layers of 1024, 16 heads: 406M."""
    return bart(width=1024, layers=12, heads=16)


def bart_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's BART: 3 + 3 layers of 128, 4 heads. No dropout: it sees every document once. (The shipped
    bart-mini has 4 + 4 and its norms in front, to begin as gpt-mini: `recipes`.)"""
    return bart(vocab, width=128, layers=3, heads=4, length=length, dropout=dropout)


def bart_lm(config: StackConfig, start: int = START) -> Seq2SeqLM:
    """BART as it is pretrained: tied output, a constant on the logits."""
    return Seq2SeqLM(EncoderDecoder(config, start=start), bias=True)


SIDES = {  # ours: theirs, once for each side. The course's two stacks are equally large, as all published BARTs are.
    "layers": "layers",
    "heads": "attention_heads",
    "hidden": "ffn_dim",
}


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' BartModel to ours."""
    for name in SIDES.values():
        if values[f"encoder_{name}"] != values[f"decoder_{name}"]:
            raise CourseError(f"Only BARTs whose encoder and decoder are equally large are read; {name} differ.")
    return StackConfig(
        embed=EmbedConfig(
            vocab=values["vocab_size"],
            norm=True,
            scale=values["d_model"] ** 0.5 if values.get("scale_embedding", False) else 1.0,
        ),
        width=values["d_model"],
        **{ours: values[f"decoder_{theirs}"] for ours, theirs in SIDES.items()},
        position=Learned(values["max_position_embeddings"]),
        causal=True,
        cross=True,
        norm="post",
        activation=activation({"activation_function": "gelu"} | dict(values), "activation_function"),
        dropout=values.get("dropout", 0.1),
        attention_dropout=values.get("attention_dropout", 0.0),
        init_std=values.get("init_std", 0.02),
    )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    sides = {
        f"{side}_{theirs}": getattr(config, ours) for side in ("encoder", "decoder") for ours, theirs in SIDES.items()
    }
    return sides | {
        "vocab_size": config.embed.vocab,
        "d_model": config.width,
        "max_position_embeddings": config.position.length if isinstance(config.position, Learned) else 0,
        "scale_embedding": config.embed.scale != 1.0,
        "activation_function": PUBLIC_ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "init_std": config.init_std,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
    }


def twice(x: Tensor) -> Tensor:
    """One public table is the token vectors of both sides."""
    return torch.cat((x, x))


def once(x: Tensor) -> Tensor:
    """The reverse of `twice`."""
    return x.chunk(2)[0]


def _attention(theirs: str, ours: str, norm: str) -> tuple[Rule, ...]:
    parts = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    projections = [rule for part, name in parts.items() for rule in pairs(f"{theirs}.{part}", f"{ours}.{name}")]
    return (*projections, *pairs(norm, f"{ours}_norm"))


def _side(side: str) -> tuple[Rule, ...]:
    layer, block = f"{side}.layers.{{}}", f"{side}.blocks.{{}}"
    table = f"{side}.position.table.weight"
    return (
        Rule(f"{side}.embed_tokens.weight", None),  # tied to shared.weight
        Rule(f"{side}.embed_positions.weight", table, without_offset, with_offset),
        *pairs(f"{side}.layernorm_embedding", f"{side}.embed.norm"),
        *_attention(f"{layer}.self_attn", f"{block}.attn", f"{layer}.self_attn_layer_norm"),
        *pairs(f"{layer}.fc1", f"{block}.ff.up"),
        *pairs(f"{layer}.fc2", f"{block}.ff.down"),
        *pairs(f"{layer}.final_layer_norm", f"{block}.ff_norm"),
    )


BODY = (
    Rule("shared.weight", ("encoder.embed.tokens.weight", "decoder.embed.tokens.weight"), twice, once),
    *_side("encoder"),
    *_side("decoder"),
    *_attention(
        "decoder.layers.{}.encoder_attn", "decoder.blocks.{}.cross", "decoder.layers.{}.encoder_attn_layer_norm"
    ),
)
LM_HEAD = (
    Rule("final_logits_bias", "bias", lambda x: x[0], lambda x: x[None]),
    Rule("lm_head.weight", None),  # tied to shared.weight
)
CLASSIFIER = (*pairs("classification_head.dense", "dense"), *pairs("classification_head.out_proj", "out"))


def _body(config: StackConfig, values: Mapping[str, Any]) -> EncoderDecoder:
    return EncoderDecoder(config, start=values.get("decoder_start_token_id", START))


def start_token(model: nn.Module) -> dict[str, Any]:
    """What config.json says of an encoder-decoder beside its sizes."""
    assert isinstance(model.stack, EncoderDecoder)
    return {"decoder_start_token_id": model.stack.start}


FAMILY = Family(
    model_type="bart",
    read_config=read_config,
    write_config=write_config,
    prefix="model.",
    rules=BODY,
    architectures={
        "BartModel": Architecture(lambda c, v: Hidden(_body(c, v)), has_prefix=False, write=start_token),
        "BartForConditionalGeneration": Architecture(
            lambda c, v: Seq2SeqLM(_body(c, v), bias=True), LM_HEAD, write=start_token
        ),
        "BartForSequenceClassification": Architecture(
            lambda c, v: Seq2SeqClassifier(_body(c, v), labels(v)), CLASSIFIER, write=start_token
        ),
        "BartForQuestionAnswering": Architecture(
            lambda c, v: Seq2SeqSpan(_body(c, v)), pairs("qa_outputs", "out"), write=start_token
        ),
    },
)
