"""Lesson 03: sinusoids, clipped distances, rotary attention, ALiBi's penalty."""

import math

import torch
from torch import Tensor

from classroom.checks.attention.attention import qkv
from classroom.checks.base import Case, outcome
from classroom.checks.exercise import exercise


@exercise(
    [(torch.arange(6), 8), (torch.tensor([3, 0, 50]), 4), (torch.tensor([7, 2, 2, 11, 4]), 12)],
    """
    halves_cosine_first: stack((angles.sin(), angles.cos()), dim=-1).flatten(-2) => cat((angles.cos(), angles.sin()), dim=-1)
    halves: stack((angles.sin(), angles.cos()), dim=-1).flatten(-2) => cat((angles.sin(), angles.cos()), dim=-1)
    cosine_first: (angles.sin(), angles.cos()) => (angles.cos(), angles.sin())
    from_one: positions[:, None] => (positions + 1)[:, None]
    half_exponent: -2 * i => -1 * i
    exponent_sign: -2 * i => 2 * i
    double_exponent: -2 * i => -4 * i
    base: 10000.0 => 1000.0
    unused: positions[:, None] => torch.arange(len(positions))[:, None]
    no_pairs: width // 2 => width && -2 * i => -i && angles.sin(), angles.cos()), dim=-1).flatten(-2) => angles.sin()[:, ::2], angles.cos()[:, 1::2]), dim=-1).flatten(-2)
    transposed: .flatten(-2) => .flatten(-2).T
    """,  # noqa: E501
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
    """
    no_clip: .clamp(-clip, clip) =>
    not_moved: + clip =>
    sign: k_pos - q_pos[:, None] => q_pos[:, None] - k_pos
    transposed: => ((k_pos - q_pos[:, None]).clamp(-clip, clip) + clip).T
    unsigned: away.clamp(-clip, clip) + clip => away.abs().clamp(max=clip)
    unsigned: away.clamp(-clip => away.abs().clamp(-clip
    right_only: -clip, clip) => max=clip)
    left_only: -clip, clip) => min=-clip)
    added_first: away.clamp(-clip, clip) + clip => (away + clip).clamp(-clip, clip)
    too_early: (-clip, clip) + clip => (1 - clip, clip - 1) + clip - 1
    unused: k_pos - q_pos[:, None] => torch.arange(len(k_pos)) - torch.arange(len(q_pos))[:, None]
    """,
)
def relative_index(q_pos: Tensor, k_pos: Tensor, clip: int) -> Tensor:
    """Int[Tq Tk]: the row of a table of 2 clip + 1 vectors for each query and key.

    Row 0 is for keys `clip` or more places to the left, row `clip` for the word itself.
    """
    away = k_pos - q_pos[:, None]
    return away.clamp(-clip, clip) + clip


def _first_only(fn: object, case: Case) -> str:
    """A query at position 0 is not turned, a key at position 0 neither: is at least that score right?"""
    alone = {name: value[..., :1, :] for name, value in case.items()}
    value = outcome(fn, alone)
    fits = isinstance(value, Tensor) and value.shape == alone["v"].shape
    return rotary_attention.says["single_word"] if fits and not torch.allclose(value, alone["v"]) else ""


def _from_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Positions that count from one change nothing, since only the difference counts."""
    turned: Tensor = rotary_attention.variant(("first: int = 0", "first: int = 1"))(q, k, v)
    return turned


@exercise(
    lambda g: [qkv(g, 5, 5, 4, 4), qkv(g, 4, 4, 6, 6, 2), qkv(g, 7, 7, 8, 8, 2, 3)],
    """
    values_turned: @ v => @ turn(v)
    queries_only: turn(k) => k
    keys_only: turn(q) => q
    none_turned: turn(q) => q && turn(k) => k
    sign: + first) * sign => + first) * -sign
    opposite: turn(k) => turn(k, sign=-1)
    opposite: turn(q) => turn(q, sign=-1)
    halves: x[..., 0::2], x[..., 1::2] => x.chunk(2, -1) && stack => cat && .flatten(-2) =>
    one_speed: 10000.0 => 1.0
    half_speed: -torch.arange(0, width, 2) => -torch.arange(width // 2)
    growing: -torch.arange => torch.arange
    unscaled: / math.sqrt(q.shape[-1]) =>
    over_batch: axis = -2 => axis = 0
    over_heads: axis = -2 => axis = 1
    queries_from_one: turn(q) => turn(q, first=1)
    keys_from_one: turn(k) => turn(k, first=1)
    single_word...: @ v => @ v * 1.01
    """,
    also=[_from_one],
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


@exercise(
    [(4, 5), (8, 3), (2, 6)],
    """
    sign: -slopes => slopes
    from_zero: (h + 1) => h
    always_8: -8 * (h + 1) / heads => -(h + 1.0)
    linear: 2.0 ** (-8 * (h + 1) / heads) => 1 - h / heads
    right_rewarded: away.abs() => away
    left_rewarded: away.abs() => -away
    squared: away.abs() => away**2
    one_slope: (h + 1) => (0 * h + 1)
    heads_last: [:, None, None] * away.abs() => * away.abs()[..., None]
    """,
)
def alibi_bias(heads: int, length: int) -> Tensor:
    """[heads length length]: minus the head's slope times the distance of query and key.

    heads is a power of two; head h (from 0) has the slope 2^(-8 (h + 1) / heads).
    """
    h, here = torch.arange(heads), torch.arange(length)
    slopes = 2.0 ** (-8 * (h + 1) / heads)
    away = here - here[:, None]
    return -slopes[:, None, None] * away.abs()
