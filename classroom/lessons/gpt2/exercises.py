"""Lesson 18: a continuation's score, the nucleus, one step with a cache."""

import math

import torch
from torch import Tensor

from classroom.checks.base import integers, normal
from classroom.checks.exercise import exercise


@exercise(
    lambda g: [
        (2 * normal(g, length, vocab), integers(g, vocab, length), start)
        for length, vocab, start in ((7, 9, 4), (6, 6, 3), (5, 12, 1))
    ],
)
def continuation_score(logits: Tensor, ids: Tensor, start: int) -> float:
    """log P(ids[start:] | ids[:start]) in nats, a sum; logits [T V], ids Int[T]."""
    log_p = logits[:-1].log_softmax(-1)
    scored = log_p.gather(-1, ids[1:, None])[start - 1 :, 0]
    return float(scored.sum())


def _nucleus(logits: Tensor, p: float) -> Tensor:
    kept: Tensor = top_p.reference(logits, p)
    return kept


@exercise(
    lambda g: [
        (1.5 * normal(g, *shape), p)
        for shape, p in (((8,), 0.7), ((3, 9), 0.8), ((2, 7), 0.5), ((6,), 1.0), ((5,), 0.1))
    ],
)
def top_p(logits: Tensor, p: float) -> Tensor:
    """The distribution over the fewest likeliest tokens whose probability reaches p,
    renormalised.
    """
    probs, order = logits.softmax(-1).sort(dim=-1, descending=True)
    before = probs.cumsum(-1) - probs
    kept = probs * (before < p)
    kept = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, order, kept)


@exercise(
    lambda g: [
        (*(normal(g, 1, width) for _ in range(3)), normal(g, past, width), normal(g, past, width))
        for past, width in ((5, 4), (3, 8), (0, 4))
    ],
)
def cached_step(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(y [1 D], keys [T+1 D], values [T+1 D]): one new token attends to all so far.

    One head. q, k, v [1 D] are the new token's; past_k, past_v [T D] those of the tokens before it,
    perhaps none."""
    keys, values = torch.cat([past_k, k]), torch.cat([past_v, v])
    weights = (q @ keys.T / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ values, keys, values
