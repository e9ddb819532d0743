"""Decoding filters: functions that change the next token's logits before it is drawn.

A token that a filter leaves out has the logit -inf. Filters are applied one after the other:

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
    """Divide the logits: below 1 the likely tokens become likelier, above 1 less likely.

    Raises:
        CourseError: if the value is not above 0; its limit at 0 is greedy decoding.
    """
    _check("temperature", value, value > 0, "above 0 (greedy choice is the limit at 0)")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        return logits / value

    return apply


def top_k(k: int) -> Filter:
    """Keep the k likeliest tokens (Fan et al. 2018, section 5.1)."""
    _check("top_k", k, k >= 1, "at least 1")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        values, tokens = logits.topk(min(k, logits.shape[-1]))
        return _only(tokens, values, logits)

    return apply


def top_p(p: float) -> Filter:
    """Keep the smallest set of tokens whose probability reaches p (Holtzman et al. 2020, 3.1).

    At p = 1 every token stays.
    """
    _check("top_p", p, 0 < p <= 1, "above 0, at most 1")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        if p == 1:
            return logits
        values, tokens = logits.sort(dim=-1)  # *B V, likeliest last
        # What a token and all less likely ones make up.
        share = values.softmax(dim=-1).cumsum(dim=-1)
        leaves = share <= 1 - p
        leaves[..., -1] = False  # the likeliest stays in any case
        return _only(tokens, values.masked_fill(leaves, -torch.inf), logits)

    return apply


def min_p(p: float) -> Filter:
    """Keep tokens at least p times as probable as the likeliest (Nguyen et al. 2024, section 3).

    Where the model is sure, few tokens stay; where it is not, many do.
    """
    _check("min_p", p, 0 <= p <= 1, "from 0 to 1")

    def apply(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        probs = logits.softmax(dim=-1)
        least = p * probs.amax(dim=-1, keepdim=True)
        return logits.masked_fill(probs < least, -torch.inf)

    return apply


# By the name that `generate(..., top_p=0.9)` and the command line use, in the order of application.
FILTERS: dict[str, Callable[[Any], Filter]] = {
    "temperature": temperature,
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
}


def by_name(**settings: float | None) -> list[Filter]:
    """`by_name(top_p=0.9)` is `[top_p(0.9)]`. A filter that is None is left out.

    Raises:
        CourseError: if there is no filter of a name.
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


def _check(name: str, value: float, is_good: bool, limits: str) -> None:
    """A `CourseError` if the value is not within the limits."""
    if not is_good:
        raise CourseError(f"{name} is {limits}; got {value}.")


def _only(tokens: Tensor, values: Tensor, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    """The values at their tokens, and -inf everywhere else."""
    return torch.full_like(logits, -torch.inf).scatter(-1, tokens, values)
