"""Who may attend to whom. Every mask is boolean, True = may attend, and masks combine with `&`.

Shapes broadcast to [B, H, Tq, Tk]. Only `attention.py` turns a mask into scores.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def causal(tq: int, tk: int | None = None, device: torch.device | None = None) -> Tensor:
    """The lower triangle, Bool[1, 1, Tq, Tk]: query i sees keys up to its own position.

    Args:
        tq: number of queries.
        tk: number of keys, by default as many. With more (a cache), the queries are the last of
            these positions.
        device: of the mask.

    >>> causal(3)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    tk = tq if tk is None else tk
    everything = torch.ones(tq, tk, dtype=torch.bool, device=device)
    allowed = everything.tril(diagonal=tk - tq)
    return allowed[None, None]  # one mask for all rows and heads


def padding(attention_mask: Tensor) -> Tensor:
    """Nobody attends to padding: Bool[B, Tk], True = a real token, to Bool[B, 1, 1, Tk]."""
    return attention_mask.bool()[:, None, None, :]


def window(q_pos: Tensor, k_pos: Tensor, size: int) -> Tensor:
    """Nobody sees farther than `size` positions to either side.

    Args:
        q_pos: positions of the queries, Int[#B, Tq].
        k_pos: positions of the keys, Int[#B, Tk].
        size: the farthest distance.

    Returns:
        Bool[#B, 1, Tq, Tk].

    >>> window(torch.arange(4)[None], torch.arange(4)[None], 1)[0, 0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    distance = k_pos[:, None, :] - q_pos[:, :, None]  # B Tq Tk
    is_near = distance.abs() <= size
    return is_near[:, None]  # B 1 Tq Tk


def prefix(lengths: Tensor, t: int) -> Tensor:
    """A prefix LM: the tokens of the prefix see each other (Raffel et al. 2020, section 3.2.1).

    Args:
        lengths: of each row's prefix, Int[B].
        t: number of tokens.

    Returns:
        Bool[B, 1, T, T].
    """
    in_prefix = torch.arange(t, device=lengths.device) < lengths[:, None]  # B T
    return causal(t, device=lengths.device) | in_prefix[:, None, None, :]


def all_of(masks: Sequence[Tensor]) -> Tensor | None:
    """True where every mask is True; None if there are no masks."""
    if not masks:
        return None
    combined = masks[0]
    for mask in masks[1:]:
        combined = combined & mask
    return combined
