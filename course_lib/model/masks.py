"""Who may look at whom. Every mask is boolean, True = may attend, and masks combine with `&`.

Shapes broadcast to [B, H, Tq, Tk]. One place turns a mask into scores: `attention.py`.
"""

import torch
from torch import Tensor


def causal(tq: int, tk: int | None = None, device: torch.device | None = None) -> Tensor:
    """Lower triangle, Bool[1, 1, tq, tk]: query i sees keys up to its own position.

    With more keys than queries (a cache), the queries are the last tq of the tk positions.

    >>> causal(3)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    tk = tq if tk is None else tk
    full = torch.ones(tq, tk, dtype=torch.bool, device=device)
    return full.tril(diagonal=tk - tq)[None, None]


def padding(attention_mask: Tensor) -> Tensor:
    """Nobody attends to padding: Bool[B, Tk], True = a real token, to Bool[B, 1, 1, Tk]."""
    return attention_mask.bool()[:, None, None, :]


def prefix(lengths: Tensor, t: int) -> Tensor:
    """Prefix LM (Raffel et al. 2020, section 3.2.1), Bool[B, 1, t, t]: the first lengths[b] tokens
    see each other.
    """
    inside = torch.arange(t, device=lengths.device) < lengths[:, None]  # B T
    return causal(t, device=lengths.device) | inside[:, None, None, :]
