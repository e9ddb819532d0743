"""ELECTRA's replaced tokens: a small model, the generator, fills in masked tokens.

(Clark et al. 2020.) A second model, the discriminator, finds out which tokens are not the original.

    original        the chef cooked the meal
    masked          the chef [MASK] the meal
    filled in       the chef ate    the meal
    replaced        no  no   yes    no  no       what the discriminator must predict
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Replaced(NamedTuple):
    """The discriminator's input, and its labels."""

    ids: Tensor  # Int[B T]
    replaced: Tensor  # Bool[B T], True where a token differs from the original


def sample(logits: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Draw a token from softmax(logits) for each row (Clark et al. 2020, appendix A).

    It is the index of the largest logits - log(-log u), where each u is a random number from 0 to 1
    (the Gumbel trick). This needs no softmax. No gradient passes through.

    Args:
        logits: Float[*N V].
        rng: random generator.

    Returns:
        Int[*N].
    """
    scores = logits.detach().float()
    # -log u is exponentially distributed, so this is log(-log u).
    noise = torch.empty_like(scores).exponential_(generator=rng).log()
    return (scores - noise).argmax(dim=-1)


def replace_tokens(ids: Tensor, loss_mask: Tensor, sampled: Tensor) -> Replaced:
    """Put the generator's tokens into a text (Clark et al. 2020, section 2).

    A token that happens to be the original one does not count as replaced.

    >>> ids, chosen = torch.tensor([[5, 6, 7]]), torch.tensor([[True, True, False]])
    >>> replace_tokens(ids, chosen, torch.tensor([5, 9]))
    Replaced(ids=tensor([[5, 9, 7]]), replaced=tensor([[False,  True, False]]))

    Args:
        ids: Int[B T], the original text.
        loss_mask: Bool[B T], True at the N positions to fill.
        sampled: Int[N], the new tokens, row by row.
    """
    new = ids.clone()
    new[loss_mask] = sampled.to(ids.dtype)
    return Replaced(new, new != ids)


def original(ids: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
    """Undo `mask_tokens`: put the hidden tokens, which are the labels, back. Int[B T]."""
    return replace_tokens(ids, loss_mask, labels[loss_mask]).ids
