"""Lesson 04: windows, negative sampling, the noise distribution, analogies."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import normal
from classroom.checks.exercise import exercise


def whole(found: Any) -> Any:
    """A tensor of one number as an int."""
    return int(found) if isinstance(found, Tensor) and found.numel() == 1 else found


@exercise(
    [
        (["the", "cat", "drank", "warm", "milk"], 1),
        (list("abacde"), 2),
        (list("xyz"), 5),
        (["alone"], 2),
    ],
    form=lambda found: (
        [tuple(pair) for pair in found] if isinstance(found, list | tuple) else found
    ),
)
def context_pairs(words: list[str], window: int) -> list[tuple[str, str]]:
    """The list of (centre, context) of all words at most `window` places apart, both from left to
    right.
    """
    found = []
    for i in range(len(words)):
        for j in range(max(0, i - window), min(len(words), i + window + 1)):
            if j != i:
                found.append((words[i], words[j]))
    return found


@exercise(
    lambda g: [
        (normal(g, b, d), normal(g, b, d), normal(g, b, k, d))
        for b, k, d in ((4, 3, 6), (1, 5, 4), (7, 2, 3))
    ],
    learns="v",
)
def negative_loss(v: Tensor, u: Tensor, noise: Tensor) -> Tensor:
    """The mean over pairs of -log sigma(v . u) - sum over k of log sigma(-v . noise_k).

    v [B D] input vectors, u [B D] output vectors of the words that were seen, noise [B K D] of
    those that were drawn."""
    seen = (v * u).sum(-1)
    drawn = (noise * v[:, None]).sum(-1)
    return -(F.logsigmoid(seen) + F.logsigmoid(-drawn).sum(-1)).mean()


@exercise([(torch.tensor(counts),) for counts in ([81, 16, 1], [1000, 10, 10, 3, 1], [3, 2, 1])])
def noise_distribution(counts: Tensor) -> Tensor:
    """The probabilities with which words are drawn: counts ** 0.75, divided by their sum. counts
    Int[V].
    """
    weights = counts.float() ** 0.75
    return weights / weights.sum()


def _asked(g: Generator, near: bool) -> tuple[Tensor, int, int, int]:
    """Vectors of unlike lengths. `near`: d stands near b - a + c, but c itself nearer still; else
    a, b and c are so alike that each of them lies nearer to it than any other word."""
    vectors = normal(g, 40, 6)
    a, b, c, d = torch.randperm(40, generator=g)[:4].tolist()
    units = F.normalize(vectors, dim=-1)
    if near:
        vectors[b] = units[a] + 0.7 * normal(g, 6) / 6**0.5
        units = F.normalize(vectors, dim=-1)
        vectors[d] = units[b] - units[a] + units[c] + 0.3 * normal(g, 6) / 6**0.5
    else:
        vectors[[b, c]] = units[a] + 0.3 * normal(g, 2, 6) / 6**0.5
    vectors *= 0.5 + 2 * torch.rand(40, 1, generator=g)
    return vectors, a, b, c


# rows 3 and 4 point away from b - a + c
_OPPOSITE = torch.tensor([[-1.0, 1], [1, 1], [1, -1], [-1, 2], [-3, -1]])


@exercise(
    lambda g: [*(_asked(g, near=i < 8) for i in range(12)), (_OPPOSITE, 0, 1, 2)],
    form=whole,
)
def analogy(vectors: Tensor, a: int, b: int, c: int) -> int:
    """The row that solves "a is to b as c is to ...": the largest cosine with b - a + c, all of
    length 1.

    vectors [V D]; a, b, c row numbers, which are no answers.
    """
    units = F.normalize(vectors, dim=-1)
    scores = units @ (units[b] - units[a] + units[c])
    scores[[a, b, c]] = -math.inf
    return int(scores.argmax())
