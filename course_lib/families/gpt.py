"""GPT-1 (Radford et al. 2018), GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020).

GPT-1 differs from the 2017 Transformer by: the decoder alone, without cross-attention; learned
positions; GELU (its tanh approximation).

GPT-2 differs from GPT-1 by: norms before attention and feed-forward instead of after them; one more
norm after the last block; smaller initial weights where a layer adds to the residual; a byte-level
vocabulary; twice the context.

GPT-3 differs from GPT-2 by: size, and twice the context again. Known departure: every second layer
of GPT-3 attends to nearby positions only (Child et al. 2019). Here every layer attends to all
earlier positions.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Fields, Values, changed, read_classes
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.transformer import Transformer


def gpt(
    vocab: int,
    *,
    width: int,
    layers: int,
    heads: int,
    length: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    norm: Literal["pre", "post"] = "pre",
) -> StackConfig:
    """A decoder of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers.
        heads: number of attention heads in each layer.
        length: maximum number of tokens in an input; each position has a learned vector.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        norm: "pre" is GPT-2's block (norm before attention), "post" GPT-1's (norm after it).
    """
    config = transformer(
        vocab, width=width, layers=layers, heads=heads, hidden=hidden, dropout=dropout, norm=norm
    )
    return replace(
        config,
        embed=EmbedConfig(vocab),
        position=Learned(length),
        cross=False,
        activation="gelu_tanh",
        init_std=0.02,
        scaled_init=norm == "pre",
    )


def gpt1() -> StackConfig:
    """The published GPT-1: 117M parameters, context 512, 40,478 tokens."""
    return gpt(40478, width=768, layers=12, heads=12, length=512, norm="post")


# Number of parameters: (layers, width, heads). The paper's table 2 calls them 117M, 345M, 762M and
# 1542M; the released models have these numbers of parameters.
GPT2_SIZES = {
    "124M": (12, 768, 12),
    "355M": (24, 1024, 16),
    "774M": (36, 1280, 20),
    "1558M": (48, 1600, 25),
}


def gpt2(size: str = "124M") -> StackConfig:
    """One of the four published GPT-2s: context 1,024, 50,257 byte-level tokens."""
    layers, width, heads = GPT2_SIZES[size]
    return gpt(50257, width=width, layers=layers, heads=heads, length=1024)


class GPT3Row(NamedTuple):
    """A row of Brown et al. 2020, table 2.1, as printed."""

    parameters: float  # rounded
    layers: int
    width: int
    heads: int
    head_width: int
    batch: float  # tokens per step
    lr: float  # peak learning rate


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
    """One of the eight GPT-3s of table 2.1: context 2,048, GPT-2's vocabulary.

    In two rows of the table, width is not heads times head width. The paper's parameter counts
    (table D.1) show which number is wrong. XL (width 2048, 24 heads of width 128) must have 16
    heads: then we count 1,316M parameters, the paper 1,320M. 13B (width 5140, 40 heads of width
    128) must have width 5120: we count 12,853M, the paper 12,850M.
    """
    row = GPT3_SIZES[size]
    width = 5120 if size == "13B" else row.width
    heads = width // row.head_width
    return gpt(50257, width=width, layers=row.layers, heads=heads, length=2048)


# GPT-2's config.json. `_read_gpt1` and `_write_gpt1` change it to GPT-1's.
FIELDS = Fields.of(
    "gpt",
    fixed={"causal": True},
    published={"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
)


def _read(values: Values, norm: Literal["pre", "post"]) -> StackConfig:
    hidden = values.get("n_inner") or 4 * values["n_embd"]
    is_pre = norm == "pre"
    entries = changed(values, n_inner=hidden)
    config = FIELDS.read(entries, norm=norm, final_norm=is_pre, scaled_init=is_pre)
    embed_dropout = values.get("embd_pdrop", 0.1)
    if embed_dropout == config.dropout:
        return config  # None, the default, already means this rate
    return replace(config, embed_dropout=embed_dropout)


def _read_gpt1(values: Values) -> StackConfig:
    """GPT-1's "gelu" means the tanh approximation, which GPT-2 calls "gelu_new"."""
    name = values.get("afn", "gelu")
    if name == "gelu":
        name = "gelu_new"
    return _read(changed(values, activation_function=name), "post")


def _write_gpt1(config: StackConfig) -> dict[str, Any]:
    """The reverse of `_read_gpt1`.

    Raises:
        CourseError: the feed-forward is not 4 D wide, or the scores are not divided by sqrt(Dh).
            GPT-1's public class cannot do this.
    """
    values = _write_gpt2(config)
    if values.pop("n_inner") != 4 * config.width:
        raise CourseError("A GPT-1's feed-forward is four times as wide as the model.")
    if not values.pop("scale_attn_weights"):
        raise CourseError("A GPT-1 divides the scores by sqrt(Dh).")
    name = values.pop("activation_function")
    if name == "gelu_new":
        name = "gelu"
    return values | {"afn": name}


def _write_gpt2(config: StackConfig) -> dict[str, Any]:
    rate = config.dropout if config.embed_dropout is None else config.embed_dropout
    return FIELDS.write(config) | {"embd_pdrop": rate}


def transposed(x: Tensor) -> Tensor:
    """GPT's `Conv1D` stores [in, out], a Linear [out, in]. The same function reverses itself."""
    return x.t().contiguous() if x.ndim == 2 else x


def _conv(*ours: str) -> Converted:
    """A `Conv1D`, which may hold several of our layers side by side."""
    return Converted(ours, to_ours=transposed, to_public=transposed)


# Public names of a layer's weights -> our names. GPT-1 and GPT-2 have the same.
BLOCK: Table = {
    "h.{layer}.attn.c_attn.*": _conv(
        "blocks.{layer}.attn.q.*", "blocks.{layer}.attn.k.*", "blocks.{layer}.attn.v.*"
    ),
    "h.{layer}.attn.c_proj.*": _conv("blocks.{layer}.attn.out.*"),
    "h.{layer}.mlp.c_fc.*": _conv("blocks.{layer}.ff.up.*"),
    "h.{layer}.mlp.c_proj.*": _conv("blocks.{layer}.ff.down.*"),
    "h.{layer}.ln_1.*": "blocks.{layer}.attn_norm.*",
    "h.{layer}.ln_2.*": "blocks.{layer}.ff_norm.*",
    # The causal mask, a buffer in older files.
    "h.{layer}.attn.bias": None,
    "h.{layer}.attn.masked_bias": None,
}


def _last_token(body: Transformer, values: Values) -> dict[str, Any]:
    """Classify the last token: in a causal model, only that one has attended to the whole text."""
    return {"classes": read_classes(values), "pool": "last", "bias": False}


def _family(public: str, **own: Any) -> Family:
    """A `Family` with everything that GPT-1 and GPT-2 share.

    Args:
        public: what the names of the public classes begin with, such as "GPT2".
        own: the other attributes of the family.
    """
    return Family(
        model=lambda config, start: heads.LM(Transformer(config)),
        objective="causal",
        tokenizer="bpe",
        prefix="transformer.",
        architectures={
            f"{public}LMHeadModel": Architecture(
                heads.LM, output={"lm_head.weight": "head.weight"}
            ),
            # The output matrix is the token embedding, so the body's file is enough for a whole LM.
            f"{public}Model": Architecture(heads.LM, has_prefix=False),
            f"{public}ForSequenceClassification": Architecture(
                heads.Classifier,
                {"score.weight": "out.weight"},
                _last_token,
            ),
        },
        **own,
    )


GPT1_FAMILY = _family(
    "OpenAIGPT",
    name="gpt1",
    published_as="openai-gpt",
    config=partial(gpt, norm="post"),
    read_config=_read_gpt1,
    write_config=_write_gpt1,
    token_embeddings=("tokens_embed.weight",),
    table={
        "tokens_embed.weight": "embed.tokens.weight",
        "positions_embed.weight": "position.table.weight",
        "position_ids": None,
        **BLOCK,
    },
)


def _tagger(body: Transformer, values: Values) -> dict[str, Any]:
    """The dropout has two names in config.json. The default 0.1 is that of transformers' class."""
    rate = values.get("classifier_dropout")
    if rate is None:
        rate = values.get("hidden_dropout")
    return {"classes": read_classes(values), "dropout": 0.1 if rate is None else rate}


_GPT2 = _family(
    "GPT2",
    name="gpt",
    published_as="gpt2",
    config=gpt,
    read_config=partial(_read, norm="pre"),
    write_config=_write_gpt2,
    token_embeddings=("wte.weight",),
    table={
        "wte.weight": "embed.tokens.weight",
        "wpe.weight": "position.table.weight",
        **BLOCK,
        "ln_f.*": "norm.*",
    },
)
# GPT-1 has no public class for token classification.
GPT2_FAMILY = replace(
    _GPT2,
    architectures={
        **_GPT2.architectures,
        "GPT2ForTokenClassification": Architecture(
            heads.TokenClassifier,
            {"classifier.*": "out.*"},
            _tagger,
            write_options=lambda model: {"classifier_dropout": model.dropout.p},
        ),
    },
)
