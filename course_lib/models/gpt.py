"""GPT-1 (Radford et al. 2018), GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020).

GPT-1 differs from the 2017 Transformer by: the decoder alone, without cross-attention; learned positions; GELU (its
tanh approximation). GPT-2 differs from GPT-1 by: the norm before each part instead of after it, one more norm at the
end, smaller initial weights into the residual, a byte-level vocabulary, twice the context. GPT-3 differs from GPT-2
by: size, and twice the context again. Left out of the course: in GPT-3 every other layer attends to a band of nearby
positions only (Child et al. 2019); here all attend to all, with the same weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from course_lib import heads
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule, transposed
from course_lib.models.bert import PUBLIC_ACTIVATIONS, activation, labels, pairs
from course_lib.stack import Stack


def gpt(
    vocab: int, *, width: int, layers: int, heads: int, length: int, norm: Literal["pre", "post"] = "pre",
    dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """A decoder of any size: norm="post" is GPT-1's block, norm="pre" GPT-2's."""
    return StackConfig(
        embed=EmbedConfig(vocab=vocab),
        width=width,
        layers=layers,
        heads=heads,
        hidden=4 * width,
        position=Learned(length),
        causal=True,
        norm=norm,
        final_norm=norm == "pre",
        scaled_init=norm == "pre",
        activation="gelu_tanh",
        dropout=dropout,
        attention_dropout=dropout,
    )


def gpt1() -> StackConfig:
    """12 layers of 768, 12 heads, context 512, 40,478 tokens: 117M."""
    return gpt(40478, width=768, layers=12, heads=12, length=512, norm="post")


GPT2_SIZES = {  # name: layers, width, heads. The paper's table 2 says 117M, 345M, 762M, 1542M.
    "124M": (12, 768, 12),
    "355M": (24, 1024, 16),
    "774M": (36, 1280, 20),
    "1558M": (48, 1600, 25),
}


def gpt2(size: str = "124M") -> StackConfig:
    """One of the four GPT-2s, context 1,024, 50,257 byte-level tokens.

    Raises:
        CourseError: no such size.
    """
    if size not in GPT2_SIZES:
        raise CourseError(f"GPT-2 comes as {', '.join(GPT2_SIZES)}; {size!r} is none of them.")
    layers, width, heads = GPT2_SIZES[size]
    return gpt(50257, width=width, layers=layers, heads=heads, length=1024)


@dataclass(frozen=True)
class GPT3Row:
    """A row of Brown et al. 2020, table 2.1, as printed. parameters: rounded. batch: tokens a step. lr: peak rate."""

    parameters: float
    layers: int
    width: int
    heads: int
    head_width: int
    batch: float
    lr: float


GPT3_SIZES = {
    "Small": GPT3Row(125e6, 12, 768, 12, 64, 0.5e6, 6.0e-4),
    "Medium": GPT3Row(350e6, 24, 1024, 16, 64, 0.5e6, 3.0e-4),
    "Large": GPT3Row(760e6, 24, 1536, 16, 96, 0.5e6, 2.5e-4),
    "XL": GPT3Row(1.3e9, 24, 2048, 24, 128, 1e6, 2.0e-4),
    "2.7B": GPT3Row(2.7e9, 32, 2560, 32, 80, 1e6, 1.6e-4),
    "6.7B": GPT3Row(6.7e9, 32, 4096, 32, 128, 2e6, 1.2e-4),
    "13B": GPT3Row(13.0e9, 40, 5140, 40, 128, 2e6, 1.0e-4),
    "175B": GPT3Row(175.0e9, 96, 12288, 96, 128, 3.2e6, 0.6e-4),
}


def gpt3(size: str = "175B") -> StackConfig:
    """One of the eight GPT-3s of table 2.1, context 2,048, GPT-2's vocabulary; attention is dense in every layer.

    In six rows width = heads x head width. In two it is not, and the paper's own counts (table D.1, to the nearest ten
    million) tell what was meant:

        XL   prints width 2048 and 24 heads of 128, which make 3072. D.1 counts 1,320M. Width 2048 gives 1,316M with
             projections of 2048 but 1,517M with 3072. Taken: 16 heads of 128.
        13B  prints width 5140 and 40 heads of 128, which make 5120. D.1 counts 12,850M. Width 5120 gives 12,853M, but
             5140 gives 12,936M (12,953M with projections of 5140). Taken: width 5120.

    Raises:
        CourseError: no such size.
    """
    if size not in GPT3_SIZES:
        raise CourseError(f"GPT-3 comes as {', '.join(GPT3_SIZES)}; {size!r} is none of them.")
    row = GPT3_SIZES[size]
    width = {"13B": 5120}.get(size, row.width)
    return gpt(50257, width=width, layers=row.layers, heads=width // row.head_width, length=2048)


def gpt_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's GPT: 4 layers of 128, 4 heads, GPT-2's block. No dropout: it sees every document once."""
    return gpt(vocab, width=128, layers=4, heads=4, length=length, dropout=dropout)


def _read(values: Mapping[str, Any], act: str, norm: Literal["pre", "post"]) -> StackConfig:
    if values.get("n_inner") not in (None, 4 * values["n_embd"]):
        raise CourseError("Only GPTs whose feed-forward is four times as wide as the model are read.")
    if values.get("scale_attn_by_inverse_layer_idx") or values.get("add_cross_attention"):
        raise CourseError("Only GPT-2 as published is read: no cross-attention, no scaling by layer number.")
    return StackConfig(
        embed=EmbedConfig(vocab=values["vocab_size"]),
        width=values["n_embd"],
        layers=values["n_layer"],
        heads=values["n_head"],
        hidden=4 * values["n_embd"],
        position=Learned(values["n_positions"]),
        causal=True,
        norm=norm,
        final_norm=norm == "pre",
        scaled_init=norm == "pre",
        eps=values.get("layer_norm_epsilon", 1e-5),
        activation=activation(values, act),
        dropout=values.get("resid_pdrop", 0.1),
        attention_dropout=values.get("attn_pdrop", 0.1),
        init_std=values.get("initializer_range", 0.02),
    )


def _write(config: StackConfig) -> dict[str, Any]:
    length = config.position.length if isinstance(config.position, Learned) else 0
    return {
        "vocab_size": config.embed.vocab,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_positions": length,
        "layer_norm_epsilon": config.eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "initializer_range": config.init_std,
    }


def read_gpt1(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' OpenAIGPTModel to ours; its "gelu" is the tanh approximation."""
    values = dict(values) | {"afn": {"gelu": "gelu_new"}.get(values.get("afn", "gelu"), values.get("afn"))}
    return _read(values, "afn", "post")


def write_gpt1(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_gpt1`."""
    public = {"gelu_new": "gelu"}
    name = PUBLIC_ACTIVATIONS[config.activation]
    return _write(config) | {"afn": public.get(name, name)}


def read_gpt2(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' GPT2Model to ours."""
    return _read(
        dict(values) | {"activation_function": values.get("activation_function", "gelu_new")},
        "activation_function",
        "pre",
    )


def write_gpt2(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_gpt2`."""
    return _write(config) | {"activation_function": PUBLIC_ACTIVATIONS[config.activation]}


def _conv(theirs: str, *ours: str) -> tuple[Rule, Rule]:
    """A `Conv1D`: transposed weight; several of ours stand side by side in it."""
    weight, bias = tuple(o + ".weight" for o in ours), tuple(o + ".bias" for o in ours)
    return Rule(theirs + ".weight", weight, transposed, transposed), Rule(theirs + ".bias", bias)


BLOCK = (
    *_conv("h.{}.attn.c_attn", "blocks.{}.attn.q", "blocks.{}.attn.k", "blocks.{}.attn.v"),
    *_conv("h.{}.attn.c_proj", "blocks.{}.attn.out"),
    *_conv("h.{}.mlp.c_fc", "blocks.{}.ff.up"),
    *_conv("h.{}.mlp.c_proj", "blocks.{}.ff.down"),
    *pairs("h.{}.ln_1", "blocks.{}.attn_norm"),
    *pairs("h.{}.ln_2", "blocks.{}.ff_norm"),
    Rule("h.{}.attn.bias", None),  # the causal mask, kept as a buffer by older files
    Rule("h.{}.attn.masked_bias", None),
)
GPT1_BODY = (
    Rule("tokens_embed.weight", "embed.tokens.weight"),
    Rule("positions_embed.weight", "position.table.weight"),
    Rule("position_ids", None),
    *BLOCK,
)
GPT2_BODY = (
    Rule("wte.weight", "embed.tokens.weight"),
    Rule("wpe.weight", "position.table.weight"),
    *BLOCK,
    *pairs("ln_f", "norm"),
)
TIED = (Rule("lm_head.weight", None),)
SCORE = (Rule("score.weight", "out.weight"),)


def _lm(config: StackConfig, values: Mapping[str, Any]) -> heads.LM:
    return heads.LM(Stack(config))


def _classifier(config: StackConfig, values: Mapping[str, Any]) -> heads.Classifier:
    return heads.Classifier(Stack(config), labels(values), pool="last", bias=False)


GPT1_FAMILY = Family(
    model_type="openai-gpt",
    read_config=read_gpt1,
    write_config=write_gpt1,
    prefix="transformer.",
    rules=GPT1_BODY,
    architectures={
        "OpenAIGPTModel": Architecture(_lm, has_prefix=False),
        "OpenAIGPTLMHeadModel": Architecture(_lm, TIED),
        "OpenAIGPTForSequenceClassification": Architecture(_classifier, SCORE),
    },
)
GPT2_FAMILY = Family(
    model_type="gpt2",
    read_config=read_gpt2,
    write_config=write_gpt2,
    prefix="transformer.",
    rules=GPT2_BODY,
    architectures={
        "GPT2Model": Architecture(_lm, has_prefix=False),
        "GPT2LMHeadModel": Architecture(_lm, TIED),
        "GPT2ForSequenceClassification": Architecture(_classifier, SCORE),
    },
)
