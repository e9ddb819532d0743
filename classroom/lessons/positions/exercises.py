"""Lesson 03: sinusoids, clipped distances, rotary attention, ALiBi's penalty."""

import math

import torch
from torch import Tensor

from classroom.checks.base import Case, close, outcome
from classroom.checks.exercise import exercise
from classroom.lessons.self_attention.exercises import qkv


@exercise(
    [(torch.arange(6), 8), (torch.tensor([3, 0, 50]), 4), (torch.tensor([7, 2, 2, 11, 4]), 12)]
)
def sinusoidal(positions: Tensor, width: int) -> Tensor:
    """[T width]: sin(p / 10000^(2i / width)) at component 2i, its cosine at 2i + 1.

    positions Int[T], any places in any order; width even.
    """
    i = torch.arange(width // 2)
    angles = positions[:, None] * 10000.0 ** (-2 * i / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


@exercise(
    [
        (torch.arange(6), torch.arange(6), 2),
        (torch.tensor([9]), torch.arange(10), 4),
        (torch.tensor([0, 5, 1]), torch.tensor([2, 8, 3, 0]), 3),
    ],
)
def relative_index(q_pos: Tensor, k_pos: Tensor, clip: int) -> Tensor:
    """Int[Tq Tk]: the row of a table of 2 clip + 1 vectors for each query and key.

    Row 0 is for keys `clip` or more places to the left, row `clip` for the word itself.
    """
    away = k_pos - q_pos[:, None]
    return away.clamp(-clip, clip) + clip


def _first_only(fn: object, case: Case) -> str:
    """A query at position 0 is not turned, a key at position 0 neither: is at least that score
    right?
    """
    alone = {name: value[..., :1, :] for name, value in case.items()}
    value = outcome(fn, alone)
    fits = isinstance(value, Tensor) and value.shape == alone["v"].shape
    return rotary_attention.says["single_word"] if fits and not close(value, alone["v"]) else ""


@exercise(
    lambda g: [qkv(g, 5, 5, 4, 4), qkv(g, 4, 4, 6, 6, 2), qkv(g, 7, 7, 8, 8, 2, 3)],
    hint=_first_only,
)
def rotary_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention [... T Dh] whose queries and keys are turned by their positions 0, 1, 2, ...

    Components 2i and 2i + 1 make a pair, turned counter-clockwise by position * 10000^(-2i / Dh).
    """

    def turn(x: Tensor, sign: int = 1, first: int = 0) -> Tensor:
        axis = -2
        width = x.shape[-1]
        places = (torch.arange(x.shape[axis]) + first) * sign
        shape = [1] * x.dim()
        shape[axis] = -1
        angles = places.view(shape) * 10000.0 ** (-torch.arange(0, width, 2) / width)
        a, b = x[..., 0::2], x[..., 1::2]
        pair = (a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos())
        return torch.stack(pair, -1).flatten(-2)

    return (turn(q) @ turn(k).mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


@exercise([(4, 5), (8, 3), (2, 6)])
def alibi_bias(heads: int, length: int) -> Tensor:
    """[heads length length]: minus the head's slope times the distance of query and key.

    heads is a power of two; head h (from 0) has the slope 2^(-8 (h + 1) / heads).
    """
    h, here = torch.arange(heads), torch.arange(length)
    slopes = 2.0 ** (-8 * (h + 1) / heads)
    away = here - here[:, None]
    return -slopes[:, None, None] * away.abs()
