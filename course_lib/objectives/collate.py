"""Texts as an objective reads them: rows as one tensor, and functions (ids, attention_mask, rng,
vocab=...) -> batch.

    objective         loss                               models
    masked            losses.mlm                         BERT, RoBERTa, SpanBERT
    replaced          losses.electra                     ELECTRA
    denoised          losses.seq2seq                     BART
    span_corrupted    losses.seq2seq                     T5
    prefixed          losses.seq2seq                     T5's language modelling in an encoder-decoder
    joined(batch)     losses.prefix_lm, losses.clm       the last two in a decoder alone

ids Int[B T] and attention_mask Bool[B T] are rows of text with their special tokens, as `pad` makes
them."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from course_lib import objectives
from course_lib.errors import CourseError
from course_lib.objectives.losses import Batch
from course_lib.vocab import IGNORE, Vocab

Ints = npt.NDArray[np.integer[Any]]
Unit = Literal["token", "word", "span"]
# widths are its multiples: few shapes, each of which costs kernels and memory, and batches that mix
WIDTH_STEP = 16


def pad(
    rows: Sequence[Ints | Sequence[int]],
    value: int,
    *,
    most: int | None = None,
    left: bool = False,
    step: int = WIDTH_STEP,
) -> dict[str, Tensor]:
    """Rows of several lengths to `ids` Int[B T], filled up with `value`, and `attention_mask`
    Bool[B T]. T is the longest row's length, rounded up to a multiple of `step`, but not past
    `most`. left: pad on the left."""
    lengths = np.array([len(row) for row in rows])
    width = int(width_of(lengths, most, step).max())
    ids = np.full((len(rows), width), value, dtype=np.int64)
    for line, row in zip(ids, rows, strict=True):
        start = width - len(row) if left else 0
        line[start : start + len(row)] = row
    places = torch.arange(width - 1, -1, -1) if left else torch.arange(width)
    return {
        "ids": torch.from_numpy(ids),
        "attention_mask": places < torch.from_numpy(lengths)[:, None],
    }


def pad_to_longest(
    rows: Sequence[Sequence[int]], value: int, *, left: bool = False
) -> dict[str, Tensor]:
    """`pad` to the longest row's own length."""
    return pad(rows, value, left=left, step=1)


def width_of(lengths: Ints, most: int | None = None, step: int = WIDTH_STEP) -> Ints:
    """Lengths rounded up to multiples of `step`, but not past `most`, if they are not longer
    themselves.
    """
    rounded = -(-lengths // step) * step
    return rounded if most is None else np.maximum(np.minimum(rounded, most), lengths)


def masked(
    ids: Tensor,
    attention_mask: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    unit: Unit = "token",
    words: Tensor | None = None,
    **how: Any,
) -> Batch:
    """Masked tokens, whole words or spans: ids, labels, loss_mask, attention_mask. words: Int[B T],
    as `Tokenizer.words` numbers them, for "word" and spans of words. how: `rate` and `parts` of
    `objectives.mask_tokens`."""
    if unit not in ("token", "word", "span"):
        raise CourseError(f"There is no unit {unit!r} to mask; there are token, word and span.")
    if unit == "word" and words is None:
        raise CourseError(
            "Whole words are masked only if `words` says which tokens make one (Tokenizer.words)."
        )
    words = None if unit == "token" else words
    how |= {"attention_mask": attention_mask, "words": words, "spans": unit == "span"}
    return {
        **objectives.mask_tokens(ids, rng, vocab=vocab, **how)._asdict(),
        "attention_mask": attention_mask,
    }


def replaced(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15
) -> Batch:
    """ELECTRA: every chosen token becomes [MASK], which the generator fills in."""
    return masked(ids, attention_mask, rng, vocab=vocab, rate=rate, parts=(1.0, 0.0, 0.0))


def unchanged(ids: Tensor, attention_mask: Tensor, rng: torch.Generator) -> Batch:
    """Nothing is hidden: ids and attention_mask, for `losses.clm`."""
    return {"ids": ids, "attention_mask": attention_mask}


def denoised(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab, **how: Any
) -> Batch:
    """BART: source (ids, attention_mask) the noised text, target (labels) the text itself. how: of
    `objectives.noised`."""
    made = [
        (objectives.noised(text, rng, vocab=vocab, **how), text)
        for text in _texts(ids, attention_mask)
    ]
    return _batch(made, vocab, ids.shape[1])


def span_corrupted(
    ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab, **how: Any
) -> Batch:
    """T5: ids and attention_mask of the inputs, labels the targets. how: of
    `objectives.span_corruption`.
    """
    made = [
        objectives.span_corruption(text, rng, vocab=vocab, **how)
        for text in _texts(ids, attention_mask)
    ]
    return _batch(made, vocab, ids.shape[1])


def prefixed(ids: Tensor, attention_mask: Tensor, rng: torch.Generator, *, vocab: Vocab) -> Batch:
    """Each text cut in two: ids and attention_mask of the first parts, labels the second
    (`objectives.prefix_lm`).
    """
    made = [objectives.prefix_lm(text, rng, vocab=vocab) for text in _texts(ids, attention_mask)]
    return _batch(made, vocab, ids.shape[1])


def joined(batch: Batch, *, vocab: Vocab, most: int | None = None) -> Batch:
    """Sources and targets for a decoder alone, each target behind its source: ids Int[B T],
    attention_mask, labels (the next token where it is the target's, -100 elsewhere), prefix Int[B]
    (length of the source)."""
    rows, labels, lengths = [], [], []
    for source, target in zip(
        _texts(batch["ids"], batch["attention_mask"]), batch["labels"], strict=True
    ):
        said = target[target != IGNORE]
        rows.append(torch.cat([source, said[:-1]]))
        labels.append(torch.cat([torch.full((len(source) - 1,), IGNORE), said]))
        lengths.append(len(source))
    return _batch(zip(rows, labels, strict=True), vocab, most) | {"prefix": torch.tensor(lengths)}


def _texts(ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
    return [row[real] for row, real in zip(ids, attention_mask.bool(), strict=True)]


def _batch(
    pairs: Iterable[tuple[Tensor, Tensor]], vocab: Vocab, most: int | None
) -> dict[str, Tensor]:
    sources, targets = zip(*pairs, strict=True)
    labels = pad([row.tolist() for row in targets], IGNORE, most=most)["ids"]
    return pad([row.tolist() for row in sources], vocab.pad or 0, most=most) | {"labels": labels}
