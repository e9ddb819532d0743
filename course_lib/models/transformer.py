"""The Transformer of Vaswani et al. 2017, the model that all others of the course are told apart from.

An encoder and a decoder of equal size, post-norm, ReLU, sines for positions, one table of token vectors for source,
target and output, multiplied by sqrt(D) where it is an input (section 3.4).
"""

from typing import Literal

from course_lib.config import EmbedConfig, Sinusoidal, StackConfig
from course_lib.seq2seq import EncoderDecoder, Seq2SeqLM


def transformer(
    vocab: int = 37000, *, width: int, layers: int, heads: int, hidden: int | None = None, dropout: float = 0.1,
    norm: Literal["pre", "post"] = "post",
) -> StackConfig:  # fmt: skip
    """The decoder of a Transformer of any size, `layers` a side; for `EncoderDecoder`.

    Weights start with the variance 1 / D: then the token vectors times sqrt(D) are as large as the sines beside them.
    """
    return StackConfig(
        embed=EmbedConfig(vocab=vocab, scale=width**0.5),
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden or 4 * width,
        position=Sinusoidal(),
        causal=True,
        cross=True,
        norm=norm,
        final_norm=norm == "pre",
        activation="relu",
        dropout=dropout,
        attention_dropout=dropout,
        init_std=width**-0.5,
    )


def transformer_base() -> StackConfig:
    """6 + 6 layers of 512, 8 heads (table 3, base)."""
    return transformer(width=512, layers=6, heads=8)


def transformer_big() -> StackConfig:
    """6 + 6 layers of 1024, 16 heads (table 3, big)."""
    return transformer(width=1024, layers=6, heads=16, dropout=0.3)


def transformer_lm(config: StackConfig, start: int = 0) -> Seq2SeqLM:
    """The whole model, from source and shifted target to the logits of the target."""
    return Seq2SeqLM(EncoderDecoder(config, start=start))
