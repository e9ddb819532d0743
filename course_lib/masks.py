"""Who may look at whom. Every mask is boolean, True = may attend, and masks combine with `&`.

Shapes broadcast to [B, H, Tq, Tk]. One place turns a mask into scores: `attention.py`.
"""

import torch
from torch import Tensor


def causal(tq: int, tk: int | None = None, device: torch.device | None = None) -> Tensor:
    """Lower triangle: query i sees keys up to its own position.

    Args:
        tq: number of queries. tk: number of keys, tq by default; with more keys than queries (a cache), the queries
            are the last tq of the tk positions.

    Returns: Bool[1, 1, tq, tk].

    >>> causal(3)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    tk = tq if tk is None else tk
    full = torch.ones(tq, tk, dtype=torch.bool, device=device)
    return full.tril(diagonal=tk - tq)[None, None]


def padding(keep: Tensor) -> Tensor:
    """Nobody attends to padding. keep: Bool[B, Tk], True = a real token. Returns Bool[B, 1, 1, Tk]."""
    return keep.bool()[:, None, None, :]


def prefix(lengths: Tensor, t: int) -> Tensor:
    """Prefix LM (Raffel et al. 2020, section 3.2.1): the first lengths[b] tokens see each other, the rest is causal.

    Args:
        lengths: Int[B]. t: number of positions.

    Returns: Bool[B, 1, t, t].
    """
    inside = torch.arange(t, device=lengths.device) < lengths[:, None]  # B T
    return causal(t, device=lengths.device) | inside[:, None, None, :]


def documents(ids: Tensor) -> Tensor:
    """Packed rows: a token sees only tokens of its own document.

    Args:
        ids: Int[B, T], the number of the document each token belongs to.

    Returns: Bool[B, 1, T, T].
    """
    return (ids[:, :, None] == ids[:, None, :])[:, None]
