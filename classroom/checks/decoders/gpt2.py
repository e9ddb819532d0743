"""Lesson 18: GPT-2's parameters, a continuation's score, the nucleus, one step with a cache."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.checks.base import integers, normal
from classroom.checks.exercise import exercise


@exercise(
    [(12, 768, 50257, 1024), (24, 1024, 50257, 1024), (2, 6, 50, 10), (1, 8, 30, 7)],
    """
    untied: vocab + length => 2 * vocab + length
    no_positions: vocab + length => vocab
    no_tokens: vocab + length => length
    no_last_norm: + 2 * width =>
    no_norms: down + norms => down && + 2 * width =>
    no_block_norms: down + norms => down
    one_norm: norms = 4 => norms = 2
    no_shifts: norms = 4 => norms = 2 && + 2 * width => + width
    no_biases: + 4 * width => && width**2 + width => width**2
    no_biases_or_norms: + 4 * width => && width**2 + width => width**2 && down + norms => down
    matrices: => (vocab + length) * width + 12 * layers * width**2
    three_attention: attention = 4 * width**2 + 4 * width => attention = 3 * width**2 + 3 * width
    small_bias: + 4 * width, => + width,
    one_feed_forward: + down =>
    rule_of_thumb: => 12 * layers * width**2
    one_block: layers * ( => (
    """,
    also=[lambda n, d, v, t: n * (12 * d * d + 13 * d) + (v + t + 2) * d],
)
def gpt2_parameters(layers: int, width: int, vocab: int, length: int) -> int:
    """A GPT-2's parameters: tied output matrix, biases, two norms a block."""
    attention = 4 * width**2 + 4 * width
    up, down = 4 * width**2 + 4 * width, 4 * width**2 + width
    norms = 4 * width
    return (vocab + length) * width + layers * (attention + up + down + norms) + 2 * width


@exercise(
    lambda g: [
        (2 * normal(g, length, vocab), integers(g, vocab, length), start)
        for length, vocab, start in ((7, 9, 4), (6, 6, 3), (5, 12, 1))
    ],
    """
    no_shift: logits[:-1] => logits && ids[1:, None] => ids[:, None] && start - 1 => start
    backwards: => float(logits[start + 1 :].log_softmax(-1).gather(-1, ids[start:-1, None]).sum())
    prompt: start - 1 : => :
    late: start - 1 => start
    early: start - 1 => max(0, start - 2)
    mean: scored.sum() => scored.mean()
    no_log: log_softmax => softmax
    probability: scored.sum() => scored.sum().exp()
    sign: return float => return -float
    no_softmax: .log_softmax(-1) =>
    over_positions: logits[:-1].log_softmax(-1) => logits.log_softmax(0)[:-1]
    last: scored.sum() => scored[-1]
    one_each: float(scored.sum()) => scored
    bits: scored.sum() => scored.sum() / math.log(2)
    """,
    also=[lambda x, ids, start: -F.cross_entropy(x[start - 1 : -1], ids[start:], reduction="sum").item()],
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
    """
    too_few: before < p => probs.cumsum(-1) <= p
    too_few: before < p => probs.cumsum(-1) < p
    too_many: before < p => before - probs.roll(1, -1) < p
    no_sum: / kept.sum(-1, keepdim=True) =>
    ascending: descending=True => descending=False
    sorted: torch.zeros_like(logits).scatter(-1, order, kept) => kept
    misplaced: probs * ( => logits.softmax(-1) * ( && torch.zeros_like(logits).scatter(-1, order, kept) => kept
    singly: before < p => probs >= p
    above_rest: before < p => probs >= 1 - p
    zero_logits: => logits.masked_fill(_nucleus(logits, p) == 0, 0.0).softmax(-1)
    uncut: => logits.softmax(-1)
    logits: => logits.masked_fill(_nucleus(logits, p) == 0, -math.inf)
    first_row: before < p => before.view(-1, before.shape[-1])[0] < p
    equal: probs * (before < p) => (before < p).float()
    summed_logits: probs.cumsum(-1) - probs => (x := logits.sort(dim=-1, descending=True).values).cumsum(-1) - x
    """,
)
def top_p(logits: Tensor, p: float) -> Tensor:
    """The distribution over the fewest likeliest tokens whose probability reaches p, renormalised."""
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
    """
    no_self: keys.T => past_k.T && weights @ values => weights @ past_v
    in_front: [past_k, k] => [k, past_k] && [past_v, v] => [v, past_v]
    unscaled: / math.sqrt(q.shape[-1]) =>
    by_length: q.shape[-1] => len(keys)
    over_rows: softmax(-1) => softmax(0)
    old_cache: values, keys, values => values, past_k, past_v
    order: values, keys, values => values, values, keys
    self_only: weights @ values => v.clone()
    query_for_key: [past_k, k] => [past_k, q]
    output_only: weights @ values, keys, values => weights @ values
    """,
)
def cached_step(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(y [1 D], keys [T+1 D], values [T+1 D]): one new token attends to all so far.

    One head. q, k, v [1 D] are the new token's; past_k, past_v [T D] those of the tokens before it, perhaps none.
    """
    keys, values = torch.cat([past_k, k]), torch.cat([past_v, v])
    weights = (q @ keys.T / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ values, keys, values
