"""The Transformer of 2017 (Vaswani et al. 2017). Every family's file says how it differs."""

from typing import Literal

from course_lib.model.config import EmbedConfig, Sinusoidal, StackConfig


def transformer(
    vocab: int = 37000,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.1,
    norm: Literal["pre", "post"] = "post",
) -> StackConfig:
    """The decoder of a Transformer of any size, for `EncoderDecoder` (Vaswani et al. 2017).

    In the embedding, token vectors are multiplied by sqrt(D) (section 3.4). They start with the
    variance 1 / D, so after this they are about as large as the sines that are added to them.

    Args:
        vocab: number of tokens in the vocabulary, which encoder and decoder share.
        width: size D of the hidden states.
        layers: number of layers of the decoder, and of the encoder.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 4 D.
        dropout: dropout rate for hidden states and attention weights.
        norm: "post": norm after attention and feed-forward, as in the paper; "pre": before them.
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
        final_norm=norm == "pre",  # with "post" each block ends in a norm already
        activation="relu",
        dropout=dropout,
        attention_dropout=dropout,
        init_std=width**-0.5,
    )
