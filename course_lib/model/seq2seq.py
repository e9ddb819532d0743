"""Encoder-decoder models: two stacks, the second causal and attending to the first (Vaswani et al.
2017, figure 1).

    source -> encoder -> memory -> decoder -> target
                                      ^
                        the target, moved one to the right

BART and T5 are `EncoderDecoder` with different `StackConfig`s; the heads on top are below. U is the
target's length.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import StackConfig
from course_lib.model.heads import Head, Mask, Segments, init, pool
from course_lib.model.transformer import Transformer
from course_lib.vocab import IGNORE


def encoder_config(config: StackConfig) -> StackConfig:
    """The encoder that belongs to a decoder: it sees both sides and has no memory to attend to."""
    return replace(config, causal=False, cross=False)


def shift_right(
    ids: Int[Tensor, "B U"], start: int, attention_mask: Mask = None
) -> Int[Tensor, "B U"]:
    """What the decoder reads when it should write `ids`: the start token, then all but the last
    (teacher forcing). -100 (no target) becomes the start token.

    Args:
        ids: the target.
        start: the token that the decoder begins with.
        attention_mask: the target's real tokens, so that left padding stays to the left.

    >>> shift_right(torch.tensor([[5, 6, 7]]), start=2).tolist()
    [[2, 5, 6]]
    """
    shifted = ids.roll(1, dims=1)
    shifted[:, 0] = start
    if attention_mask is not None:
        is_first = attention_mask.bool() & (attention_mask.cumsum(dim=1) == 1)
        shifted = shifted.masked_fill(is_first, start)
    return shifted.masked_fill(shifted == IGNORE, start)


class EncoderDecoder(nn.Module):
    """Two stacks over one table of token vectors.

    Args:
        config: the decoder's.
        encoder: by default the same without `causal` and `cross`.
        start: the token that the decoder begins with (BART: end of sentence; T5: padding).
    """

    def __init__(
        self, config: StackConfig, *, encoder: StackConfig | None = None, start: int = 0
    ) -> None:
        super().__init__()
        if not (config.causal and config.cross):
            raise CourseError(
                "An encoder-decoder is given its decoder's configuration: causal=True, cross=True."
            )
        if encoder is not None and (encoder.width, encoder.embed) != (config.width, config.embed):
            raise CourseError(
                "Encoder and decoder share their token vectors; give both the same width and"
                " embedding."
            )
        self.config = config
        self.start = start
        self.encoder = Transformer(encoder or encoder_config(config))
        self.decoder = Transformer(config)
        self.decoder.embed.tokens = self.encoder.embed.tokens

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"] | None = None,
        *,
        attention_mask: Mask = None,
        decoder_attention_mask: Mask = None,
        segments: Segments = None,
    ) -> Float[Tensor, "B U D"]:
        """The decoder's hidden states.

        Args:
            ids: the source.
            decoder_ids: what the decoder reads. By default the source itself, moved one to the
                right, as BART reads a text to judge it (Lewis et al. 2020, section 3.1).
            attention_mask: the source's real tokens.
            decoder_attention_mask: the decoder's.
            segments: the source's.
        """
        if decoder_ids is None:
            decoder_ids = shift_right(ids, self.start, attention_mask)
            decoder_attention_mask = attention_mask
        memory = self.encoder(ids, attention_mask=attention_mask, segments=segments)
        return self.decoder(
            decoder_ids,
            attention_mask=decoder_attention_mask,
            memory=memory,
            memory_mask=attention_mask,
        )


class Hidden(nn.Module):
    """No head: the hidden states of a stack, or of an encoder-decoder's decoder."""

    def __init__(self, stack: Transformer | EncoderDecoder) -> None:
        super().__init__()
        self.stack = stack

    def forward(
        self, ids: Int[Tensor, "B T"], *more: Tensor, **options: Tensor | None
    ) -> Float[Tensor, "B U D"]:
        return self.stack(ids, *more, **options)


class Seq2SeqLM(nn.Module):
    """Logits of the target's tokens.

    Args:
        stack: the two stacks.
        tied: the token vectors are the output matrix; otherwise it has one of its own (T5 1.1).
        scaled: hidden states are divided by sqrt(D) before it (T5 1.0).
        bias: a constant added to the logits, never trained (BART's `final_logits_bias`).
    """

    bias: Tensor | None

    def __init__(
        self, stack: EncoderDecoder, *, tied: bool = True, scaled: bool = False, bias: bool = False
    ) -> None:
        super().__init__()
        vocab = stack.config.embed.vocab
        self.stack = stack
        self.scaled = scaled
        self.register_buffer("bias", torch.zeros(vocab) if bias else None)
        self.head = None
        if not tied:
            self.head = nn.Linear(stack.config.width, vocab, bias=False)
            init(stack, self.head)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"],
        *,
        attention_mask: Mask = None,
        decoder_attention_mask: Mask = None,
        loss_mask: Mask = None,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        """Scores of the next token at each position of the target.

        Args:
            ids: the source.
            decoder_ids: the target moved one to the right (`shift_right`).
            attention_mask: the source's real tokens.
            decoder_attention_mask: the target's.
            loss_mask: as in `heads`.
        """
        h = self.stack(
            ids,
            decoder_ids,
            attention_mask=attention_mask,
            decoder_attention_mask=decoder_attention_mask,
        )
        return self.logits(h if loss_mask is None else h[loss_mask])

    def logits(self, h: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Hidden states of the decoder to scores of the vocabulary."""
        if self.head is None:
            matrix = self.stack.decoder.embed.tokens.weight
        else:
            matrix = self.head.weight
        if self.scaled:
            h = h * self.stack.config.width**-0.5
        # `bf16_copy` leaves buffers as they are.
        bias = None if self.bias is None else self.bias.to(h.dtype)
        return nn.functional.linear(h, matrix, bias)

    def given(self, ids: Int[Tensor, "B T"], attention_mask: Mask = None) -> "Conditioned":
        """The language model of the targets of these sources, one row or several each: what
        `generate` continues.
        """
        memory = self.stack.encoder(ids, attention_mask=attention_mask)
        return Conditioned(self, memory, attention_mask)


class Conditioned(nn.Module):
    """A `Seq2SeqLM` whose sources have been read: called as `heads.LM` is, with the targets so
    far.
    """

    def __init__(self, model: Seq2SeqLM, memory: Float[Tensor, "B T D"], memory_mask: Mask) -> None:
        super().__init__()
        self.model = model
        self.memory = memory
        self.memory_mask = memory_mask
        self.stack = model.stack.decoder

    def forward(
        self, ids: Int[Tensor, "B U"], *, loss_mask: Mask = None, **options: Any
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        h = self.stack(ids, memory=self.memory, memory_mask=self.memory_mask, **options)
        return self.model.logits(h if loss_mask is None else h[loss_mask])


class Seq2SeqClassifier(Head):
    """One label a text, read from the decoder's last token (Lewis et al. 2020, section 3.1).

    Encoder and decoder both read the text; tanh(dense) and a projection follow. Logits [B, C].
    """

    def __init__(self, stack: EncoderDecoder, classes: int) -> None:
        super().__init__(stack)
        self.dropout = nn.Dropout(stack.config.dropout)
        self.dense = nn.Linear(stack.config.width, stack.config.width)
        self.out = nn.Linear(stack.config.width, classes)
        init(stack, self.dense, self.out)

    def answer(self, h: Float[Tensor, "B T D"], attention_mask: Mask) -> Float[Tensor, "B C"]:
        last = pool(h, attention_mask, "last")  # B D
        hidden = torch.tanh(self.dense(self.dropout(last)))
        return self.out(self.dropout(hidden))
