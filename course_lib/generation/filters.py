"""Decoding filters: functions that change the next token's logits before it is sampled.

    probabilities of four tokens     0.50   0.30   0.15   0.05
    temperature(0.5)                 0.68   0.25   0.06   0.01
    top_k(2)                         0.62   0.38   0      0
    top_p(0.7)                       0.62   0.38   0      0        0.50 + 0.30 reach 0.7
    min_p(0.2)                       0.53   0.32   0.16   0        0.05 is below 0.2 * 0.50

A filter works on logits. It removes a token by setting its logit to -inf. Filters are applied one
after the other:

    generate(model, ids, max_new_tokens=20, do_sample=True, filters=[temperature(0.8), top_p(0.9)])

A new filter is a function here and an entry in `FILTERS`.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError

Filter = Callable[[Float[Tensor, "*B V"]], Float[Tensor, "*B V"]]


def temperature(value: float) -> Filter:
    """Divide the logits. Below 1 the probable tokens become more probable, above 1 less probable.

    Raises:
        CourseError: the value is not above 0. Towards 0 it becomes greedy decoding.
    """
    _check("temperature", value, value > 0, "above 0 (greedy choice is the limit at 0)")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        return logits / value

    return apply


def top_k(k: int) -> Filter:
    """Keep the k most probable tokens (Fan et al. 2018, section 5.1)."""
    _check("top_k", k, k >= 1, "at least 1")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        values, tokens = logits.topk(min(k, logits.shape[-1]))
        return _only(tokens, values, logits)

    return apply


def top_p(p: float) -> Filter:
    """Keep the fewest tokens whose probabilities add up to p (Holtzman et al. 2020, section 3.1).

    At p = 1 every token stays.
    """
    _check("top_p", p, 0 < p <= 1, "above 0, at most 1")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        if p == 1:
            return logits
        values, tokens = logits.sort(dim=-1)  # *B V, ascending
        # The probability of a token and of all less probable ones together.
        cumulative = values.softmax(dim=-1).cumsum(dim=-1)
        is_removed = cumulative <= 1 - p
        is_removed[..., -1] = False  # keep the most probable token, whatever p is
        return _only(tokens, values.masked_fill(is_removed, -torch.inf), logits)

    return apply


def min_p(p: float) -> Filter:
    """Keep tokens at least p times as probable as the best one (Nguyen et al. 2024, section 3).

    Few tokens stay where the model is confident, and many where it is not.
    """
    _check("min_p", p, 0 <= p <= 1, "from 0 to 1")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        probs = logits.softmax(dim=-1)
        threshold = p * probs.amax(dim=-1, keepdim=True)
        return logits.masked_fill(probs < threshold, -torch.inf)

    return apply


# Filters by name, as in `generate(..., top_p=0.9)` and on the command line. Named filters are
# applied in this order, which is that of transformers.
FILTERS: dict[str, Callable[[Any], Filter]] = {
    "temperature": temperature,
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
}


def by_name(**settings: float | None) -> list[Filter]:
    """Filters from keywords: `by_name(top_p=0.9, top_k=None)` is `[top_p(0.9)]`.

    Raises:
        CourseError: there is no filter of this name.
    """
    for name in settings:
        if name not in FILTERS:
            raise CourseError(f"There is no filter {name!r}; there are {', '.join(FILTERS)}.")
    filters = []
    for name, make in FILTERS.items():
        value = settings.get(name)
        if value is not None:
            filters.append(make(value))
    return filters


def _check(name: str, value: float, is_valid: bool, limits: str) -> None:
    if not is_valid:
        raise CourseError(f"{name} is {limits}; got {value}.")


def _only(tokens: Tensor, values: Tensor, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    """Logits with these values at these tokens, and -inf at all others."""
    return torch.full_like(logits, -torch.inf).scatter(-1, tokens, values)
