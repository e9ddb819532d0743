"""Lesson 10: labels of words on pieces, a batch of pairs, answers as spans."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from classroom.checks.base import listed, normal
from classroom.checks.exercise import exercise


@exercise(
    [
        ([([11, 12, 13], [21]), ([31], [41, 42])], 2, 3, 0),
        ([([11], [21, 22]), ([31, 32, 33, 34], [41, 42, 43]), ([51], [61])], 101, 102, 9),
    ],
)
def pair_batch(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], cls: int, sep: int, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(ids Int[B T], segments Int[B T], attention_mask Bool[B T]) of [CLS] a [SEP] b [SEP].

    pairs: list of (a, b), lists of token ids. Padding at the right: id pad, segment 0,
    attention_mask False."""
    rows = [([cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1)) for a, b in pairs]
    width = max(len(row) for row, _ in rows)

    def right(row: list[int], value: int) -> list[int]:
        return row + [value] * (width - len(row))

    ids = torch.tensor([right(row, pad) for row, _ in rows])
    segments = torch.tensor([right(parts, 0) for _, parts in rows])
    attention_mask = torch.tensor([[i < len(row) for i in range(width)] for row, _ in rows])
    return ids, segments, attention_mask


@exercise(
    [
        ([None, 0, 1, 1, 1, 2, None], [3, 5, 4]),
        ([None, 0, 0, 1, 2, 3, 3, None, None], [1, 0, 2, 6]),
        ([None, 0, 1, None], [7, 2, 4]),  # the third word was cut off
    ],
    form=listed,
)
def align_labels(words: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """The list with the label of each token, at the first piece of each word, -100 elsewhere.

    words: for each token the number of its word, None at [CLS] and [SEP]. labels: one a word.
    """
    return [
        -100 if word is None or word in words[:place] else labels[word]
        for place, word in enumerate(words)
    ]


def _read(g: Generator, b: int, t: int, padding: int) -> tuple[Tensor, Tensor]:
    attention_mask = torch.ones(b, t, dtype=torch.bool)
    attention_mask[0, t - padding :] = False
    return 2 * normal(g, b, t, 2), attention_mask


@exercise(lambda g: [_read(g, 2, 5, 2), _read(g, 3, 7, 2), _read(g, 2, 2, 0)])
def span_probabilities(logits: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """(start, end), both [B T]: two softmaxes over the positions, padding 0.

    logits [B T 2], start and end in the last dimension; attention_mask Bool[B T].
    """
    masked = logits.masked_fill(~attention_mask[..., None], -math.inf)
    p = masked.softmax(1)
    return p[..., 0], p[..., 1]


def _passage(g: Generator, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """[CLS] question [SEP] passage [SEP] padding, logits that are high outside the passage too."""
    inside = torch.zeros(12, dtype=torch.bool)
    inside[4 : 9 + number % 3] = True
    start, end = 2 * normal(g, 2, 12)
    if number % 2:
        start[-1] += 4
        end[1] += 4
    return start, end, inside


def _apart(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    return [int(x.masked_fill(~inside, -math.inf).argmax()) for x in (start, end)]


@exercise(
    lambda g: [_passage(g, number) for number in range(14)],
    form=listed,
)
def best_span(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    """(first, last): the answer with the highest start[first] + end[last].

    start, end [T]: logits. inside Bool[T]: the passage's tokens. first <= last, both inside.
    """
    sums = start[:, None] + end
    places = [i for i in range(len(start)) if inside[i]]
    first, last = max(
        ((i, j) for i in places for j in places if i <= j), key=lambda pair: float(sums[pair])
    )
    return [first, last]
