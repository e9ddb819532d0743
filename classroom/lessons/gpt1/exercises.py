"""Lesson 08: the next-token loss, an input for any task, the vector that a classifier reads."""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import answer, integers, listed, normal, row_mask
from classroom.checks.exercise import exercise


def _takes_the_mask(fn: Any) -> None:
    """A function of logits and ids alone cannot know which targets are real."""
    case = next_token_loss.draw()[0]
    try:
        inspect.signature(fn).bind(*case.values())
    except (TypeError, ValueError):
        answer(fn, {name: case[name] for name in ("logits", "ids")})  # is it a function of two?
        next_token_loss.refuse(True, "no_mask")
    next_token_loss.compare(fn)


def _language(g: Generator, vocab: int, *lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    attention_mask = row_mask(*lengths)
    return (
        2 * normal(g, *attention_mask.shape, vocab),
        integers(g, vocab, *attention_mask.shape),
        attention_mask,
    )


@exercise(
    lambda g: [
        _language(g, 7, 6, 3),
        _language(g, 7, 6, 6),
        _language(g, 11, 4),
        _language(g, 5, 5, 5, 5),
    ],
    judge=_takes_the_mask,
    learns="logits",
)
def next_token_loss(logits: Tensor, ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Mean cross-entropy in nats of each token given those before it.

    logits [B T V], ids Int[B T], attention_mask Bool[B T] (True = real token; only real targets
    count)."""
    kept = attention_mask[:, 1:]
    losses = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    return losses[kept].mean()


@exercise(
    [
        ([[11, 12, 13]], 1, 2, 3),
        ([[11, 12, 13], [21, 22]], 1, 2, 3),
        ([[31], [41, 42, 43, 44]], 7, 8, 9),
    ],
    form=listed,
)
def task_input(texts: list[list[int]], start: int, delim: int, extract: int) -> list[int]:
    """The list of ids: start, the texts with delim between them, extract."""
    row = [start]
    for i, text in enumerate(texts):
        if i > 0:
            row.append(delim)
        row.extend(text)
    return [*row, extract]


@exercise(
    lambda g: [
        (normal(g, len(lengths), max(lengths), 4), row_mask(*lengths))
        for lengths in ((5, 2, 3), (4,), (3, 3, 6, 1))
    ],
    learns="h",
)
def extract_vector(h: Tensor, attention_mask: Tensor) -> Tensor:
    """The vector of each row's last real token; h [B T D], attention_mask Bool[B T]."""
    last = attention_mask.sum(1) - 1
    return h[torch.arange(len(h)), last]
