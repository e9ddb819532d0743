"""From logits to a distribution, and from a distribution to a token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError


def next_distribution(
    logits: Float[Tensor, "*B V"], temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Float[Tensor, "*B V"]:
    """Probabilities of the next token.

    Args:
        logits: of any float type. temperature: divides them; below 1 sharpens, above 1 flattens.
        top_k: keep the k likeliest tokens (Fan et al. 2018, section 5.1).
        top_p: of those, keep the smallest set whose probability reaches p (Holtzman et al. 2020, section 3.1).

    Returns: float32, each row adding up to 1; tokens left out have exactly 0.

    >>> next_distribution(torch.tensor([2.0, 1.0, 0.0]).log_softmax(-1), top_k=2).round(decimals=2).tolist()
    [0.73, 0.27, 0.0]
    """
    check_sampling(True, temperature, top_k, top_p)
    logits = logits.float() / temperature
    if top_k is None and top_p is None:
        return logits.softmax(dim=-1)
    size = logits.shape[-1]
    values, tokens = logits.topk(size if top_k is None else min(top_k, size), dim=-1)  # likeliest first
    probs = values.softmax(dim=-1)
    if top_p is not None:
        before = probs.cumsum(dim=-1) - probs  # what the likelier ones already reach
        probs = probs.masked_fill(before >= top_p, 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, tokens, probs)


def draw(distribution: Float[Tensor, "B V"], generator: torch.Generator | None = None) -> Int[Tensor, " B"]:
    """One token a row. Drawn on the generator's device, so that a seed gives the same text on every device."""
    device = distribution.device if generator is None else generator.device
    return torch.multinomial(distribution.to(device), 1, generator=generator)[:, 0].to(distribution.device)


def check_sampling(do_sample: bool, temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse options that contradict each other.

    Raises:
        CourseError: says which.
    """
    if not do_sample and (temperature != 1.0 or top_k is not None or top_p is not None):
        raise CourseError("temperature, top_k and top_p change only how tokens are drawn; add do_sample=True.")
    if not temperature > 0:
        raise CourseError(f"temperature is {temperature}; it must be above 0 (do_sample=False is the limit at 0).")
    if top_k is not None and top_k < 1:
        raise CourseError(f"top_k is {top_k}; keep at least 1 token, or give None for all.")
    if top_p is not None and not 0 < top_p <= 1:
        raise CourseError(f"top_p is {top_p}; it is a probability above 0 and at most 1.")
