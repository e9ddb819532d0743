"""Replaced-token detection (Clark et al. 2020, ELECTRA): a generator fills masked positions."""

from typing import NamedTuple

import torch
from torch import Tensor


class Replaced(NamedTuple):
    """The discriminator's input, and its labels."""

    ids: Tensor  # Int[B T]
    replaced: Tensor  # Bool[B T], True where a token differs from the original


def sample(logits: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Draw one token a row from softmax(logits) (Clark et al. 2020, appendix A).

    The draw is the largest of logits - log(-log u), u uniform (the Gumbel trick). No gradient
    passes.

    Args:
        logits: Float[*N V].
        rng: of the draws.

    Returns:
        Int[*N].
    """
    scores = logits.detach().float()
    # The logarithm of an exponential draw is the negative of a Gumbel draw.
    noise = torch.empty_like(scores).exponential_(generator=rng).log()
    return (scores - noise).argmax(dim=-1)


def replace_tokens(ids: Tensor, loss_mask: Tensor, sampled: Tensor) -> Replaced:
    """Put sampled tokens into a text (Clark et al. 2020, section 2).

    A sample that happens to be the original token does not count as replaced.

    >>> ids, chosen = torch.tensor([[5, 6, 7]]), torch.tensor([[True, True, False]])
    >>> replace_tokens(ids, chosen, torch.tensor([5, 9]))
    Replaced(ids=tensor([[5, 9, 7]]), replaced=tensor([[False,  True, False]]))

    Args:
        ids: Int[B T].
        loss_mask: Bool[B T], the N positions to fill.
        sampled: Int[N], the new tokens, in reading order.
    """
    seen = ids.clone()
    seen[loss_mask] = sampled.to(ids.dtype)
    return Replaced(seen, seen != ids)


def original(ids: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
    """The text before `mask_tokens` hid parts of it, Int[B T]."""
    return replace_tokens(ids, loss_mask, labels[loss_mask]).ids
