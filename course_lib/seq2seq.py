"""Encoder-decoder models: two stacks, the second causal and attending to the first (Vaswani et al. 2017, figure 1).

    a source -> encoder -> memory -> decoder, fed with the target moved one to the right -> the target

BART and T5 are `EncoderDecoder` with different `StackConfig`s; the heads on top are below. U is the target's length.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.config import StackConfig
from course_lib.corrupt import IGNORE
from course_lib.errors import CourseError
from course_lib.heads import pool
from course_lib.stack import Stack


def encoder_config(config: StackConfig) -> StackConfig:
    """The encoder that belongs to a decoder: it sees both sides and has no memory to attend to."""
    return replace(config, causal=False, cross=False)


def shift_right(ids: Int[Tensor, "B U"], start: int, keep: Bool[Tensor, "B U"] | None = None) -> Int[Tensor, "B U"]:
    """What the decoder reads when it should say `ids`: the start token, then all but the last (teacher forcing).

    Args:
        ids: token ids; -100 (no target) becomes the start token, which carries no loss there.
        start: the token that every target begins with. keep: real tokens, so that left padding stays to the left.

    >>> shift_right(torch.tensor([[5, 6, 7]]), start=2).tolist()
    [[2, 5, 6]]
    """
    shifted = ids.roll(1, dims=1)
    shifted[:, 0] = start
    if keep is not None:
        shifted = shifted.masked_fill(keep.bool() & (keep.cumsum(dim=1) == 1), start)
    return shifted.masked_fill(shifted == IGNORE, start)


class EncoderDecoder(nn.Module):
    """Two stacks of one configuration over one table of token vectors.

    Args:
        config: the decoder's (`causal` and `cross`); the encoder is the same without both.
        start: the token that the decoder begins with (BART: end of sentence; T5: padding).

    Raises:
        CourseError: a configuration that is no decoder's.
    """

    def __init__(self, config: StackConfig, *, start: int = 0) -> None:
        super().__init__()
        if not (config.causal and config.cross):
            raise CourseError("An encoder-decoder is given its decoder's configuration: causal=True, cross=True.")
        if not 0 <= start < config.embed.vocab:
            raise CourseError(f"The start token {start} lies outside the vocabulary of {config.embed.vocab}.")
        self.config, self.start = config, start
        self.encoder = Stack(encoder_config(config))
        self.decoder = Stack(config)
        self.decoder.embed.tokens = self.encoder.embed.tokens

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"] | None = None,
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        decoder_keep: Bool[Tensor, "B U"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B U D"]:
        """The decoder's hidden states.

        Args:
            ids, keep: the source and its real tokens. segments: as `Stack` has them.
            decoder_ids, decoder_keep: what the decoder reads; without them the source itself, moved one to the right,
                as BART reads a text to judge it (Lewis et al. 2020, section 3.1).
        """
        if decoder_ids is None:
            decoder_ids, decoder_keep = shift_right(ids, self.start, keep), keep
        memory, memory_keep = self.read(ids, keep=keep, segments=segments)
        h: Tensor = self.decoder(decoder_ids, keep=decoder_keep, memory=memory, memory_mask=memory_keep)
        return h

    def read(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"] | None]:
        """What the decoder attends to, and which of it is real. M is T, or more where a soft prompt stands in front."""
        memory = self.encoder(ids, keep=keep, segments=segments)
        front = memory.shape[1] - ids.shape[1]
        return memory, None if keep is None else nn.functional.pad(keep.bool(), (front, 0), value=True)


class Hidden(nn.Module):
    """No head: the hidden states of a stack, or of an encoder-decoder's decoder."""

    def __init__(self, stack: Stack | EncoderDecoder) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, ids: Int[Tensor, "B T"], *more: Tensor, **options: Tensor | None) -> Float[Tensor, "B U D"]:
        h: Tensor = self.stack(ids, *more, **options)
        return h


class Seq2SeqLM(nn.Module):
    """Logits of the target's tokens.

    tied: the token vectors are the output matrix; otherwise one of its own (T5 1.1). scaled: hidden states are divided
    by sqrt(D) before it (T5 1.0, whose token vectors are large). bias: a constant added to the logits, never trained
    (BART's `final_logits_bias`).
    """

    bias: Tensor | None

    def __init__(self, stack: EncoderDecoder, *, tied: bool = True, scaled: bool = False, bias: bool = False) -> None:
        super().__init__()
        width, vocab = stack.config.width, stack.config.embed.vocab
        self.stack, self.scaled = stack, scaled
        self.head = None if tied else nn.Linear(width, vocab, bias=False)
        self.register_buffer("bias", torch.zeros(vocab) if bias else None)
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=stack.config.init_std)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        decoder_keep: Bool[Tensor, "B U"] | None = None,
        at: Bool[Tensor, "B U"] | None = None,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        """`decoder_ids`: the target moved one to the right (`shift_right`). `at`: logits of those positions only."""
        h = self.stack(ids, decoder_ids, keep=keep, decoder_keep=decoder_keep)
        return self.logits(h if at is None else h[at])

    def logits(self, h: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Hidden states of the decoder to scores of the vocabulary."""
        matrix = self.stack.decoder.embed.tokens.weight if self.head is None else self.head.weight
        h = h * self.stack.config.width**-0.5 if self.scaled else h
        bias = None if self.bias is None else self.bias.to(h.dtype)  # `bf16_copy` leaves buffers as they are
        return nn.functional.linear(h, matrix, bias)

    def given(self, ids: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None, copies: int = 1) -> "Conditioned":
        """The language model of the targets of these sources, `copies` rows each: what `generate` continues."""
        memory, keep = self.stack.read(ids, keep=keep)
        keep = None if keep is None else keep.repeat_interleave(copies, dim=0)
        return Conditioned(self, memory.repeat_interleave(copies, dim=0), keep)


class Conditioned(nn.Module):
    """A `Seq2SeqLM` whose sources have been read: called as `heads.LM` is, with the targets so far."""

    def __init__(
        self, model: Seq2SeqLM, memory: Float[Tensor, "B T D"], memory_keep: Bool[Tensor, "B T"] | None
    ) -> None:
        super().__init__()
        self.model, self.memory, self.memory_keep = model, memory, memory_keep
        self.stack = model.stack.decoder

    def forward(
        self,
        ids: Int[Tensor, "B U"],
        *,
        keep: Bool[Tensor, "B Uk"] | None = None,
        cache: KVCache | None = None,
        at: Bool[Tensor, "B U"] | None = None,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        h = self.stack(ids, keep=keep, cache=cache, memory=self.memory, memory_mask=self.memory_keep)
        return self.model.logits(h if at is None else h[at])


class Seq2SeqClassifier(nn.Module):
    """One label a text, read from the decoder's last token after it has seen all (Lewis et al. 2020, section 3.1).

    Encoder and decoder are both fed with the text; tanh(dense) and a projection follow: logits [B, C].
    """

    def __init__(self, stack: EncoderDecoder, classes: int) -> None:
        super().__init__()
        width = stack.config.width
        self.stack = stack
        self.dropout = nn.Dropout(stack.config.dropout)
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=stack.config.init_std)
            nn.init.zeros_(linear.bias)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B C"]:
        last = pool(self.stack(ids, keep=keep, segments=segments), keep, "last")
        logits: Tensor = self.out(self.dropout(torch.tanh(self.dense(self.dropout(last)))))
        return logits


class Seq2SeqSpan(nn.Module):
    """Where the answer starts and ends, two logits for each position of the decoder: ([B, T], [B, T])."""

    def __init__(self, stack: EncoderDecoder) -> None:
        super().__init__()
        self.stack = stack
        self.out = nn.Linear(stack.config.width, 2)
        nn.init.normal_(self.out.weight, std=stack.config.init_std)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        start, end = self.out(self.stack(ids, keep=keep, segments=segments)).unbind(-1)
        return start, end
