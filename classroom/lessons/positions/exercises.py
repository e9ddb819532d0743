"""Lesson 03: sinusoids, clipped distances, rotations, ALiBi's penalty."""

import torch
from torch import Tensor

from classroom.checks.exercise import exercise


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


@exercise(
    lambda g: [
        (torch.randn(3, 4, generator=g), torch.randn(3, 2, generator=g)),
        (torch.randn(2, 5, 6, generator=g), torch.arange(5)[:, None] / torch.tensor([1.0, 4, 20])),
        (torch.randn(2, 3, 4, 8, generator=g), 2 * torch.randn(4, 4, generator=g)),
    ],
)
def turn(x: Tensor, angles: Tensor) -> Tensor:
    """[... T d]: components 2i and 2i + 1 of x, turned counter-clockwise by angle i of their row.

    angles [T d/2], in radians.
    """
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


@exercise([(4, 5), (8, 3), (2, 6)])
def alibi_bias(heads: int, length: int) -> Tensor:
    """[heads length length]: minus the head's slope times the distance of query and key.

    heads is a power of two; head h (from 0) has the slope 2^(-8 (h + 1) / heads).
    """
    h, here = torch.arange(heads), torch.arange(length)
    slopes = 2.0 ** (-8 * (h + 1) / heads)
    away = here - here[:, None]
    return -slopes[:, None, None] * away.abs()
