"""Lesson 08: GELU, the next-token loss, temperature, an input of two texts."""

import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import answer, integers, listed, normal, row_mask
from classroom.checks.exercise import exercise


@exercise(lambda g: [(torch.linspace(-6, 6, 97),), (normal(g, 2, 3, 4),)])
def gelu(x: Tensor) -> Tensor:
    """x Phi(x) = x/2 (1 + erf(x / sqrt 2)), exactly (Hendrycks and Gimpel 2016)."""
    return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


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


@exercise(lambda g: [(2 * normal(g, 6), 0.5), (2 * normal(g, 2, 6), 2.0), (2 * normal(g, 6), 1.0)])
def temperature(logits: Tensor, temperature: float) -> Tensor:
    """The softmax of logits / temperature over the last dimension."""
    return (logits / temperature).softmax(-1)


@exercise(
    [([11, 12, 13], [21, 22], 1, 2, 3), ([31], [41, 42, 43, 44], 7, 8, 9)],
    form=listed,
)
def entailment_input(
    premise: list[int], hypothesis: list[int], start: int, delim: int, extract: int
) -> list[int]:
    """The list of ids: start, premise, delim, hypothesis, extract."""
    return [start, *premise, delim, *hypothesis, extract]
