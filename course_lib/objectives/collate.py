"""Batches for pretraining: pad rows of token ids to one width, then corrupt them.

A corruption changes a batch of text and says what the model must predict. `masked`, for example,
hides tokens of [CLS] a b c [SEP] and of [CLS] d [SEP], which were padded first:

    ids               [CLS] a [MASK] c [SEP]            [CLS] [MASK] [SEP] [PAD] [PAD]
    labels            -100 -100 b -100 -100             -100 d -100 -100 -100
    attention_mask    True at real tokens, False at padding

Every corruption is a function (ids, attention_mask, rng, vocab) -> batch, and a batch is a dict of
tensors. Each one has its loss: that of `masked` is `losses.mlm` (registry.py lists all). Shapes: B
rows, T tokens in the widest row. `rng` is the random generator, and `vocab` names the special
tokens.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from course_lib.objectives.denoising import (
    BART_NOISES,
    InputTarget,
    noised,
    prefix_lm,
    span_corruption,
)
from course_lib.objectives.losses import Batch
from course_lib.objectives.masking import BERT_PARTS, SpanSampler, mask_tokens
from course_lib.vocab import IGNORE, Vocab

Ints = npt.NDArray[np.integer[Any]]
# The width of a batch is rounded up to a multiple of this. A GPU compiles and caches something for
# each new shape, so few different shapes are faster.
WIDTH_STEP = 16


def pad(
    rows: Sequence[Ints | Sequence[int]],
    value: int,
    *,
    max_width: int | None = None,
    left: bool = False,
    multiple: int = WIDTH_STEP,
) -> dict[str, Tensor]:
    """Pad rows of several lengths to one width.

    >>> pad([[5, 6, 7], [8]], value=0, multiple=1)["ids"].tolist()
    [[5, 6, 7], [8, 0, 0]]

    Args:
        rows: the token ids (or labels) of each row.
        value: the padding, for example `vocab.padding_id`.
        max_width: rounding up stops at this width. A longer row still keeps its length.
        left: put the padding on the left, as generation needs it.
        multiple: the width is rounded up to a multiple of this number.

    Returns:
        `ids` Int[B T], and `attention_mask` Bool[B T], False at the padding.
    """
    lengths = np.array([len(row) for row in rows])
    width = int(width_of(lengths, max_width, multiple).max())
    ids = np.full((len(rows), width), value, dtype=np.int64)
    for line, row in zip(ids, rows, strict=True):
        start = width - len(row) if left else 0
        line[start : start + len(row)] = row
    # A token is real if fewer than `length` tokens lie between it and the row's unpadded side.
    distance = torch.arange(width - 1, -1, -1) if left else torch.arange(width)
    attention_mask = distance < torch.from_numpy(lengths)[:, None]  # B T
    return {"ids": torch.from_numpy(ids), "attention_mask": attention_mask}


def pad_to_longest(
    rows: Sequence[Sequence[int]], value: int, *, left: bool = False
) -> dict[str, Tensor]:
    """`pad` without rounding: the width is the length of the longest row."""
    return pad(rows, value, left=left, multiple=1)


def width_of(lengths: Ints, max_width: int | None = None, multiple: int = WIDTH_STEP) -> Ints:
    """Lengths rounded up to a multiple of a number, but not above `max_width`.

    With multiple 16 and max_width 50, the lengths 3, 40, 60 become 16, 48, 60.
    """
    rounded = -(-lengths // multiple) * multiple  # -(-a // b) is a / b, rounded up
    if max_width is None:
        return rounded
    # A row that is longer than `max_width` keeps its length: nothing is cut here.
    return np.maximum(np.minimum(rounded, max_width), lengths)


def causal(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab | None = None
) -> Batch:
    """GPT: nothing is changed. The model predicts each next token, so it needs no labels."""
    return {"ids": ids, "attention_mask": attention_mask}


def masked(
    ids: Tensor,
    attention_mask: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    rate: float = 0.15,
    parts: tuple[float, float, float] = BERT_PARTS,
    spans: SpanSampler | None = None,
    words: Tensor | None = None,
) -> Batch:
    """BERT: hide some tokens. The model predicts them.

    Args:
        ids: Int[B T].
        attention_mask: Bool[B T].
        rng: random generator.
        vocab: the special tokens.
        rate: share of the tokens to hide.
        parts: of the hidden tokens, the shares that become [MASK], become a random token and stay.
        spans: which tokens are hidden together, such as `masking.ngrams()`; by default single ones.
        words: Int[B T], the number of the word that each token belongs to; needed for whole words.

    Returns:
        `ids`, `attention_mask`, `labels` (the hidden tokens, -100 elsewhere) and `loss_mask`
        Bool[B T], True at the hidden tokens.
    """
    corrupted = mask_tokens(
        ids,
        rng,
        vocab=vocab,
        rate=rate,
        parts=parts,
        spans=spans,
        words=words,
        attention_mask=attention_mask,
    )
    return {**corrupted._asdict(), "attention_mask": attention_mask}


def replaced(
    ids: Tensor,
    attention_mask: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    rate: float = 0.15,
    spans: SpanSampler | None = None,
    words: Tensor | None = None,
) -> Batch:
    """ELECTRA: replace every chosen token by [MASK]. A small model will fill them in.

    The arguments are those of `masked`.
    """
    only_masks = (1.0, 0.0, 0.0)
    return masked(
        ids, attention_mask, rng, vocab=vocab, rate=rate, parts=only_masks, spans=spans, words=words
    )


def denoised(
    ids: Tensor,
    attention_mask: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    noises: Sequence[str] | None = None,
    ends: Collection[int] | None = None,
    rate: float | None = None,
) -> Batch:
    """BART: the encoder reads the corrupted text (`ids`), the decoder writes the text (`labels`).

    Args:
        ids: Int[B T].
        attention_mask: Bool[B T].
        rng: random generator.
        vocab: the special tokens.
        noises: names in `denoising.NOISES`. By default BART's two, sentence permutation and text
            infilling; if no token ends a sentence, text infilling alone.
        ends: ids of the tokens that end a sentence; by default the vocabulary's.
        rate: share of the tokens to mask, delete or infill; by default each noise's own.
    """
    if noises is None:
        noises = BART_NOISES if ends or vocab.ends else ("text infilling",)

    def corrupt(text: Tensor) -> InputTarget:
        noisy = noised(text, rng, vocab=vocab, noises=noises, ends=ends, rate=rate)
        return InputTarget(noisy, text)

    return _each_text(corrupt, ids, attention_mask, vocab)


def permuted_sentences(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab
) -> Batch:
    """BART's sentence permutation alone: the decoder writes the sentences in their own order."""
    noises = ("sentence permutation",)
    return denoised(ids, attention_mask, rng, vocab=vocab, noises=noises)


def span_corrupted(
    ids: Tensor,
    attention_mask: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    sentinels: Sequence[int] | None = None,
    rate: float = 0.15,
    mean: float = 3.0,
) -> Batch:
    """T5: the encoder reads the text without some spans, the decoder writes the spans (`labels`).

    Args:
        ids: Int[B T].
        attention_mask: Bool[B T].
        rng: random generator.
        vocab: the special tokens.
        sentinels: ids of the tokens that mark the spans; by default the vocabulary's.
        rate: share of the tokens to replace.
        mean: mean length of a span.
    """

    def corrupt(text: Tensor) -> InputTarget:
        return span_corruption(text, rng, vocab=vocab, sentinels=sentinels, rate=rate, mean=mean)

    return _each_text(corrupt, ids, attention_mask, vocab)


def prefixed(ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab) -> Batch:
    """Cut each text in two: the encoder reads the first part, the decoder writes the second."""

    def corrupt(text: Tensor) -> InputTarget:
        return prefix_lm(text, rng, vocab=vocab)

    return _each_text(corrupt, ids, attention_mask, vocab)


def joined(batch: Batch, *, vocab: Vocab, max_width: int | None = None) -> Batch:
    """Turn the batch of an encoder-decoder into one for a decoder alone: source, then target.

    The source a b with the target c d becomes (the labels are the next tokens of the target)

        ids       a    b  c
        labels    -100 c  d

    Args:
        batch: `ids` and `attention_mask` of the sources, `labels` of the targets.
        vocab: the special tokens.
        max_width: rounding up to `WIDTH_STEP` stops at this width.

    Returns:
        `ids` Int[B T], `attention_mask`, `labels`, and `prefix` Int[B], the length of each source.
    """
    pairs = []
    lengths = []
    sources = _texts(batch["ids"], batch["attention_mask"])
    for source, labels in zip(sources, batch["labels"], strict=True):
        target = labels[labels != IGNORE]
        # The source's last token predicts the target's first.
        nothing = torch.full((len(source) - 1,), IGNORE)
        pairs.append(InputTarget(torch.cat([source, target[:-1]]), torch.cat([nothing, target])))
        lengths.append(len(source))
    return {**_padded(pairs, vocab, max_width), "prefix": torch.tensor(lengths)}


def _each_text(
    corrupt: Callable[[Tensor], InputTarget], ids: Tensor, attention_mask: Tensor, vocab: Vocab
) -> Batch:
    """Corrupt each row without its padding, then pad the inputs and the targets."""
    pairs = [corrupt(text) for text in _texts(ids, attention_mask)]
    return _padded(pairs, vocab, max_width=ids.shape[1])


def _texts(ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
    """The rows without their padding."""
    return [row[real] for row, real in zip(ids, attention_mask.bool(), strict=True)]


def _padded(pairs: Iterable[InputTarget], vocab: Vocab, max_width: int | None) -> dict[str, Tensor]:
    inputs = [pair.input.tolist() for pair in pairs]
    targets = [pair.target.tolist() for pair in pairs]
    labels = pad(targets, IGNORE, max_width=max_width)["ids"]
    return {**pad(inputs, vocab.padding_id, max_width=max_width), "labels": labels}
