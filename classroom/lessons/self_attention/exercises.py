"""Lesson 01: scaled dot-product attention, masks, heads."""

import math

import torch
from torch import Generator, Tensor

from classroom.checks.base import Case, Crash, normal, outcome, row_mask
from classroom.checks.exercise import exercise


def qkv(
    g: Generator, tq: int, tk: int, width: int, value_width: int, *batch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values to draw."""
    return (
        2 * normal(g, *batch, tq, width),
        normal(g, *batch, tk, width),
        normal(g, *batch, tk, value_width),
    )


@exercise(
    lambda g: [
        qkv(g, 4, 4, 4, 4),
        qkv(g, 3, 5, 8, 6),
        qkv(g, 6, 4, 4, 16, 4),
        qkv(g, 3, 5, 8, 4, 2, 3),
    ],
    together=3,
)
def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(Dh)) v, for q [... Tq Dh], k [... Tk Dh], v [... Tk Dv]."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


@exercise([(4,), (1,), (2,), (7,)])
def causal_mask(T: int) -> Tensor:
    """Bool[T T], True where the query (row) may attend to the key (column): on and below the
    diagonal.
    """
    return torch.ones(T, T, dtype=torch.bool).tril()


def _leak(fn: object, case: Case) -> str:
    """Does the output move when only a blocked value changes? Then the blocking is too weak,
    whatever else.
    """
    changed = {**case, "v": case["v"].clone()}
    changed["v"][..., -1, :] += 1000.0
    before, after = outcome(fn, case), outcome(fn, changed)
    fits = all(isinstance(x, Tensor) and x.shape == case["q"].shape for x in (before, after))
    return (
        masked_attention.says["leak"]
        if fits and not torch.allclose(before[..., 0, :], after[..., 0, :])
        else ""
    )


def _masked(fn: object) -> None:
    """A query that may attend nowhere must not give NaN; what else it gives is free."""
    masked_attention.compare(fn)
    case = masked_attention.draw()[0]
    value = outcome(fn, case | {"mask": case["mask"] & (torch.arange(5) != 2)[:, None]})
    masked_attention.refuse(isinstance(value, Crash) or value.isnan().any(), "nan_row")


_CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


@exercise(
    lambda g: [
        (*qkv(g, 5, 5, 8, 8), _CAUSAL),
        (*qkv(g, 3, 4, 8, 6, 2), row_mask(4, 2)[:, None]),
        (*qkv(g, 5, 5, 4, 4, 2, 3), _CAUSAL),
    ],
    hint=_leak,
    judge=_masked,
)
def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention with a mask Bool[#... Tq Tk], True = may attend."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, least).softmax(-1) @ v


@exercise(lambda g: [(normal(g, 2, 5, 12), 3), (normal(g, 1, 4, 8), 4), (normal(g, 3, 4, 16), 4)])
def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B T D] -> [B H T Dh]; head h takes the components h*Dh to (h+1)*Dh."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


@exercise(lambda g: [(normal(g, 2, 3, 5, 4),), (normal(g, 1, 4, 4, 2),), (normal(g, 3, 4, 4, 4),)])
def merge_heads(x: Tensor) -> Tensor:
    """[B H T Dh] -> [B T D], the inverse of split_heads."""
    return x.transpose(1, 2).flatten(2)
