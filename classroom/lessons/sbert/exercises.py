"""Lesson 15: mean pooling, cosines of all pairs, in-batch negatives. The triplet loss, BM25 and the
fusion of rankings were exercises of earlier editions, and their copies still find their checks.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import normal, row_mask
from classroom.checks.exercise import exercise


@exercise(
    lambda g: [
        (normal(g, len(lengths), max(lengths), 4), row_mask(*lengths))
        for lengths in ((5, 2, 3), (1, 4), (3, 3, 6, 2))
    ],
)
def mean_pool(x: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean of each text's real tokens; x [B T D], attention_mask Bool[B T], True = a real
    token.
    """
    total = (x * attention_mask[..., None]).sum(1)
    return total / attention_mask.sum(1, keepdim=True)


@exercise(
    lambda g: [
        (normal(g, queries, width) * 3, normal(g, texts, width))
        for queries, texts, width in ((2, 5, 4), (1, 3, 6), (4, 4, 3))
    ],
)
def cosine_scores(queries: Tensor, texts: Tensor) -> Tensor:
    """The cosine of every query with every text; [Q E] and [N E] -> [Q N]."""
    return F.normalize(queries, dim=-1) @ F.normalize(texts, dim=-1).T


def _triplets(g: Generator, rows: int, margin: float) -> tuple[Tensor, Tensor, Tensor, float]:
    """Some triplets hold the margin, some do not."""
    anchor, positive, negative = normal(g, 3, rows, 5)
    return anchor, anchor + torch.linspace(0.1, 1.0, rows)[:, None] * positive, negative, margin


@exercise(
    lambda g: [
        *(_triplets(g, rows, margin) for rows, margin in ((6, 1.0), (8, 0.3), (4, 2.5))),
        (torch.zeros(2, 3), torch.eye(3)[:2], 9 * torch.eye(3)[:2], 1.0),
    ],
    learns="anchor",
)
def triplet_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Mean of max(|a - p| - |a - n| + margin, 0); all three [B E]."""
    near: Tensor = (anchor - positive).norm(dim=-1)
    far: Tensor = (anchor - negative).norm(dim=-1)
    return (near - far + margin).relu().mean()


def _own_texts(g: Generator, rows: int, scale: float) -> tuple[Tensor, Tensor, float]:
    queries = normal(g, rows, 5) * torch.arange(1, rows + 1)[:, None]
    return queries, queries + 2 * normal(g, rows, 5), scale


@exercise(
    lambda g: [_own_texts(g, rows, scale) for rows, scale in ((4, 20.0), (6, 5.0), (3, 1.0))],
    learns="queries",
)
def in_batch_loss(queries: Tensor, texts: Tensor, scale: float) -> Tensor:
    """Cross-entropy of each query's own text among all of the batch; both [B E]."""
    cosines = F.normalize(queries, dim=-1) @ F.normalize(texts, dim=-1).T
    return F.cross_entropy(scale * cosines, torch.arange(len(queries)))


@exercise(
    [
        (1, 3, 10, 8, 12.5, 1.2, 0.75),
        (4, 9, 10, 30, 12.5, 1.2, 0.75),
        (2, 1, 500, 7, 6.0, 2.0, 0.3),
        (0, 4, 20, 9, 9.0, 1.2, 0.75),
        (3, 5, 40, 20, 10.0, 0.9, 0.0),
    ],
)
def bm25_weight(
    count: int, holding: int, n: int, length: int, mean_length: float, k1: float, b: float
) -> float:
    """What one word of the query adds to a document's score."""
    idf = math.log(1 + (n - holding + 0.5) / (holding + 0.5))
    norm = 1 - b + b * length / mean_length
    return idf * count / (count + k1 * norm)


@exercise(
    [
        ([[3, 1, 2, 0], [2, 0, 3]], 60),
        ([[0, 1, 2, 3, 4], [3, 2, 1, 4, 0]], 1),
        ([[5, 4], [], [4, 7, 5]], 5),
        ([[8, 1, 5, 2, 6], [6, 2, 1, 7, 8], [7, 5, 9]], 0.5),
        ([[0, 1, 2], [3, 4, 1]], 0.25),  # a first place is worth more than a second and a third
        ([[1, 2, 3, 4, 5, 6, 9], [8, 7, 6, 5, 4, 9, 1]], 3),
    ],
)
def fuse_ranks(rankings: Sequence[Sequence[int]], k: float) -> list[int]:
    """Documents by the sum of 1 / (k + rank), best first, equal ones by number."""
    worth: dict[int, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            worth[document] = worth.get(document, 0.0) + 1 / (k + rank)
    return sorted(worth, key=lambda document: (-worth[document], document))
