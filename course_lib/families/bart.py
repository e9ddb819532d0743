"""BART (Lewis et al. 2020).

Differs from the 2017 Transformer by: learned positions; a norm on the embedding of both sides;
GELU; the decoder begins with the end-of-sentence token. To classify, the decoder reads the text a
second time and its last token speaks. Blenderbot (Roller et al. 2021) has its norms before the
sublayers, as the classroom's do."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.families.bert import moved_norms, with_offset, without_offset
from course_lib.families.rules import (
    Architecture,
    Family,
    Fields,
    Rule,
    Values,
    classes,
    dropped,
    pairs,
    transformer,
)
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.heads import QuestionAnswering
from course_lib.model.seq2seq import (
    EncoderDecoder,
    Hidden,
    Seq2SeqClassifier,
    Seq2SeqLM,
    encoder_config,
)

START = 2  # </s> in the published vocabulary


def bart(
    vocab: int = 50265, *, length: int = 1024, attention_dropout: float = 0.0, **size: Any
) -> StackConfig:
    """The decoder of a BART of any size, `layers` a side; for `EncoderDecoder`. `size` as of
    `transformer`.
    """
    return replace(
        transformer(vocab, **size),
        embed=EmbedConfig(vocab, norm=True),
        position=Learned(length),
        activation="gelu",
        attention_dropout=attention_dropout,
        init_std=0.02,
    )


def bart_lm(config: StackConfig, start: int = START) -> Seq2SeqLM:
    """BART as it is pretrained: tied output, a constant on the logits."""
    return Seq2SeqLM(EncoderDecoder(config, start=start), bias=True)


SIZES = {"layers": "layers", "attention_heads": "heads", "ffn_dim": "hidden"}
ENCODER = Fields({f"encoder_{theirs}": (ours, None) for theirs, ours in SIZES.items()})
FIELDS = Fields.of("bart", fixed={"causal": True, "cross": True, "norm": "post"})


def _read_config(values: Values) -> StackConfig:
    scale = values["d_model"] ** 0.5 if values.get("scale_embedding", False) else 1.0
    return FIELDS.read(values, embed={"norm": True, "scale": scale})


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `_read_config`, the encoder as large as the decoder."""
    return FIELDS.write(config) | {
        **ENCODER.write(config),
        "scale_embedding": config.embed.scale != 1.0,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
    }


def encoder_of(stack: EncoderDecoder, *sizes: str) -> StackConfig:
    """The encoder's configuration; CourseError where it differs from the decoder's in other fields
    than these.
    """
    own, decoder = stack.encoder.config, encoder_config(stack.config)
    changed: dict[str, Any] = {name: getattr(own, name) for name in sizes}
    if own != replace(decoder, **changed):
        raise CourseError(
            f"In the public layout an encoder may differ from its decoder in {', '.join(sizes)}"
            " only."
        )
    return own


def _write_sides(model: Any) -> dict[str, Any]:
    own = encoder_of(model.stack, "layers", "heads", "hidden")
    return {"decoder_start_token_id": model.stack.start, **ENCODER.write(own)}


def _attention(theirs: str, ours: str, norm: str) -> tuple[Rule, ...]:
    projections = pairs(theirs, ours, q_proj="q", k_proj="k", v_proj="v", out_proj="out")
    return (*projections, *pairs(norm, f"{ours}_norm"))


def _side(side: str) -> tuple[Rule, ...]:
    layer, block = f"{side}.layers.{{}}", f"{side}.blocks.{{}}"
    return (
        *dropped(f"{side}.embed_tokens.weight"),  # tied to shared.weight
        Rule(
            f"{side}.embed_positions.weight",
            f"{side}.position.table.weight",
            without_offset,
            with_offset,
        ),
        *pairs(f"{side}.layernorm_embedding", f"{side}.embed.norm"),
        *_attention(f"{layer}.self_attn", f"{block}.attn", f"{layer}.self_attn_layer_norm"),
        *pairs(f"{layer}.fc1", f"{block}.ff.up"),
        *pairs(f"{layer}.fc2", f"{block}.ff.down"),
        *pairs(f"{layer}.final_layer_norm", f"{block}.ff_norm"),
    )


SIDES = ("encoder.embed.tokens.weight", "decoder.embed.tokens.weight")  # one public table is both
SHARED = Rule("shared.weight", SIDES, lambda x: torch.cat((x, x)), lambda x: x.chunk(2)[0])
BODY = (
    SHARED,
    *_side("encoder"),
    *_side("decoder"),
    *_attention(
        "decoder.layers.{}.encoder_attn",
        "decoder.blocks.{}.cross",
        "decoder.layers.{}.encoder_attn_layer_norm",
    ),
)
LM_HEAD = (
    Rule("final_logits_bias", "bias", lambda x: x[0], lambda x: x[None]),
    *dropped("lm_head.weight"),  # tied to shared.weight
)
CLASSIFIER = (
    *pairs("classification_head.dense", "dense"),
    *pairs("classification_head.out_proj", "out"),
)


def _body(config: StackConfig, values: Values) -> EncoderDecoder:
    sizes = {
        ours: values[theirs] for theirs, (ours, _) in ENCODER.entries.items() if theirs in values
    }
    encoder = replace(encoder_config(config), **sizes)
    return EncoderDecoder(
        config, encoder=encoder, start=values.get("decoder_start_token_id", START)
    )


_made = partial(Architecture, body=_body, write=_write_sides)
FAMILY = Family(
    name="bart",
    config=bart,
    model=bart_lm,
    objective="denoised",
    start="sep",
    read_config=_read_config,
    write_config=write_config,
    prefix="model.",
    rules=BODY,
    architectures={
        "BartModel": _made(Hidden, has_prefix=False),
        "BartForConditionalGeneration": _made(
            Seq2SeqLM, LM_HEAD, lambda body, values: {"bias": True}
        ),
        "BartForSequenceClassification": _made(Seq2SeqClassifier, CLASSIFIER, classes),
        "BartForQuestionAnswering": _made(QuestionAnswering, pairs("qa_outputs", "out")),
    },
)

BLENDERBOT_FAMILY = replace(
    FAMILY,
    name="blenderbot",
    config=lambda vocab=8008, **size: moved_norms(bart(vocab, **size)),
    read_config=lambda values: moved_norms(_read_config(values)),
    write_config=lambda config: write_config(config) | {"encoder_no_repeat_ngram_size": 0},
    rules=(
        *(
            rule
            for rule in BODY
            if "layernorm_embedding" not in rule.theirs and "positions" not in rule.theirs
        ),
        *(
            part
            for side in ("encoder", "decoder")
            for part in pairs(f"{side}.layer_norm", f"{side}.norm")
        ),
        *(
            Rule(f"{side}.embed_positions.weight", f"{side}.position.table.weight")
            for side in ("encoder", "decoder")
        ),
    ),
    architectures={
        f"Blenderbot{what}": FAMILY.architectures[f"Bart{what}"]
        for what in ("Model", "ForConditionalGeneration")
    },
)
