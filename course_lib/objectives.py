"""From padded texts to what an objective reads: functions (ids, keep, rng, vocab=...) -> batch.

    objective         loss                               models
    masked            losses.mlm                         BERT, RoBERTa, SpanBERT; ELECTRA with parts=(1, 0, 0)
    denoised          losses.seq2seq                     BART
    span_corrupted    losses.seq2seq                     T5
    prefixed          losses.seq2seq                     T5's language modelling in an encoder-decoder
    joined(batch)     losses.prefix_lm, losses.clm       the same two in a decoder alone

ids Int[B T] and keep Bool[B T] are rows of text with their special tokens, as `data.batches.pad` makes them; they stay
as they are. What each corruption does is in `corrupt`, for one text.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from course_lib import corrupt
from course_lib.corrupt import IGNORE, InputTarget
from course_lib.data.batches import Batch, pad
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.tokenizers import Vocab

Unit = Literal["token", "word", "span"]


def masked(
    ids: Tensor,
    keep: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    unit: Unit = "token",
    words: Tensor | None = None,
    rate: float = 0.15,
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> Batch:
    """Masked tokens, whole words or spans: ids, labels, at, keep.

    Args:
        unit: what is chosen. words: Int[B T], as `Tokenizer.words` numbers them; for "word", and for spans of words.
        rate, parts: as `corrupt.mask_tokens` has them.

    Raises:
        CourseError: no such unit, or whole words without `words`.
    """
    if unit not in ("token", "word", "span"):
        raise CourseError(f"There is no unit {unit!r} to mask; there are token, word and span.")
    if unit == "word" and words is None:
        raise CourseError("Whole words are masked only if `words` says which tokens make one (Tokenizer.words).")
    mask = corrupt.mask_spans if unit == "span" else corrupt.mask_tokens
    words = None if unit == "token" else words
    hidden = mask(ids, rng, vocab=vocab, rate=rate, parts=parts, words=words, keep=keep)
    return {**hidden._asdict(), "keep": keep}


def denoised(
    ids: Tensor,
    keep: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    noises: Sequence[str] = ("sentence permutation", "text infilling"),
    ends: Collection[int] = (),
    rate: float | None = None,
) -> Batch:
    """BART: the noised text as source (ids, keep), the text itself as target (labels). Arguments: `corrupt.noised`."""
    texts = _texts(ids, keep)
    noised = [corrupt.noised(text, rng, vocab=vocab, noises=noises, ends=ends, rate=rate) for text in texts]
    return _batch([InputTarget(*pair) for pair in zip(noised, texts, strict=True)], vocab, ids.shape[1])


def span_corrupted(
    ids: Tensor,
    keep: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    sentinels: Sequence[int],
    rate: float = 0.15,
    mean: float = 3.0,
) -> Batch:
    """T5: ids and keep of the inputs, labels the targets. Arguments: `corrupt.span_corruption`."""
    pairs = [
        corrupt.span_corruption(text, rng, vocab=vocab, sentinels=sentinels, rate=rate, mean=mean)
        for text in _texts(ids, keep)
    ]
    return _batch(pairs, vocab, ids.shape[1])


def prefixed(ids: Tensor, keep: Tensor, rng: torch.Generator, *, vocab: "Vocab") -> Batch:
    """Each text cut in two: ids and keep of the first parts, labels the second ones (`corrupt.prefix_lm`)."""
    pairs = [corrupt.prefix_lm(text, rng, vocab=vocab) for text in _texts(ids, keep)]
    return _batch(pairs, vocab, ids.shape[1])


def joined(batch: Batch, *, vocab: "Vocab", most: int | None = None) -> Batch:
    """Sources and targets for a decoder alone: each target behind its source, the loss on the targets.

    Args:
        batch: as the functions above make it. most: widths are not rounded up past this, a model's last position.

    Returns:
        ids Int[B T], keep, labels (the next token where it is the target's, -100 elsewhere), prefix Int[B] (length of
        the source).
    """
    rows, labels, lengths = [], [], []
    for source, target in zip(_texts(batch["ids"], batch["keep"]), batch["labels"], strict=True):
        said = target[target != IGNORE]
        rows.append(torch.cat([source, said[:-1]]))
        labels.append(torch.cat([torch.full((len(source) - 1,), IGNORE), said]))
        lengths.append(len(source))
    targets = pad([row.tolist() for row in labels], IGNORE, most=most)["ids"]
    ids = pad([row.tolist() for row in rows], vocab.pad or 0, most=most)
    return ids | {"labels": targets, "prefix": torch.tensor(lengths)}


def _texts(ids: Tensor, keep: Tensor) -> list[Tensor]:
    return [row[real] for row, real in zip(ids, keep.bool(), strict=True)]


def _batch(pairs: Sequence[InputTarget], vocab: "Vocab", most: int) -> Batch:
    sources = pad([pair.input.tolist() for pair in pairs], vocab.pad or 0, most=most)
    return sources | {"labels": pad([pair.target.tolist() for pair in pairs], IGNORE, most=most)["ids"]}
