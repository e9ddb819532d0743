"""Encoder-decoder models: the decoder is causal and attends to the encoder's output.

    source -> encoder -> memory -> decoder -> target
                                      ^
                        the target, moved one to the right

(Vaswani et al. 2017, figure 1.) BART and T5 are `EncoderDecoder`s with different `StackConfig`s.
Their heads follow it in this file. In shapes, U is the target's length.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import StackConfig
from course_lib.model.heads import (
    Head,
    Mask,
    Output,
    Segments,
    initialize,
    output_matrix,
    pool,
    to_vocabulary,
)
from course_lib.model.transformer import Transformer
from course_lib.vocab import IGNORE


def encoder_config(config: StackConfig) -> StackConfig:
    """The encoder for a decoder: it attends to both sides, and has no cross-attention."""
    return replace(config, causal=False, cross=False)


def shift_right(
    ids: Int[Tensor, "B U"], start: int, attention_mask: Mask = None
) -> Int[Tensor, "B U"]:
    """The decoder's input for teacher forcing: the start token, then the target without its last.

    Args:
        ids: the target. IGNORE (-100), which labels have at padding, becomes the start token.
        start: id of the token that the decoder begins with.
        attention_mask: the target's real tokens. It is needed if padding is on the left.

    >>> shift_right(torch.tensor([[5, 6, 7]]), start=2).tolist()
    [[2, 5, 6]]
    """
    shifted = ids.roll(1, dims=1)
    shifted[:, 0] = start
    if attention_mask is not None:
        # With left padding, column 0 is not the first real token.
        is_first = attention_mask.bool() & (attention_mask.cumsum(dim=1) == 1)
        shifted = shifted.masked_fill(is_first, start)
    return shifted.masked_fill(shifted == IGNORE, start)


class EncoderDecoder(nn.Module):
    """Two stacks over one table of token vectors.

    Args:
        config: the decoder's configuration.
        encoder: the encoder's configuration; by default `config` without `causal` and `cross`.
        start: id of the token that the decoder begins with (BART: end of sentence; T5: padding).
        one_table: encoder and decoder share one table of token vectors; False: each has its own.

    Raises:
        CourseError: `config` is not a decoder's, or the two differ in their token vectors.
    """

    def __init__(
        self,
        config: StackConfig,
        *,
        encoder: StackConfig | None = None,
        start: int = 0,
        one_table: bool = True,
    ) -> None:
        super().__init__()
        if not (config.causal and config.cross):
            raise CourseError(
                "An encoder-decoder is given its decoder's configuration: causal=True, cross=True."
            )
        if encoder is None:
            encoder = encoder_config(config)
        if encoder.width != config.width or encoder.embed != config.embed:
            raise CourseError(
                "Encoder and decoder share their token vectors; give both the same width and"
                " embedding."
            )
        self.config = config
        self.start = start
        self.encoder = Transformer(encoder)
        self.decoder = Transformer(config)
        self.one_table = one_table
        if one_table:  # Vaswani et al. 2017, section 3.4
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
            decoder_ids: the decoder's input. By default the source, shifted right by one: BART
                classifies a text this way (Lewis et al. 2020, section 3.1).
            attention_mask: the source's real tokens.
            decoder_attention_mask: the real tokens of `decoder_ids`.
            segments: the segment of each source token.
        """
        if decoder_ids is None:
            decoder_ids = shift_right(ids, self.start, attention_mask)
            decoder_attention_mask = attention_mask
        memory = self.encoder(ids, attention_mask=attention_mask, segments=segments)  # B T D
        return self.decoder(
            decoder_ids,
            attention_mask=decoder_attention_mask,
            memory=memory,
            memory_mask=attention_mask,
        )


class Hidden(nn.Module):
    """A stack without a head: it returns hidden states, in an encoder-decoder the decoder's."""

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
        stack: encoder and decoder.
        tied: the table of token vectors is also the output matrix; in T5 1.1 it is not.
        scaled: hidden states are divided by sqrt(D) before the output matrix (T5 1.0).
        bias: a vector that is never trained is added to the logits (BART).
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
        self.head = None if tied else output_matrix(stack, stack.config.width)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"],
        *,
        attention_mask: Mask = None,
        decoder_attention_mask: Mask = None,
        loss_mask: Mask = None,
        output: Output = to_vocabulary,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        """Scores of the next token at each position of the target.

        Args:
            ids: the source.
            decoder_ids: the target, shifted right by one (`shift_right`).
            attention_mask: the source's real tokens.
            decoder_attention_mask: the target's real tokens.
            loss_mask: the positions of the target to predict; by default all of them.
            output: what is computed from the last hidden states and the output matrix: logits by
                default, or at once the loss.
        """
        h = self.stack(
            ids,
            decoder_ids,
            attention_mask=attention_mask,
            decoder_attention_mask=decoder_attention_mask,
        )  # B U D
        if loss_mask is not None:
            h = h[loss_mask]  # N D
        return self.logits(h, output)

    def logits(
        self, h: Float[Tensor, "*N D"], output: Output = to_vocabulary
    ) -> Float[Tensor, "*N V"]:
        """Hidden states of the decoder to logits of the vocabulary."""
        if self.head is None:
            matrix = self.stack.decoder.embed.tokens.weight
        else:
            matrix = self.head.weight
        if self.scaled:
            h = h * self.stack.config.width**-0.5
        # A bfloat16 copy of a model (`bf16_copy`) still has float32 buffers.
        bias = None if self.bias is None else self.bias.to(h.dtype)
        return output(h, matrix, bias)

    def given(self, ids: Int[Tensor, "B T"], attention_mask: Mask = None) -> "Conditioned":
        """A language model of the targets of these sources, for `generate`.

        Args:
            ids: the sources. Each may have several targets, in consecutive rows.
            attention_mask: the sources' real tokens.
        """
        memory = self.stack.encoder(ids, attention_mask=attention_mask)
        return Conditioned(self, memory, attention_mask)


class Conditioned(nn.Module):
    """A `Seq2SeqLM` with encoded sources. It is called like `heads.LM`, with the targets so far.

    Args:
        model: encoder, decoder and output matrix.
        memory: the encoder's output.
        memory_mask: the sources' real tokens.
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
        h = self.stack(ids, memory=self.memory, memory_mask=self.memory_mask, **options)  # B U D
        if loss_mask is not None:
            h = h[loss_mask]  # N D
        return self.model.logits(h)


class Seq2SeqClassifier(Head):
    """One label per text, from the decoder's last token: logits [B, C] (Lewis et al. 2020, 3.1).

    Encoder and decoder both read the text. A dense layer, tanh and a linear layer follow.

    Args:
        stack: encoder and decoder.
        classes: C.
        dropout: before and after the dense layer; by default the rate of the stack.
    """

    def __init__(self, stack: EncoderDecoder, classes: int, dropout: float | None = None) -> None:
        super().__init__(stack)
        self.dropout = nn.Dropout(stack.config.dropout if dropout is None else dropout)
        self.dense = nn.Linear(stack.config.width, stack.config.width)
        self.out = nn.Linear(stack.config.width, classes)
        initialize(stack, self.dense, self.out)

    def predict(self, h: Float[Tensor, "B T D"], attention_mask: Mask) -> Float[Tensor, "B C"]:
        last = pool(h, attention_mask, "last")  # B D
        hidden = torch.tanh(self.dense(self.dropout(last)))
        return self.out(self.dropout(hidden))
