"""T5 (Raffel et al. 2020): 1.0 as in the paper, and 1.1 as released later.

Differs from the 2017 Transformer by: norms before attention and feed-forward, without mean or bias
(RMSNorm); no biases; no division of the scores by sqrt(Dh), because the initial weights are smaller
instead; no positions in the embedding, but a trained number for each head and bucket of distances,
in one table for all layers of a stack. Every task is text in, text out.

1.1 differs from 1.0 by: a gated GELU feed-forward; an output matrix that is not the table of token
vectors; no division of hidden states by sqrt(D) before it. Known departure: no dropout between the
two layers of the feed-forward.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torch import nn

from course_lib.errors import CourseError
from course_lib.families.bart import OUTPUT, TOKEN_EMBEDDINGS, encoder_of, token_entries
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Fields, Values, changed
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Table
from course_lib.model.config import EmbedConfig, StackConfig, T5Buckets
from course_lib.model.seq2seq import EncoderDecoder, Hidden, Seq2SeqLM, encoder_config

# Fields that both versions share.
COMMON: dict[str, Any] = {
    "causal": True,
    "cross": True,
    "norm": "pre",
    "final_norm": True,
    "rms": True,
    "bias": False,
    "scale": False,
}


def t5(
    vocab: int = 32128,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    length: int = 0,
    gated: bool = False,
) -> StackConfig:
    """The decoder of a T5 of any size, for `EncoderDecoder`, which makes an encoder to match.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers of the decoder, and of the encoder.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        length: ignored, because T5's relative positions have no limit. Other families need it.
        gated: True for the gated feed-forward layer of version 1.1.
    """
    config = transformer(
        vocab, width=width, layers=layers, heads=heads, hidden=hidden, dropout=dropout
    )
    return replace(
        config,
        embed=EmbedConfig(vocab),
        position=T5Buckets(32, 128),
        eps=1e-6,
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        head_width=width // heads,
        init_std=0.02,
        **COMMON,
    )


# name: width, layers of encoder and of decoder, heads, hidden, head width. Section 3.7 lists these
# sizes, from 60M to 11B parameters.
T5_SIZES = {
    "small": (512, 6, 8, 2048, 64),
    "base": (768, 12, 12, 3072, 64),
    "large": (1024, 24, 16, 4096, 64),
    "3B": (1024, 24, 32, 16384, 128),
    "11B": (1024, 24, 128, 65536, 128),
}


def t5_size(size: str = "base") -> StackConfig:
    """One of the published sizes of version 1.0."""
    width, layers, heads, hidden, head_width = T5_SIZES[size]
    config = t5(width=width, layers=layers, heads=heads, hidden=hidden)
    return replace(config, head_width=head_width)


def t5_lm(config: StackConfig, start: int = 0) -> Seq2SeqLM:
    """A new model for pretraining. If it is gated (1.1), its output matrix is not tied.

    Each matrix starts with the standard deviation 1 / sqrt(its input width). The query matrix
    starts smaller by 1 / sqrt(Dh), because the scores are not divided by sqrt(Dh).
    """
    is_1_0 = not config.gated
    model = Seq2SeqLM(EncoderDecoder(config, start=start), tied=is_1_0, scaled=is_1_0)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=_initial_std(name, config))
    if model.head is not None:  # not 1 / sqrt(D): transformers, too, draws it with 1
        nn.init.normal_(model.head.weight, std=1.0)
    return model


def _initial_std(name: str, config: StackConfig) -> float:
    """The standard deviation of the initial weights of a module."""
    if name.endswith(("attn.q", "cross.q")):
        return (config.width * config.dh) ** -0.5
    if name.endswith("out"):  # the output layer of an attention, whose input is all heads
        return (config.heads * config.dh) ** -0.5
    if name.endswith("down"):
        return config.hidden**-0.5
    if name.endswith("tokens"):
        return 1.0
    return config.width**-0.5


FIELDS = Fields.of("t5", fixed=COMMON, position=T5Buckets)


def _read_config(values: Values) -> StackConfig:
    feed_forward = values.get("feed_forward_proj", "relu")
    gate, _, activation = feed_forward.rpartition("-")  # "gated-gelu", or "relu" alone
    if feed_forward == "gated-gelu":
        activation = "gelu_new"  # T5 means the tanh approximation by "gated-gelu"
    _check_form(values, feed_forward, {"dense_act_fn": activation, "is_gated_act": gate == "gated"})
    layers = values.get("num_decoder_layers") or values["num_layers"]
    entries = changed(values, activation=activation, num_decoder_layers=layers)
    dropout = values.get("dropout_rate", 0.1)
    return FIELDS.read(entries, gated=gate == "gated", attention_dropout=dropout)


def _check_form(values: Values, form: str, meant: dict[str, Any]) -> None:
    """Newer files describe the feed-forward in two ways. They must agree."""
    for name, value in meant.items():
        if values.get(name, value) != value:
            raise CourseError(
                f"feed_forward_proj {form!r} means {name} {value}, but {name} is {values[name]};"
                " correct one of them."
            )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `_read_config`, with an encoder as deep as the decoder."""
    values = FIELDS.write(config)
    feed_forward = values.pop("activation")
    if config.gated and feed_forward == "gelu_new":
        feed_forward = "gelu"
    if config.gated:
        feed_forward = f"gated-{feed_forward}"
    return values | {
        "d_kv": config.dh,
        "num_layers": config.layers,
        "feed_forward_proj": feed_forward,
        "is_encoder_decoder": True,
    }


def _side(side: str) -> Table:
    """The table that the "encoder" and the "decoder" share. A public layer is a numbered list."""
    layer = f"{side}.block.{{layer}}.layer"
    block = f"{side}.blocks.{{layer}}"
    # The public file stores the one table of distances in layer 0.
    distances = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return {
        distances: f"{side}.position.table.weight",
        f"{layer}.0.SelfAttention.q.weight": f"{block}.attn.q.weight",
        f"{layer}.0.SelfAttention.k.weight": f"{block}.attn.k.weight",
        f"{layer}.0.SelfAttention.v.weight": f"{block}.attn.v.weight",
        f"{layer}.0.SelfAttention.o.weight": f"{block}.attn.out.weight",
        f"{layer}.0.layer_norm.weight": f"{block}.attn_norm.weight",
        f"{side}.final_layer_norm.weight": f"{side}.norm.weight",
    }


def _cross_attention(part: str, block: str) -> Table:
    """The decoder's cross-attention, the second entry of a layer."""
    return {
        f"{part}.EncDecAttention.q.weight": f"{block}.cross.q.weight",
        f"{part}.EncDecAttention.k.weight": f"{block}.cross.k.weight",
        f"{part}.EncDecAttention.v.weight": f"{block}.cross.v.weight",
        f"{part}.EncDecAttention.o.weight": f"{block}.cross.out.weight",
        f"{part}.layer_norm.weight": f"{block}.cross_norm.weight",
        # Older files have this table, but no model uses it.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": None,
    }


def _feed_forward(part: str, block: str, gated: bool) -> Table:
    """The feed-forward, the last entry of a layer. In 1.1 it has a gate (wi_0)."""
    table: Table = {
        f"{part}.DenseReluDense.{'wi_1' if gated else 'wi'}.weight": f"{block}.ff.up.weight",
        f"{part}.DenseReluDense.wo.weight": f"{block}.ff.down.weight",
        f"{part}.layer_norm.weight": f"{block}.ff_norm.weight",
    }
    if gated:
        table[f"{part}.DenseReluDense.wi_0.weight"] = f"{block}.ff.gate.weight"
    return table


def body_table(model: Any) -> Table:
    """Public names of the body's weights -> our names."""
    gated = model.stack.config.gated
    return {
        **token_entries(model),
        **_side("encoder"),
        **_feed_forward("encoder.block.{layer}.layer.1", "encoder.blocks.{layer}", gated),
        **_side("decoder"),
        **_cross_attention("decoder.block.{layer}.layer.1", "decoder.blocks.{layer}"),
        **_feed_forward("decoder.block.{layer}.layer.2", "decoder.blocks.{layer}", gated),
    }


def _body(config: StackConfig, values: Values) -> EncoderDecoder:
    """Encoder and decoder. `config` is the decoder's; the encoder may have other `layers`."""
    encoder = replace(encoder_config(config), layers=values.get("num_layers", config.layers))
    start = values.get("decoder_start_token_id") or 0
    one_table = values.get("one_table", True)
    return EncoderDecoder(config, encoder=encoder, start=start, one_table=one_table)


def _options(body: EncoderDecoder, values: Values) -> dict[str, Any]:
    """Whether hidden states are divided by sqrt(D) before the output matrix.

    If `scale_decoder_outputs` is missing, `tie_word_embeddings` decides.
    """
    scaled = values.get("scale_decoder_outputs", values.get("tie_word_embeddings", True))
    return {"scaled": scaled}


def _always_tied(values: Values, weight_names: Collection[str]) -> bool:
    """Always: T5's `tie_word_embeddings` decides the scaling (`_options`), not the tying.

    The output matrix counts as untied if its weights in the file differ from the token vectors.
    """
    return True


def _write_sides(model: Any) -> dict[str, Any]:
    """The entries of config.json that are not in the decoder's configuration."""
    encoder = encoder_of(model.stack, "layers")
    return {"decoder_start_token_id": model.stack.start, "num_layers": encoder.layers}


def _write_lm(model: Seq2SeqLM) -> dict[str, Any]:
    return _write_sides(model) | {
        "tie_word_embeddings": model.head is None,
        "scale_decoder_outputs": model.scaled,
    }


FAMILY = Family(
    name="t5",
    config=t5,
    model=t5_lm,
    objective="span_corrupted",
    read_config=_read_config,
    write_config=write_config,
    prefix="",
    table=body_table,
    token_embeddings=TOKEN_EMBEDDINGS,
    architectures={
        "T5ForConditionalGeneration": Architecture(
            Seq2SeqLM,
            read_options=_options,
            build_body=_body,
            write_options=_write_lm,
            output=OUTPUT,
            read_tied=_always_tied,
        ),
        "T5Model": Architecture(
            Hidden, build_body=_body, write_options=_write_sides, read_tied=_always_tied
        ),
    },
)
