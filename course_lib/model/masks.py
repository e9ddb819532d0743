"""Who may look at whom. Every mask is boolean, True = may attend, and masks combine with `&`.

Shapes broadcast to [B, H, Tq, Tk]. One place turns a mask into scores: `attention.py`.
"""

from collections.abc import Sequence

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


def window(q_pos: Tensor, k_pos: Tensor, size: int) -> Tensor:
    """Nobody sees farther than `size` positions to either side: Int[#B, Tq], Int[#B, Tk] to
    Bool[#B, 1, Tq, Tk].

    >>> window(torch.arange(4)[None], torch.arange(4)[None], 1)[0, 0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    distance = k_pos[:, None, :] - q_pos[:, :, None]  # B Tq Tk
    return (distance.abs() <= size)[:, None]


def prefix(lengths: Tensor, t: int) -> Tensor:
    """Prefix LM (Raffel et al. 2020, section 3.2.1), Bool[B, 1, t, t]: the first lengths[b] tokens
    see each other.
    """
    inside = torch.arange(t, device=lengths.device) < lengths[:, None]  # B T
    return causal(t, device=lengths.device) | inside[:, None, None, :]


def all_of(masks: Sequence[Tensor]) -> Tensor | None:
    """Where every one of these masks is True; None if there is none of them."""
    if not masks:
        return None
    combined = masks[0]
    for mask in masks[1:]:
        combined = combined & mask
    return combined
