"""Rows of text as tensors, and each objective's corruption of them.

A corruption is a function (ids, attention_mask, rng) -> batch. ids Int[B T] and attention_mask
Bool[B T] are rows of text with their special tokens, as `pad` makes them. `registry` says which
loss belongs to which corruption.
"""

from collections.abc import Callable, Iterable, Sequence
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
# Widths are rounded up to multiples of it. Each new shape costs compiled kernels and cached memory,
# so there should be few shapes.
WIDTH_STEP = 16


def pad(
    rows: Sequence[Ints | Sequence[int]],
    value: int,
    *,
    most: int | None = None,
    left: bool = False,
    step: int = WIDTH_STEP,
) -> dict[str, Tensor]:
    """Pad rows of several lengths to one width.

    Args:
        rows: token ids (or labels) of each row.
        value: what the rows are filled up with.
        most: the largest width that rounding up may give.
        left: pad on the left.
        step: the longest row's length is rounded up to a multiple of it.

    Returns:
        `ids` Int[B T], and `attention_mask` Bool[B T], False at the padding.
    """
    lengths = np.array([len(row) for row in rows])
    width = int(width_of(lengths, most, step).max())
    ids = np.full((len(rows), width), value, dtype=np.int64)
    for line, row in zip(ids, rows, strict=True):
        start = width - len(row) if left else 0
        line[start : start + len(row)] = row
    # With padding on the left, positions are counted from the end of the row.
    positions = torch.arange(width - 1, -1, -1) if left else torch.arange(width)
    attention_mask = positions < torch.from_numpy(lengths)[:, None]
    return {"ids": torch.from_numpy(ids), "attention_mask": attention_mask}


def pad_to_longest(
    rows: Sequence[Sequence[int]], value: int, *, left: bool = False
) -> dict[str, Tensor]:
    """`pad` to the longest row's own length."""
    return pad(rows, value, left=left, step=1)


def width_of(lengths: Ints, most: int | None = None, step: int = WIDTH_STEP) -> Ints:
    """Lengths rounded up to multiples of `step`, but not past `most`.

    A length above `most` stays as it is.
    """
    rounded = -(-lengths // step) * step  # -(-a // b) is a / b, rounded up
    if most is None:
        return rounded
    return np.maximum(np.minimum(rounded, most), lengths)


def causal(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab | None = None
) -> Batch:
    """Nothing is hidden; the loss asks for every next token."""
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
    """BERT: some tokens are hidden. Adds `labels` and `loss_mask`; options as `mask_tokens` has."""
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
    """ELECTRA: every chosen token becomes [MASK], which the generator fills in."""
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
    **options: Any,
) -> Batch:
    """BART: the source (ids, attention_mask) is the noised text, the target (labels) the text.

    Args:
        ids: Int[B T].
        attention_mask: Bool[B T].
        rng: of the draws.
        vocab: names the special tokens.
        noises: names of `denoising.NOISES`; by default BART's two. Where no token ends a sentence,
            sentences cannot be permuted, and the default is text infilling alone.
        options: of `denoising.noised`.
    """
    if noises is None:
        noises = BART_NOISES if options.get("ends") or vocab.ends else ("text infilling",)

    def corrupt(text: Tensor) -> InputTarget:
        return InputTarget(noised(text, rng, vocab=vocab, noises=noises, **options), text)

    return _each_text(corrupt, ids, attention_mask, vocab)


def permuted_sentences(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab
) -> Batch:
    """BART's sentence permutation alone: the target is the text in its own order."""
    noises = ("sentence permutation",)
    return denoised(ids, attention_mask, rng, vocab=vocab, noises=noises)


def span_corrupted(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab, **options: Any
) -> Batch:
    """T5: ids and attention_mask of the inputs, labels the targets.

    options: of `denoising.span_corruption`.
    """

    def corrupt(text: Tensor) -> InputTarget:
        return span_corruption(text, rng, vocab=vocab, **options)

    return _each_text(corrupt, ids, attention_mask, vocab)


def prefixed(ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab) -> Batch:
    """Each text cut in two: the first part is the source, the second the target (`labels`)."""

    def corrupt(text: Tensor) -> InputTarget:
        return prefix_lm(text, rng, vocab=vocab)

    return _each_text(corrupt, ids, attention_mask, vocab)


def joined(batch: Batch, *, vocab: Vocab, most: int | None = None) -> Batch:
    """Sources and targets for a decoder alone: each target follows its source.

    Returns:
        ids Int[B T]; attention_mask; labels, the next token where it is the target's, -100
        elsewhere; prefix Int[B], the length of each source.
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
    return {**_padded(pairs, vocab, most), "prefix": torch.tensor(lengths)}


def _each_text(
    corrupt: Callable[[Tensor], InputTarget], ids: Tensor, attention_mask: Tensor, vocab: Vocab
) -> Batch:
    """Corrupt each row without its padding, then pad inputs and targets, to the rows' width."""
    pairs = [corrupt(text) for text in _texts(ids, attention_mask)]
    return _padded(pairs, vocab, most=ids.shape[1])


def _texts(ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
    """The rows without their padding."""
    return [row[real] for row, real in zip(ids, attention_mask.bool(), strict=True)]


def _padded(pairs: Iterable[InputTarget], vocab: Vocab, most: int | None) -> dict[str, Tensor]:
    """A batch of sources (ids, attention_mask) and targets (labels)."""
    inputs = [pair.input.tolist() for pair in pairs]
    targets = [pair.target.tolist() for pair in pairs]
    labels = pad(targets, IGNORE, most=most)["ids"]
    return {**pad(inputs, vocab.pad or 0, most=most), "labels": labels}
