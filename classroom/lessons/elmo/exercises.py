"""Lesson 06: a word's features from its characters, the biLM's targets, the mix, neighbours."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import normal
from classroom.checks.exercise import exercise
from classroom.lessons.word_embeddings.exercises import whole


def _spelled(g: Generator, n: int, e: int, c: int, *kinds: tuple[int, int]) -> tuple[Any, ...]:
    """A word of which one filter fires nowhere is among them: its largest value is below 0."""
    x = normal(g, n, e, c)
    filters = [normal(g, many, e, wide) for many, wide in kinds]
    x[0] = -filters[0][0].mean(-1, keepdim=True)
    return x, filters


@exercise(lambda g: [_spelled(g, 4, 3, 9, (2, 1), (3, 2)), _spelled(g, 2, 5, 7, (4, 3))])
def char_features(x: Tensor, filters: Sequence[Tensor]) -> Tensor:
    """[N F]: every filter's largest value over the places of a word, then ReLU, side by side.

    x [N E C]: the characters' vectors of N words. filters: weights [F E w], one tensor for each
    width w."""
    return torch.cat([F.conv1d(x, weight).amax(-1).relu() for weight in filters], dim=-1)


@exercise(
    [
        (torch.tensor([[1, 7, 8, 9, 2], [1, 5, 2, 0, 0]]), torch.tensor([5, 3])),
        (torch.tensor([[1, 4, 4, 2]]), torch.tensor([4])),
        (
            torch.tensor([[1, 3, 6, 2, 0, 0], [1, 9, 8, 5, 7, 2], [1, 2, 0, 0, 0, 0]]),
            torch.tensor([4, 6, 2]),
        ),
    ],
)
def bilm_labels(ids: Tensor, lengths: Tensor) -> Tensor:
    """Int[B 2 T]: at [:, 0] the word after each place, at [:, 1] the word before it, -100 where
    there is none.

    ids Int[B T], padded on the right. lengths Int[B]: real places of each row.
    """
    place, end = torch.arange(ids.shape[1]), lengths[:, None]
    sides = []
    for step in (1, -1):
        there = (place + step >= 0) & (place + step < end) & (place < end)
        sides.append(ids.roll(-step, 1).where(there, -100))
    return torch.stack(sides, dim=1)


@exercise(
    lambda g: [
        (normal(g, layers, *shape), 0.5 + normal(g, layers).abs(), gamma)
        for layers, shape, gamma in ((3, (2, 4, 5), 1.7), (2, (1, 3, 4), 0.4), (3, (1, 1, 6), 3.0))
    ],
    learns="scores",
)
def elmo_mix(layers: Tensor, scores: Tensor, gamma: float) -> Tensor:
    """[B T F]: gamma times the sum of the layers, each with its share softmax(scores).

    layers [L B T F]; scores [L]; gamma a number.
    """
    return gamma * torch.einsum("l,lbtf->btf", scores.softmax(0), layers)


def _uses(g: Generator) -> tuple[Tensor, Tensor, int]:
    """Uses of unlike lengths. The two others of the query's text are the nearest of all, the rest
    point away.
    """
    vectors, order = normal(g, 30, 6), torch.randperm(30, generator=g).tolist()
    query, beside = order[0], order[1:3]
    vectors *= (vectors @ vectors[query]).sign()[:, None]
    vectors[query] *= -1
    vectors[beside] = vectors[query] + 0.3 * normal(g, 2, 6)
    vectors *= 0.5 + 2 * torch.rand(30, 1, generator=g)
    texts = 40 + torch.arange(30)
    texts[beside] = int(texts[query])
    return vectors, texts, query


@exercise(lambda g: [_uses(g) for _ in range(12)], form=whole)
def nearest_use(vectors: Tensor, texts: Tensor, query: int) -> int:
    """The number of the use with the largest cosine to use `query`, out of those that stand in
    another text.

    vectors [N F]: one for each use of a word. texts Int[N]: the text that it stands in. query: its
    number."""
    cosines = F.cosine_similarity(vectors, vectors[query][None])
    return int(cosines.masked_fill(texts == texts[query], -math.inf).argmax())
