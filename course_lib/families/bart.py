"""BART (Lewis et al. 2020) and Blenderbot (Roller et al. 2021).

BART differs from the 2017 Transformer by: learned positions; a norm on the embedding of encoder and
decoder; GELU; the decoder begins with the end-of-sentence token. To classify a text, the decoder
reads the text, too, and a linear layer classifies its last token.

Blenderbot differs from BART by: norms before attention and feed-forward instead of after them. The
classroom's `bart-mini` is a Blenderbot.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families.bert import moved_norms
from course_lib.families.encoder_heads import SPAN
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Entry, Fields, Values, read_classes
from course_lib.families.roberta import with_offset, without_offset
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Converted, Table
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
    vocab: int = 50265,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    length: int = 1024,
    attention_dropout: float = 0.0,
) -> StackConfig:
    """The decoder of a BART of any size, for `EncoderDecoder`, which makes an encoder to match.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers of the decoder, and of the encoder.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for the hidden states.
        length: maximum number of tokens in an input; each position has a learned vector.
        attention_dropout: dropout rate for the attention weights.
    """
    config = transformer(
        vocab, width=width, layers=layers, heads=heads, hidden=hidden, dropout=dropout
    )
    return replace(
        config,
        embed=EmbedConfig(vocab, norm=True),
        position=Learned(length),
        activation="gelu",
        attention_dropout=attention_dropout,
        init_std=0.02,
    )


def bart_lm(config: StackConfig, start: int = START) -> Seq2SeqLM:
    """A new model for pretraining: tied output matrix, and a constant vector on the logits."""
    return Seq2SeqLM(EncoderDecoder(config, start=start), bias=True)


# The encoder may have other sizes than the decoder in these fields.
ENCODER = Fields(
    {
        "encoder_layers": Entry("layers"),
        "encoder_attention_heads": Entry("heads"),
        "encoder_ffn_dim": Entry("hidden"),
    }
)
FIELDS = Fields.of("bart", fixed={"causal": True, "cross": True, "norm": "post"})


def _read_config(values: Values) -> StackConfig:
    scale = 1.0
    if values.get("scale_embedding", False):
        scale = values["d_model"] ** 0.5
    return FIELDS.read(values, embed={"norm": True, "scale": scale})


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `_read_config`, with an encoder as large as the decoder."""
    return FIELDS.write(config) | {
        **ENCODER.write(config),
        "scale_embedding": config.embed.scale != 1.0,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
    }


def encoder_of(stack: EncoderDecoder, *sizes: str) -> StackConfig:
    """The encoder's configuration, for writing a config.json.

    Args:
        stack: encoder and decoder.
        sizes: the fields in which they may differ.

    Raises:
        CourseError: they differ in other fields, which a public config.json cannot express.
    """
    encoder = stack.encoder.config
    own_sizes: dict[str, Any] = {name: getattr(encoder, name) for name in sizes}
    if encoder != replace(encoder_config(stack.config), **own_sizes):
        raise CourseError(
            f"In the public layout an encoder may differ from its decoder in {', '.join(sizes)}"
            " only."
        )
    return encoder


def _write_sides(model: Any) -> dict[str, Any]:
    """The entries of config.json that are not in the decoder's configuration."""
    encoder = encoder_of(model.stack, "layers", "heads", "hidden")
    return {"decoder_start_token_id": model.stack.start, **ENCODER.write(encoder)}


def _side(side: str) -> Table:
    """The table of the "encoder" or of the "decoder"."""
    layer = f"{side}.layers.{{layer}}"
    block = f"{side}.blocks.{{layer}}"
    return {
        f"{side}.embed_positions.weight": Converted(
            (f"{side}.position.table.weight",), to_ours=without_offset, to_public=with_offset
        ),
        f"{side}.layernorm_embedding.*": f"{side}.embed.norm.*",
        f"{layer}.self_attn.q_proj.*": f"{block}.attn.q.*",
        f"{layer}.self_attn.k_proj.*": f"{block}.attn.k.*",
        f"{layer}.self_attn.v_proj.*": f"{block}.attn.v.*",
        f"{layer}.self_attn.out_proj.*": f"{block}.attn.out.*",
        f"{layer}.self_attn_layer_norm.*": f"{block}.attn_norm.*",
        f"{layer}.fc1.*": f"{block}.ff.up.*",
        f"{layer}.fc2.*": f"{block}.ff.down.*",
        f"{layer}.final_layer_norm.*": f"{block}.ff_norm.*",
    }


def _twice(x: Tensor) -> Tensor:
    return torch.cat((x, x))


def _first_half(x: Tensor) -> Tensor:
    return x.chunk(2)[0]


# The public names of the token embedding: shared, the encoder's and the decoder's.
TOKEN_EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def token_entries(model: Any) -> Table:
    """The entries for the token embeddings of encoder and decoder. T5 has the same names."""
    shared, encoder, decoder = TOKEN_EMBEDDINGS
    ours = ("encoder.embed.tokens.weight", "decoder.embed.tokens.weight")
    if model.stack.one_table:
        one = Converted(ours, to_ours=_twice, to_public=_first_half)
        return {shared: one, encoder: None, decoder: None}
    # The model does not use the shared token embedding, but transformers needs it in the file.
    return {shared: ours[0], encoder: Converted(ours[:1], is_duplicate=True), decoder: ours[1]}


# Public names of a BART's weights -> our names. `token_entries` adds the token embeddings.
BODY: Table = {
    **_side("encoder"),
    **_side("decoder"),
    "decoder.layers.{layer}.encoder_attn.q_proj.*": "decoder.blocks.{layer}.cross.q.*",
    "decoder.layers.{layer}.encoder_attn.k_proj.*": "decoder.blocks.{layer}.cross.k.*",
    "decoder.layers.{layer}.encoder_attn.v_proj.*": "decoder.blocks.{layer}.cross.v.*",
    "decoder.layers.{layer}.encoder_attn.out_proj.*": "decoder.blocks.{layer}.cross.out.*",
    "decoder.layers.{layer}.encoder_attn_layer_norm.*": "decoder.blocks.{layer}.cross_norm.*",
}
LM_HEAD: Table = {
    "final_logits_bias": Converted(("bias",), to_ours=lambda x: x[0], to_public=lambda x: x[None]),
}
# The output matrix, if it is not the token embedding.
OUTPUT: Table = {"lm_head.weight": "head.weight"}
CLASSIFIER: Table = {
    "classification_head.dense.*": "dense.*",
    "classification_head.out_proj.*": "out.*",
}


def _body(config: StackConfig, values: Values) -> EncoderDecoder:
    """Encoder and decoder. `config` is the decoder's; the encoder may have other sizes."""
    sizes = {
        entry.field: values[public] for public, entry in ENCODER.entries.items() if public in values
    }
    encoder = replace(encoder_config(config), **sizes)
    start = values.get("decoder_start_token_id", START)
    one_table = values.get("one_table", True)
    return EncoderDecoder(config, encoder=encoder, start=start, one_table=one_table)


def _with_constant(body: EncoderDecoder, values: Values) -> dict[str, Any]:
    """A constant vector on the logits: `final_logits_bias`, which is not trained."""
    return {"bias": True}


def _classifier(body: EncoderDecoder, values: Values) -> dict[str, Any]:
    """The default is three classes, as in transformers' BartConfig (for MNLI), not two."""
    is_given = values.get("id2label") or values.get("num_labels") or values.get("classes")
    classes = read_classes(values) if is_given else 3
    return {"classes": classes, "dropout": values.get("classifier_dropout", 0.0)}


def _write_classifier(model: Any) -> dict[str, Any]:
    return _write_sides(model) | {"classifier_dropout": model.dropout.p}


_public = partial(Architecture, build_body=_body, write_options=_write_sides)
FAMILY = Family(
    name="bart",
    config=bart,
    model=bart_lm,
    objective="denoised",
    decoder_start="sep",
    read_config=_read_config,
    write_config=write_config,
    prefix="model.",
    table=lambda model: token_entries(model) | BODY,
    token_embeddings=TOKEN_EMBEDDINGS,
    architectures={
        "BartModel": _public(Hidden, has_prefix=False),
        "BartForConditionalGeneration": _public(Seq2SeqLM, LM_HEAD, _with_constant, output=OUTPUT),
        "BartForSequenceClassification": _public(
            Seq2SeqClassifier, CLASSIFIER, _classifier, write_options=_write_classifier
        ),
        "BartForQuestionAnswering": _public(QuestionAnswering, SPAN),
    },
)


# Blenderbot has no norm on the embedding, but one after the last block. Its position table has no
# unused rows.
BLENDERBOT_BODY: Table = {
    public: ours for public, ours in BODY.items() if ".layernorm_embedding." not in public
} | {
    "encoder.embed_positions.weight": "encoder.position.table.weight",
    "decoder.embed_positions.weight": "decoder.position.table.weight",
    "encoder.layer_norm.*": "encoder.norm.*",
    "decoder.layer_norm.*": "decoder.norm.*",
}
BLENDERBOT_FAMILY = replace(
    FAMILY,
    name="blenderbot",
    config=lambda vocab=8008, **size: moved_norms(bart(vocab, **size)),
    read_config=lambda values: moved_norms(_read_config(values)),
    # Without this entry, transformers' class forbids a text to repeat 3-grams of its source.
    write_config=lambda config: write_config(config) | {"encoder_no_repeat_ngram_size": 0},
    table=lambda model: token_entries(model) | BLENDERBOT_BODY,
    architectures={
        "BlenderbotModel": FAMILY.architectures["BartModel"],
        "BlenderbotForConditionalGeneration": FAMILY.architectures["BartForConditionalGeneration"],
    },
)
