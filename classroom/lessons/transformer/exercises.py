"""Lesson 02: attention from one text to another, layer norm, the residual branch; what the decoder
reads, one step of the beam.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import Case, close, integers, normal, outcome, row_mask
from classroom.checks.exercise import exercise

_Function = Callable[[Tensor], Tensor]


@exercise(
    lambda g: [
        *(
            (3 * normal(g, *s) + 2, normal(g, s[-1]), normal(g, s[-1]))
            for s in ((4, 3), (2, 5, 8), (3, 16))
        ),
        (1e-3 * normal(g, 2, 4), normal(g, 4), normal(g, 4)),  # eps counts here
    ],
)
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-5) * weight + bias over the last axis; x [... T D]."""
    centred = x - x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return centred / (variance + 1e-5).sqrt() * weight + bias


class _Part:
    """What stands in for attention, feed-forward or norm: a fixed function of each position."""

    def __init__(self, name: str, does: _Function) -> None:
        self.name, self.does = name, does

    def __call__(self, x: Tensor) -> Tensor:
        return self.does(x)

    def __repr__(self) -> str:
        return self.name


def _attentions(
    g: Generator,
) -> list[tuple[Tensor, Tensor, _Function, _Function, _Function, Tensor]]:
    """A text to itself, a text to another as long as it, and one to another padded one, in a batch
    with two heads.
    """
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    every = torch.ones(1, 4, dtype=torch.bool)
    cases: list[tuple[Tensor, Tensor, _Function, _Function, _Function, Tensor]] = []
    for shape, length, mask in (((4, 6), 4, every), ((4, 6), 4, causal), ((2, 3, 6), 5, None)):
        x = normal(g, *shape)
        source = normal(g, *shape[:-2], length, 6)
        q, k, v = (_Part(name, _heads(normal(g, 6, 8))) for name in "qkv")
        cases.append((x, source, q, k, v, row_mask(5, 3)[:, None, None] if mask is None else mask))
    return cases


def _heads(matrix: Tensor) -> _Function:
    """A linear map whose output is split into two heads."""
    return lambda x: (x @ matrix).reshape(*x.shape[:-1], 2, 4).transpose(-3, -2)


@exercise(_attentions)
def attend(
    x: Tensor, source: Tensor, q: _Function, k: _Function, v: _Function, mask: Tensor
) -> Tensor:
    """softmax(q(x) k(source)^T / sqrt(Dh)) v(source), [B H Tq Dh]; mask Bool, True = may attend."""
    queries = q(x)
    keys = k(source)
    values = v(source)
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, least).softmax(-1) @ values


def _branches(g: Generator) -> list[tuple[Tensor, _Function, _Function, bool]]:
    """The norm has a scale and a shift, so that leaving it out or doing it twice shows."""
    scale, shift = 1 + 0.5 * normal(g, 6), 0.5 * normal(g, 6)
    norm = _Part("norm", lambda x: F.layer_norm(x, (6,), scale, shift))
    parts = [
        _Part("f", partial(lambda m, x: torch.tanh(x @ m) + 0.3, m)) for m in normal(g, 2, 6, 6)
    ]
    return [(normal(g, 2, 4, 6), f, norm, pre) for f in parts for pre in (False, True)]


@exercise(_branches)
def residual_branch(x: Tensor, f: _Function, norm: _Function, pre: bool) -> Tensor:
    """norm(x + f(x)) where pre is False, x + f(norm(x)) where it is True."""
    return x + f(norm(x)) if pre else norm(x + f(x))


@exercise(
    lambda g: [
        (torch.tensor([[5, 6, 7, 3]]), 2),
        (4 + integers(g, 16, 3, 6), 1),
        (torch.tensor([[9], [8]]), 0),
    ],
)
def decoder_input(target: Tensor, start: int) -> Tensor:
    """The target Int[B U] one place to the right, `start` in front, the last token dropped."""
    first = torch.full_like(target[:, :1], start)
    return torch.cat((first, target[:, :-1]), dim=1)


def _sorted(fn: object, case: Case) -> str:
    """The right ones in another order?"""
    value, (*_, best) = outcome(fn, case), beam_step.reference(**case)
    fits = (
        isinstance(value, tuple | list)
        and len(value) == 3
        and all(isinstance(part, Tensor) for part in value)
    )
    same = (
        fits
        and value[2].shape == best.shape
        and close(value[2].to(best).sort(descending=True).values, best)
    )
    return beam_step.says["unsorted"] if same else ""


@exercise(
    lambda g: [
        (-3 * normal(g, w).abs(), (2 * normal(g, w, v)).log_softmax(-1), n)
        for w, v, n in ((3, 7, 3), (2, 5, 4), (4, 6, 2))
    ],
    hint=_sorted,
)
def beam_step(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best `width` ways to go on: (parent Int[width], token Int[width], score Float[width]),
    best first.

    scores Float[W], the sum of log probabilities of each text so far; log_probs Float[W V] of the
    next token."""
    V = log_probs.shape[-1]
    score, flat = (scores[:, None] + log_probs).flatten().topk(width)
    return flat // V, flat % V, score
