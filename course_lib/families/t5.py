"""T5 (Raffel et al. 2020): 1.0 as in the paper, and 1.1 as released later.

Differs from the 2017 Transformer by: the norm before each part, without mean or bias (RMSNorm); no
bias anywhere; no division of the scores by sqrt(Dh), which the initial weights make up for; no
positions in the embedding but a bias for each head and distance bucket, one table for all layers of
a stack; ReLU. Every task is text in, text out.

1.1 differs from 1.0 by: a gated GELU feed-forward, an output matrix of its own, no division by
sqrt(D) before it. Known departure: no dropout inside of the feed-forward.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torch import nn

from course_lib.errors import CourseError
from course_lib.families.bart import OUTPUT, TOKEN_TABLES, encoder_of, token_tables
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Fields, Values, changed
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Table
from course_lib.model.config import EmbedConfig, StackConfig, T5Buckets
from course_lib.model.seq2seq import EncoderDecoder, Hidden, Seq2SeqLM, encoder_config

EVERY: dict[str, Any] = {  # what both versions have
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
    heads: int,
    head_width: int | None = None,
    gated: bool = False,
    length: int = 0,
    **size: Any,
) -> StackConfig:
    """The decoder of a T5 of any size, for `EncoderDecoder`.

    Args:
        vocab: V.
        width: D.
        heads: H.
        head_width: Dh, by default D / H.
        gated: True for 1.1's feed-forward.
        length: means nothing here: a T5 has no longest text. Other families need it.
        size: `layers` of each side, `hidden`, ... as of `transformer`.
    """
    return replace(
        transformer(vocab, width=width, heads=heads, **size),
        embed=EmbedConfig(vocab),
        position=T5Buckets(32, 128),
        eps=1e-6,
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        head_width=head_width or width // heads,
        init_std=0.02,
        **EVERY,
    )


# name: width, layers a side, heads, hidden, head width. The paper's section 3.7: 60M to 11B.
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
    return t5(width=width, layers=layers, heads=heads, hidden=hidden, head_width=head_width)


def t5_lm(config: StackConfig, start: int = 0) -> Seq2SeqLM:
    """The model that is pretrained; a gated one (1.1) has an output matrix of its own.

    Each matrix starts with the standard deviation 1 / sqrt(its input width). Queries start smaller
    by 1 / sqrt(Dh), because scores are not divided by it.
    """
    is_1_0 = not config.gated
    model = Seq2SeqLM(EncoderDecoder(config, start=start), tied=is_1_0, scaled=is_1_0)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=_initial_std(name, config))
    if model.head is not None:
        nn.init.normal_(model.head.weight, std=1.0)
    return model


def _initial_std(name: str, config: StackConfig) -> float:
    """The standard deviation that the weights of a module start with."""
    if name.endswith(("attn.q", "cross.q")):
        return (config.width * config.dh) ** -0.5
    if name.endswith("out"):  # of an attention: reads all heads
        return (config.heads * config.dh) ** -0.5
    if name.endswith("down"):
        return config.hidden**-0.5
    if name.endswith("tokens"):
        return 1.0
    return config.width**-0.5


FIELDS = Fields.of("t5", fixed=EVERY, position=T5Buckets)


def _read_config(values: Values) -> StackConfig:
    feed_forward = values.get("feed_forward_proj", "relu")
    gate, _, activation = feed_forward.rpartition("-")  # "gated-gelu", or "relu" alone
    if feed_forward == "gated-gelu":
        activation = "gelu_new"  # that is what it means in T5
    _check_form(values, feed_forward, {"dense_act_fn": activation, "is_gated_act": gate == "gated"})
    layers = values.get("num_decoder_layers") or values["num_layers"]
    entries = changed(values, activation=activation, num_decoder_layers=layers)
    dropout = values.get("dropout_rate", 0.1)
    return FIELDS.read(entries, gated=gate == "gated", attention_dropout=dropout)


def _check_form(values: Values, form: str, meant: dict[str, Any]) -> None:
    """Newer files say the feed-forward's form twice; both must mean the same."""
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
    """What the "encoder" and the "decoder" share. Each layer is a list of numbered parts."""
    layer = f"{side}.block.{{layer}}.layer"
    block = f"{side}.blocks.{{layer}}"
    # The first layer holds the one table of distances.
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
    """The decoder's second part."""
    return {
        f"{part}.EncDecAttention.q.weight": f"{block}.cross.q.weight",
        f"{part}.EncDecAttention.k.weight": f"{block}.cross.k.weight",
        f"{part}.EncDecAttention.v.weight": f"{block}.cross.v.weight",
        f"{part}.EncDecAttention.o.weight": f"{block}.cross.out.weight",
        f"{part}.layer_norm.weight": f"{block}.cross_norm.weight",
        # Old files hold this table, but nothing uses it.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": None,
    }


def _feed_forward(part: str, block: str, gated: bool) -> Table:
    """The last part of a layer. 1.1 has a gate (wi_0) beside the first matrix."""
    table: Table = {
        f"{part}.DenseReluDense.{'wi_1' if gated else 'wi'}.weight": f"{block}.ff.up.weight",
        f"{part}.DenseReluDense.wo.weight": f"{block}.ff.down.weight",
        f"{part}.layer_norm.weight": f"{block}.ff_norm.weight",
    }
    if gated:
        table[f"{part}.DenseReluDense.wi_0.weight"] = f"{block}.ff.gate.weight"
    return table


def body_table(model: Any) -> Table:
    """How the body's weights are called: there, and here."""
    gated = model.stack.config.gated
    return {
        **token_tables(model),
        **_side("encoder"),
        **_feed_forward("encoder.block.{layer}.layer.1", "encoder.blocks.{layer}", gated),
        **_side("decoder"),
        **_cross_attention("decoder.block.{layer}.layer.1", "decoder.blocks.{layer}"),
        **_feed_forward("decoder.block.{layer}.layer.2", "decoder.blocks.{layer}", gated),
    }


def _body(config: StackConfig, values: Values) -> EncoderDecoder:
    """Both stacks; `config` is the decoder's, and the encoder may have another depth."""
    encoder = replace(encoder_config(config), layers=values.get("num_layers", config.layers))
    start = values.get("decoder_start_token_id") or 0
    one_table = values.get("one_table", True)
    return EncoderDecoder(config, encoder=encoder, start=start, one_table=one_table)


def _options(body: EncoderDecoder, values: Values) -> dict[str, Any]:
    """Whether hidden states are scaled before the output matrix.

    `tie_word_embeddings` says that too where `scale_decoder_outputs` is missing.
    """
    scaled = values.get("scale_decoder_outputs", values.get("tie_word_embeddings", True))
    return {"scaled": scaled}


def _says_tied(values: Values, names: Collection[str]) -> bool:
    """In a T5 the field tells of the scaling; a matrix of its own is one that differs."""
    return True


def _write_sides(model: Any) -> dict[str, Any]:
    """The entries of config.json that the decoder's configuration does not have."""
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
    token_tables=TOKEN_TABLES,
    architectures={
        "T5ForConditionalGeneration": Architecture(
            Seq2SeqLM,
            options=_options,
            body=_body,
            write=_write_lm,
            output=OUTPUT,
            says_tied=_says_tied,
        ),
        "T5Model": Architecture(Hidden, body=_body, write=_write_sides, says_tied=_says_tied),
    },
)
