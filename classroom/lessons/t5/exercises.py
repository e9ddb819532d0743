"""Lesson 17: span corruption, the prefix mask, how often each task is drawn."""

from collections.abc import Sequence

import torch
from torch import Tensor

from classroom.checks.exercise import exercise

_TEXT = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week."]
_MARKS = ["<X>", "<Y>", "<Z>", "<W>"]


@exercise(
    [
        (_TEXT, spans, _MARKS)
        for spans in ([(2, 2), (8, 1)], [(0, 1), (4, 3), (9, 1)], [(3, 4)], [(1, 3), (6, 1)])
    ],
)
def corrupt_spans(
    tokens: list[str], spans: Sequence[tuple[int, int]], sentinels: list[str]
) -> tuple[list[str], list[str]]:
    """(input, target), lists of strings; spans: (start, length), left to right."""
    read: list[str] = []
    said: list[str] = []
    done = 0
    for sign, (start, length) in zip(sentinels, spans, strict=False):
        stop = start + length
        read += [*tokens[done:start], sign]
        said += [sign, *tokens[start:stop]]
        done = stop
    return [*read, *tokens[done:]], [*said, sentinels[len(spans)]]


@exercise([(3, 6), (1, 5), (4, 7), (5, 5)])
def prefix_mask(source: int, length: int) -> Tensor:
    """Bool[T T], True = may attend: the first `source` see each other, the rest looks back."""
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    in_source = torch.arange(length) < source
    return causal | in_source


@exercise(
    [
        ([100, 300, 10_000], 400, 1.0),
        ([100, 900], 10_000, 2.0),
        ([50, 2_000, 70_000, 400_000], 30_000, 4.0),
        ([10, 10], 5, 3.0),
    ],
)
def mixing_rates(sizes: list[int], limit: int, temperature: float) -> list[float]:
    """Shares min(e, limit) ** (1 / temperature), made to add up to 1."""
    weights = [min(size, limit) ** (1 / temperature) for size in sizes]
    return [weight / sum(weights) for weight in weights]
