"""Lesson 16: text infilling, the loss of a denoiser, ROUGE-N."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import integers, normal, row_mask
from classroom.checks.exercise import exercise
from course_lib.vocab import IGNORE

Spans = Sequence[tuple[int, int]]


def _moved(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    """Replaced from left to right in the list that has already changed."""
    said = ids.tolist()
    for start, length in spans:
        said[start : start + length] = [mask]
    return ids.new_tensor(said)


@exercise(
    [
        (torch.arange(10, 10 + n), spans, 4)
        for n, spans in (
            (9, [(1, 3), (6, 2)]),
            (7, [(2, 2), (5, 0)]),
            (6, [(0, 1), (3, 0), (4, 2)]),
            (6, [(1, 2), (3, 2)]),
            (5, [(5, 0)]),
            (4, []),
        )
    ],
)
def infill(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    """One `mask` in place of each (start, length) of ids Int[T]; a length of 0 puts one in before
    `start`.

    Spans come from left to right and do not overlap; starts are places of `ids` as it was given.
    """
    said: list[int] = []
    done = 0
    for start, length in spans:
        said += [*ids[done:start].tolist(), mask]
        done = start + length
    return ids.new_tensor([*said, *ids[done:].tolist()])


class _Reader:
    """Looks like an encoder-decoder: each position's logits hang on the source and on what the
    decoder has read up to there.
    """

    def __init__(self, g: Generator, tokens: int) -> None:
        self.table = normal(g, tokens, 5)

    def __repr__(self) -> str:
        return "an encoder-decoder"

    def __call__(self, ids: Tensor, read: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        real = torch.ones_like(ids) if attention_mask is None else attention_mask
        summed = (self.table[ids] * real[..., None]).sum(1, keepdim=True)
        read_so_far = self.table[read].cumsum(1)
        return (summed / real.sum(1)[:, None, None] + read_so_far) @ self.table.T


def _damaged(g: Generator, sources: Sequence[int], targets: Sequence[int]) -> tuple[Any, ...]:
    """A model, a batch with texts of these lengths, and the number of the start token."""
    real = row_mask(*sources)
    ids = 2 + integers(g, 9, *real.shape)
    written = row_mask(*targets)
    labels = 2 + integers(g, 9, *written.shape)
    batch = {
        "ids": ids.masked_fill(~real, 0),
        "attention_mask": real,
        "labels": labels.masked_fill(~written, IGNORE),
    }
    return _Reader(g, 12), batch, 1


@exercise(
    lambda g: [
        _damaged(g, [4, 6], [7, 5]),
        _damaged(g, [5, 2, 3], [3, 8, 6]),
        _damaged(g, [3], [4]),
    ],
)
def denoising_loss(model: Any, batch: Mapping[str, Tensor], start: int) -> Tensor:
    """The mean of -ln p over all tokens of the whole texts.

    batch: `ids` and `attention_mask` [B T] of the corrupted texts, `labels` [B U] of the whole
    ones, -100 in the padding.
    """
    labels = batch["labels"]
    first = torch.full_like(labels[:, :1], start)
    read = torch.cat((first, labels[:, :-1]), dim=1).clamp(min=0)
    logits = model(batch["ids"], read, attention_mask=batch["attention_mask"])
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)


@exercise(
    [
        (said.split(), right.split(), n)
        for said, right, n in (
            ("the cat saw the dog", "the dog saw the old cat", 1),
            ("the cat saw the dog", "the dog saw the old cat", 2),
            ("the the the the", "the lamp and the coin", 1),
            ("Paul sold the lamp", "Paul sold the lamp", 2),
            ("Paul", "Nora sold the coin", 1),
            ("Paul", "Paul sold it", 2),
            ("a b a b c", "a b a b", 3),
        )
    ],
)
def rouge_n(said: Sequence[str], right: Sequence[str], n: int) -> float:
    """The F-measure of the n-grams that two lists of words share, each counted as often as both
    have it.

    0 where they share none or one has none.
    """
    a, b = (
        Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        for words in (said, right)
    )
    common = (a & b).total()
    p, r = common / max(1, a.total()), common / max(1, b.total())
    return 2 * p * r / (p + r) if p + r else 0.0
