"""Who may attend to whom. Every mask is boolean, True = may attend, and masks combine with `&`.

Shapes broadcast to [B, H, Tq, Tk]. Only `attention.py` turns a mask into scores.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from course_lib.model.config import AttentionPattern, Window


def causal(tq: int, tk: int | None = None, device: torch.device | None = None) -> Tensor:
    """The lower triangle, Bool[1, 1, Tq, Tk]: a query may attend to keys up to its own position.

    Args:
        tq: number of queries.
        tk: number of keys, by default Tq. If there are more (a cache), the queries are at the last
            Tq of the Tk positions.
        device: device of the mask.

    >>> causal(3)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    tk = tq if tk is None else tk
    ones = torch.ones(tq, tk, dtype=torch.bool, device=device)
    allowed = ones.tril(diagonal=tk - tq)
    return allowed[None, None]  # one mask for all rows and heads


def padding(attention_mask: Tensor) -> Tensor:
    """No query may attend to padding.

    Args:
        attention_mask: True = a real token, Bool[B, Tk].

    Returns:
        Bool[B, 1, 1, Tk].
    """
    return attention_mask.bool()[:, None, None, :]


def window(q_pos: Tensor, k_pos: Tensor, size: int) -> Tensor:
    """A query may attend to keys that are at most `size` positions away.

    Args:
        q_pos: positions of the queries, Int[#B, Tq].
        k_pos: positions of the keys, Int[#B, Tk].
        size: the largest distance, to the left and to the right.

    Returns:
        Bool[#B, 1, Tq, Tk].

    >>> window(torch.arange(4)[None], torch.arange(4)[None], 1)[0, 0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    distance = k_pos[:, None, :] - q_pos[:, :, None]  # B Tq Tk
    is_near = distance.abs() <= size
    return is_near[:, None]  # B 1 Tq Tk


def prefix(lengths: Tensor, t: int) -> Tensor:
    """A prefix LM: all tokens may attend to the prefix (Raffel et al. 2020, section 3.2.1).

    Args:
        lengths: length of each row's prefix, Int[B].
        t: number of tokens.

    Returns:
        Bool[B, 1, T, T].

    >>> prefix(torch.tensor([2]), 3)[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
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


class LayerMask(NamedTuple):
    """Which tokens the tokens of a layer may attend to."""

    mask: Bool[Tensor, "#B #H #Tq Tk"] | None  # True = may attend; None: everyone may
    is_causal: bool  # True: causal, and `mask` is None; the fused kernel makes that mask itself


def of_layer(
    pattern: AttentionPattern,
    q_pos: Tensor,
    k_pos: Tensor,
    *,
    causal_stack: bool,
    attention_mask: Tensor | None = None,
    mask: Tensor | None = None,
) -> LayerMask:
    """The mask of the layers with this attention pattern.

    Args:
        pattern: which tokens a token of these layers may attend to.
        q_pos: positions of the queries, Int[#B, Tq].
        k_pos: positions of the keys, Int[#B, Tk]. With a cache there are more keys than queries.
        causal_stack: a token may attend to itself and earlier tokens only (decoders).
        attention_mask: True = a real token, Bool[B, Tk].
        mask: used instead of the pattern and the causal mask; `attention_mask` still applies.
    """
    tq = q_pos.shape[1]
    tk = k_pos.shape[1]
    has_past = tq < tk
    size = pattern.size if isinstance(pattern, Window) else None

    # The fused kernel can make a causal mask itself, but without padding, past tokens or windows.
    is_plain = mask is None and attention_mask is None and size is None and not has_past
    if causal_stack and is_plain:
        return LayerMask(mask=None, is_causal=True)

    parts = []  # a query may attend to a key if all of these masks are True
    if mask is not None:
        parts.append(mask)
    else:
        # One new token after a cache may attend to all keys, so it needs no causal mask.
        needs_causal = causal_stack and not (has_past and tq == 1)
        if needs_causal:
            parts.append(causal(tq, tk, k_pos.device))
        if size is not None:
            parts.append(window(q_pos, k_pos, size))
    if attention_mask is not None:
        parts.append(padding(attention_mask))
    return LayerMask(mask=all_of(parts), is_causal=False)
