"""ELECTRA's corruption: a small generator's guesses take the place of some tokens (Clark et al. 2020, section 2)."""

from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.errors import CourseError


class Replaced(NamedTuple):
    """ids Int[B T]: what the discriminator reads. replaced Bool[B T]: where it differs from the original."""

    ids: Tensor
    replaced: Tensor


def sample(logits: Tensor, rng: torch.Generator | None = None, *, temperature: float = 1.0) -> Tensor:
    """Draw one token a row from softmax(logits / temperature): logits [*N V] -> Int[*N].

    By Gumbel noise: the largest of logits / temperature - log(-log u), u uniform, is such a draw (Clark et al. 2020,
    appendix A; Gumbel 1954). No gradient passes. rng: PyTorch's global generator if None, as dropout has it.

    Raises:
        CourseError: a temperature that is not above 0.
    """
    if temperature <= 0:
        raise CourseError(f"temperature is {temperature}; sampling needs one above 0.")
    scores = logits.detach().float() / temperature
    noise = torch.empty_like(scores).exponential_(generator=rng).log()  # its negative is Gumbel distributed
    return (scores - noise).argmax(dim=-1)


def replace_tokens(ids: Tensor, at: Tensor, sampled: Tensor) -> Replaced:
    """Put sampled tokens into a text. A sample that happens to be the original token does not count as replaced.

    Args:
        ids: Int[B T], the original tokens. at: Bool[B T], where. sampled: Int[N], for those places in reading order.

    >>> replace_tokens(torch.tensor([[5, 6, 7]]), torch.tensor([[True, True, False]]), torch.tensor([5, 9]))
    Replaced(ids=tensor([[5, 9, 7]]), replaced=tensor([[False,  True, False]]))
    """
    if int(at.sum()) != len(sampled):
        raise CourseError(f"There are {int(at.sum())} places to fill and {len(sampled)} tokens to fill them with.")
    seen = ids.masked_scatter(at, sampled.to(ids.dtype))
    return Replaced(seen, seen != ids)


def original(ids: Tensor, labels: Tensor, at: Tensor) -> Tensor:
    """The text as it was before `mask_tokens` or `mask_spans` hid parts of it, Int[B T]."""
    return labels.where(at, ids)
