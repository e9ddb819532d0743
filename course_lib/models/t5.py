"""T5 (Raffel et al. 2020), 1.0 as in the paper and 1.1 as released later.

Differs from the 2017 Transformer by: the norm before each part, without mean or bias (RMSNorm); no bias anywhere; no
division of the scores by sqrt(Dh), which the initial weights make up for; no positions in the embedding but a bias for
each head and distance bucket, one table for all layers of a stack; ReLU. Every task is text in, text out. 1.1 differs
from 1.0 by: a gated GELU feed-forward, an output matrix of its own, no division by sqrt(D) before it.

Not taken over: the dropout inside the public feed-forward; it acts in training only.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from course_lib.config import EmbedConfig, StackConfig, T5Buckets
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.models.bart import once, start_token, twice
from course_lib.models.bert import PUBLIC_ACTIVATIONS, activation
from course_lib.seq2seq import EncoderDecoder, Hidden, Seq2SeqLM, encoder_config
from course_lib.stack import Stack


def t5(
    vocab: int = 32128, *, width: int, layers: int, heads: int, hidden: int, head_width: int | None = None,
    gated: bool = False, dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """The decoder of a T5 of any size, `layers` a side; for `EncoderDecoder`. gated: 1.1's feed-forward."""
    return StackConfig(
        embed=EmbedConfig(vocab=vocab),
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden,
        position=T5Buckets(32, 128),
        causal=True,
        cross=True,
        norm="pre",
        final_norm=True,
        rms=True,
        eps=1e-6,
        bias=False,
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        head_width=head_width or width // heads,
        scale=False,
        dropout=dropout,
        attention_dropout=dropout,
    )


T5_SIZES = {  # name: width, layers a side, heads, hidden, head width. The paper's section 3.7: 60M to 11B.
    "small": (512, 6, 8, 2048, 64),
    "base": (768, 12, 12, 3072, 64),
    "large": (1024, 24, 16, 4096, 64),
    "3B": (1024, 24, 32, 16384, 128),
    "11B": (1024, 24, 128, 65536, 128),
}
T5_1_1_SIZES = {
    "small": (512, 8, 6, 1024, 64),
    "base": (768, 12, 12, 2048, 64),
    "large": (1024, 24, 16, 2816, 64),
    "xl": (2048, 24, 32, 5120, 64),
    "xxl": (4096, 24, 64, 10240, 64),
}


def t5_size(size: str = "base", version: str = "1.0") -> StackConfig:
    """One of the published sizes of version "1.0" or "1.1".

    Raises:
        CourseError: no such size or version.
    """
    sizes = {"1.0": T5_SIZES, "1.1": T5_1_1_SIZES}.get(version)
    if sizes is None or size not in sizes:
        known = "; ".join((f"1.0: {', '.join(T5_SIZES)}", f"1.1: {', '.join(T5_1_1_SIZES)}"))
        raise CourseError(f"There is no T5 {version} {size!r}; there are {known}.")
    width, layers, heads, hidden, head_width = sizes[size]
    return t5(width=width, layers=layers, heads=heads, hidden=hidden, head_width=head_width, gated=version == "1.1")


def t5_mini(vocab: int = 3072, dropout: float = 0.0) -> StackConfig:
    """The classroom's T5: 3 + 3 layers of 128, 4 heads. No dropout: it sees every document once."""
    return t5(vocab, width=128, layers=3, heads=4, hidden=512, dropout=dropout)


def t5_lm(config: StackConfig, start: int = 0) -> Seq2SeqLM:
    """As published: gated ones (1.1) have an output matrix of their own. The weights start as in `initialise`."""
    model = Seq2SeqLM(EncoderDecoder(config, start=start), tied=not config.gated, scaled=not config.gated)
    initialise(model)
    return model


def initialise(model: Seq2SeqLM) -> None:
    """T5's own start: each matrix by its input width; queries also by sqrt(Dh), for scores are not divided by it."""
    config = model.stack.config
    width, inner = config.width, config.heads * config.dh
    std = {
        "attn.q": (width * config.dh) ** -0.5,
        "cross.q": (width * config.dh) ** -0.5,
        "out": inner**-0.5,
        "down": config.hidden**-0.5,
        "tokens": 1.0,
    }
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            found = [value for ending, value in std.items() if name.endswith(ending)]
            nn.init.normal_(module.weight, std=found[0] if found else width**-0.5)
    if model.head is not None:
        nn.init.normal_(model.head.weight, std=1.0)


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' T5Model to ours: the decoder's, or the encoder's where it was saved alone."""
    if values.get("num_decoder_layers") not in (None, values["num_layers"]):
        raise CourseError("Only T5s whose encoder and decoder have as many layers are read.")
    form = values.get("feed_forward_proj", "relu")
    gate, _, name = form.rpartition("-")
    name = "gelu_new" if form == "gated-gelu" else name
    both = bool(values.get("is_encoder_decoder", True))
    return StackConfig(
        embed=EmbedConfig(vocab=values["vocab_size"]),
        width=values["d_model"],
        layers=values["num_layers"],
        heads=values["num_heads"],
        hidden=values["d_ff"],
        position=T5Buckets(
            values.get("relative_attention_num_buckets", 32), values.get("relative_attention_max_distance", 128)
        ),
        causal=both,
        cross=both,
        norm="pre",
        final_norm=True,
        rms=True,
        eps=values.get("layer_norm_epsilon", 1e-6),
        bias=False,
        activation=activation({"feed_forward_proj": name}, "feed_forward_proj"),
        gated=gate == "gated",
        head_width=values["d_kv"],
        scale=False,
        dropout=values.get("dropout_rate", 0.1),
        attention_dropout=values.get("dropout_rate", 0.1),
        init_std=values.get("initializer_range", 0.02),
    )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    name = PUBLIC_ACTIVATIONS[config.activation]
    name = "gelu" if config.gated and name == "gelu_new" else name
    position = config.position if isinstance(config.position, T5Buckets) else T5Buckets(1, 1)
    return {
        "vocab_size": config.embed.vocab,
        "d_model": config.width,
        "d_kv": config.dh,
        "d_ff": config.hidden,
        "num_layers": config.layers,
        "num_decoder_layers": config.layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": position.buckets,
        "relative_attention_max_distance": position.max_distance,
        "layer_norm_epsilon": config.eps,
        "feed_forward_proj": f"gated-{name}" if config.gated else name,
        "dropout_rate": config.dropout,
        "initializer_range": config.init_std,
        "is_encoder_decoder": config.cross,
    }


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    parts = {"q": "q", "k": "k", "v": "v", "o": "out"}
    return tuple(Rule(f"{theirs}.{part}.weight", f"{ours}.{name}.weight") for part, name in parts.items())


def _side(side: str, prefix: str, gated: bool) -> tuple[Rule, ...]:
    """The rules of one stack, whose weights are called `prefix`... here."""
    layer, block = f"{side}.block.{{}}.layer", f"{prefix}blocks.{{}}"
    first = f"{side}.block.0.layer"
    ff = 1 if side == "encoder" else 2
    gate = Rule(f"{layer}.{ff}.DenseReluDense.wi_0.weight", f"{block}.ff.gate.weight")
    cross = (
        *_attention(f"{layer}.1.EncDecAttention", f"{block}.cross"),
        Rule(f"{layer}.1.layer_norm.weight", f"{block}.cross_norm.weight"),
        Rule(f"{first}.1.EncDecAttention.relative_attention_bias.weight", None),  # in old files; never used
    )
    return (
        Rule(f"{side}.embed_tokens.weight", None),  # tied to shared.weight
        Rule(f"{first}.0.SelfAttention.relative_attention_bias.weight", f"{prefix}position.table.weight"),
        *_attention(f"{layer}.0.SelfAttention", f"{block}.attn"),
        Rule(f"{layer}.0.layer_norm.weight", f"{block}.attn_norm.weight"),
        *(cross if side == "decoder" else ()),
        Rule(f"{layer}.{ff}.DenseReluDense.{'wi_1' if gated else 'wi'}.weight", f"{block}.ff.up.weight"),
        *((gate,) if gated else ()),
        Rule(f"{layer}.{ff}.DenseReluDense.wo.weight", f"{block}.ff.down.weight"),
        Rule(f"{layer}.{ff}.layer_norm.weight", f"{block}.ff_norm.weight"),
        Rule(f"{side}.final_layer_norm.weight", f"{prefix}norm.weight"),
    )


def rules(model: nn.Module) -> tuple[Rule, ...]:
    """The body's rules: of both stacks, or of an encoder alone, which leaves a whole model's decoder behind."""
    stack = model.stack
    if isinstance(stack, EncoderDecoder):
        gated = stack.config.gated
        shared = Rule("shared.weight", ("encoder.embed.tokens.weight", "decoder.embed.tokens.weight"), twice, once)
        return (shared, *_side("encoder", "encoder.", gated), *_side("decoder", "decoder.", gated))
    assert isinstance(stack, Stack)
    gated = stack.config.gated
    left = tuple(Rule(rule.theirs, None) for rule in _side("decoder", "", gated))
    return (Rule("shared.weight", "embed.tokens.weight"), *_side("encoder", "", gated), *left)


def _head_rules(model: nn.Module) -> tuple[Rule, ...]:
    return (Rule("lm_head.weight", None if getattr(model, "head", None) is None else "head.weight"),)


def _body(config: StackConfig, values: Mapping[str, Any]) -> EncoderDecoder:
    return EncoderDecoder(config, start=values.get("decoder_start_token_id") or 0)


def _lm(config: StackConfig, values: Mapping[str, Any]) -> Seq2SeqLM:
    """`tie_word_embeddings` once meant tied and scaled; where `scale_decoder_outputs` is said too, the weights tell."""
    tied = values.get("tie_word_embeddings", True)
    scaled = values.get("scale_decoder_outputs", tied)
    if "scale_decoder_outputs" in values:
        tied = "lm_head.weight" not in values["weights"]
    return Seq2SeqLM(_body(config, values), tied=tied, scaled=scaled)


def _write_lm(model: nn.Module) -> dict[str, Any]:
    assert isinstance(model, Seq2SeqLM)
    return start_token(model) | {"tie_word_embeddings": model.head is None, "scale_decoder_outputs": model.scaled}


FAMILY = Family(
    model_type="t5",
    read_config=read_config,
    write_config=write_config,
    prefix="",
    rules=rules,
    architectures={
        "T5Model": Architecture(lambda c, v: Hidden(_body(c, v)), _head_rules, write=start_token),
        "T5EncoderModel": Architecture(lambda c, v: Hidden(Stack(encoder_config(c))), _head_rules),
        "T5ForConditionalGeneration": Architecture(_lm, _head_rules, write=_write_lm),
    },
)
