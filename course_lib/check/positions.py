"""Checks of lesson 03: sinusoids, clipped distances, rotary attention, ALiBi's penalty."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.check.attention import normal
from course_lib.check.base import Case, Mistake, Verdict, compare, outcome, report
from course_lib.positions import Alibi, distance

BASE = 10000.0


def sinusoidal(fn: object) -> Verdict:
    """`fn(positions, width)` -> [T width]: sin(p / 10000^(2i / width)) at component 2i, its cosine at 2i + 1.

    positions Int[T], any places in any order; width even.
    """
    cases: list[Case] = [
        {"positions": torch.arange(6), "width": 8},
        {"positions": torch.tensor([3, 0, 50]), "width": 4},
        {"positions": torch.tensor([7, 2, 2, 11, 4]), "width": 12},
    ]

    def test() -> str:
        compare(fn, cases, _waves(), _WAVE_MISTAKES)
        return "widths 4, 8 and 12, positions in order, out of order and far away"

    return report("sinusoidal", test)


def relative_index(fn: object) -> Verdict:
    """`fn(q_pos, k_pos, clip)` -> Int[Tq Tk]: the row of a table of 2 clip + 1 vectors for each query and key.

    Row 0 is for keys `clip` or more places to the left, row `clip` for the word itself.
    """
    cases: list[Case] = [
        {"q_pos": torch.arange(6), "k_pos": torch.arange(6), "clip": 2},
        {"q_pos": torch.tensor([9]), "k_pos": torch.arange(10), "clip": 4},
        {"q_pos": torch.tensor([0, 5, 1]), "k_pos": torch.tensor([2, 8, 3, 0]), "clip": 3},
    ]

    def test() -> str:
        compare(fn, cases, lambda q, k, clip: distance(q[None], k[None])[0].clamp(-clip, clip) + clip, _CLIP_MISTAKES)
        return "a square of six words, one query over ten keys, positions out of order; clips of 2, 3 and 4"

    return report("relative_index", test)


def rotary_attention(fn: object) -> Verdict:
    """`fn(q, k, v)`: attention [... T Dh] whose queries and keys are turned by their positions 0, 1, 2, ...

    Components 2i and 2i + 1 make a pair, turned counter-clockwise by position * 10000^(-2i / Dh).
    """
    cases = [_qkv(0, 5, 4), _qkv(1, 4, 6, 2), _qkv(2, 7, 8, 2, 3)]

    def test() -> str:
        compare(fn, cases, _attend(_turn(), _turn()), _rotary_mistakes(), hints=lambda: _first_only(fn, cases[0]))
        return "one sequence, a batch, a batch of heads; head widths 4, 6 and 8"

    return report("rotary_attention", test)


def alibi_bias(fn: object) -> Verdict:
    """`fn(heads, length)` -> [heads length length]: minus the head's slope times the distance of query and key.

    heads is a power of two; head h (from 0) has the slope 2^(-8 (h + 1) / heads).
    """
    cases: list[Case] = [{"heads": 4, "length": 5}, {"heads": 8, "length": 3}, {"heads": 2, "length": 6}]

    def test() -> str:
        compare(fn, cases, lambda h, n: _penalty(torch.tensor(Alibi.geometric(h)), n), _ALIBI_MISTAKES)
        return "2, 4 and 8 heads, their slopes and the distances on both sides"

    return report("alibi_bias", test)


# ---------------------------------------------------------------- sinusoids
Angles = Callable[[Tensor, int], Tensor]
Join = Callable[[Tensor], Tensor]


def _angles(exponent: float = 2.0, sign: float = -1.0, shift: int = 0, base: float = BASE) -> Angles:
    def angles(positions: Tensor, width: int) -> Tensor:
        return (positions + shift)[:, None] * base ** (sign * exponent * torch.arange(width // 2) / width)

    return angles


def _in_turn(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> Join:
    return lambda angles: torch.stack((first(angles), second(angles)), dim=-1).flatten(-2)


_JOINS: dict[str, Join] = {
    "": _in_turn(torch.sin, torch.cos),
    "Sine and cosine stand in two halves; here they take turns, the sine of frequency i at component 2i and its "
    "cosine at 2i + 1": lambda angles: torch.cat((angles.sin(), angles.cos()), dim=-1),
    "Sine and cosine have changed places: the sine comes first, at the even components": _in_turn(torch.cos, torch.sin),
    "Sine and cosine stand in two halves, and the cosine comes first; they take turns here, the sine at the even "
    "components": lambda angles: torch.cat((angles.cos(), angles.sin()), dim=-1),
}
_ANGLES: dict[str, Angles] = {
    "": _angles(),
    "The positions count from one: position 0 must give sin 0 = 0 and cos 0 = 1": _angles(shift=1),
    "The exponent falls half as fast as it should: it is 2i / width, so that the last pair comes near 1/10000": (
        _angles(exponent=1.0)
    ),
    "The exponent has the wrong sign: the angle is the position divided by 10000^(2i / width)": _angles(sign=1.0),
    "The exponent is 4i / width: 2i is counted twice": _angles(exponent=4.0),
    "The base is 1000; the paper has 10000": _angles(base=1000.0),
    "`positions` is not used: it may hold any places in any order, not 0, 1, 2, ... only": (
        lambda positions, width: _angles()(torch.arange(len(positions)), width)
    ),
}


def _waves(angles: Angles = _ANGLES[""], join: Join = _JOINS[""]) -> Callable[[Tensor, int], Tensor]:
    return lambda positions, width: join(angles(positions, width))


_WAVE_MISTAKES = sorted(
    (
        Mistake(". And: ".join(says for says in (a, b) if says) + ".", _waves(angles, join))
        for (a, angles), (b, join) in itertools.product(_ANGLES.items(), _JOINS.items())
        if a or b
    ),
    key=lambda mistake: mistake.says.count(". And: "),
) + [
    Mistake(
        "Every component has a frequency of its own; sine and cosine share one in pairs, so the exponent is the same "
        "at components 2i and 2i + 1.",
        lambda positions, width: torch.where(
            torch.arange(width) % 2 == 0,
            (positions[:, None] * BASE ** (-torch.arange(width) / width)).sin(),
            (positions[:, None] * BASE ** (-torch.arange(width) / width)).cos(),
        ),
    ),
    Mistake(
        "The result is [width T]: positions are rows, components columns.",
        lambda positions, width: _waves()(positions, width).T,
    ),
]


# ---------------------------------------------------------------- clipped distances
def _away(q: Tensor, k: Tensor) -> Tensor:
    return k[None, :] - q[:, None]


_CLIP_MISTAKES = [
    Mistake(
        "The clipping is missing: a distance beyond `clip` has no row of its own, it shares the last one. clamp(-clip, "
        "clip) before you add.",
        lambda q, k, clip: _away(q, k) + clip,
    ),
    Mistake(
        "The distances are not moved up: rows of a table count from 0, so add `clip` after clipping. A negative index "
        "would silently count from the end.",
        lambda q, k, clip: _away(q, k).clamp(-clip, clip),
    ),
    Mistake(
        "The sign is turned round: it is key minus query, so that keys on the left are negative and come first.",
        lambda q, k, clip: (-_away(q, k)).clamp(-clip, clip) + clip,
    ),
    Mistake(
        "It is transposed: rows are queries, columns are keys.",
        lambda q, k, clip: (_away(q, k).clamp(-clip, clip) + clip).T,
    ),
    Mistake(
        "Left and right are not told apart: the distance has a sign here, so leave out abs().",
        lambda q, k, clip: _away(q, k).abs().clamp(max=clip),
    ),
    Mistake(
        "Left and right are not told apart: the distance has a sign here, so leave out abs().",
        lambda q, k, clip: _away(q, k).abs().clamp(max=clip) + clip,
    ),
    Mistake(
        "Only one side is clipped: keys far to the right are, those far to the left get negative rows.",
        lambda q, k, clip: _away(q, k).clamp(max=clip) + clip,
    ),
    Mistake(
        "Only one side is clipped: keys far to the left are, those far to the right fall out of the table.",
        lambda q, k, clip: _away(q, k).clamp(min=-clip) + clip,
    ),
    Mistake(
        "`clip` is added before clipping, so all keys on the right share one row. Clip the distance first, then add.",
        lambda q, k, clip: (_away(q, k) + clip).clamp(-clip, clip),
    ),
    Mistake(
        "Clipped one too early: distances from -clip to clip all have a row, 2 clip + 1 in all.",
        lambda q, k, clip: _away(q, k).clamp(1 - clip, clip - 1) + clip - 1,
    ),
    Mistake(
        "The positions themselves are not used: they may be in any order, and there may be more keys than queries.",
        lambda q, k, clip: _away(torch.arange(len(q)), torch.arange(len(k))).clamp(-clip, clip) + clip,
    ),
]


# ---------------------------------------------------------------- rotary
Turn = Callable[[Tensor], Tensor]


def _turn(
    sign: float = 1.0, exponent: float = 2.0, neighbours: bool = True, shift: int = 0, axis: int = -2, slow: bool = True
) -> Turn:
    """Pairs of components turned by place times frequency; the arguments are the slips."""

    def turned(x: Tensor) -> Tensor:
        width = x.shape[-1]
        steps = torch.arange(width // 2) if slow else torch.zeros(width // 2)
        places = torch.arange(x.shape[axis]) + shift
        shape = [1] * x.dim()
        shape[axis] = -1
        angles = sign * places.view(shape) * BASE ** (-exponent * steps / width)
        a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else x.chunk(2, dim=-1)
        parts = (a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos())
        return torch.stack(parts, dim=-1).flatten(-2) if neighbours else torch.cat(parts, dim=-1)

    return turned


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _attend(
    turn_q: Turn, turn_k: Turn, turn_v: Turn = _as_it_is, scale: Callable[[int], float] = lambda d: d**-0.5
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda q, k, v: (turn_q(q) @ turn_k(k).mT * scale(q.shape[-1])).softmax(-1) @ turn_v(v)


_OPPOSITE = (
    "Queries and keys are turned in opposite directions, so the score depends on the sum of the positions. Turn both "
    "the same way; the dot product makes the difference by itself."
)


def _rotary_mistakes() -> list[Mistake]:
    right, back = _turn(), _turn(sign=-1.0)
    return [
        Mistake(
            "The values are turned too. Position belongs into the comparison of query and key; the values are handed "
            "over as they are, or every output would hold vectors turned by different angles.",
            _attend(right, right, right),
        ),
        Mistake("Only the queries are turned; the keys must be, too.", _attend(right, _as_it_is)),
        Mistake("Only the keys are turned; the queries must be, too.", _attend(_as_it_is, right)),
        Mistake("Nothing is turned: this is plain attention, which has no order.", _attend(_as_it_is, _as_it_is)),
        Mistake(
            "The sign of the rotation is turned round: the first component of a pair becomes a cos - b sin, the second "
            "a sin + b cos.",
            _attend(back, back),
        ),
        Mistake(
            _OPPOSITE,
            _attend(right, back),
        ),
        Mistake(
            _OPPOSITE,
            _attend(back, right),
        ),
        Mistake(
            "Component i is paired with i + Dh/2, as Llama does; here neighbours make a pair, x[..., 0::2] and "
            "x[..., 1::2].",
            _attend(_turn(neighbours=False), _turn(neighbours=False)),
        ),
        Mistake(
            "All pairs turn at the same speed; pair i turns by position * 10000^(-2i / Dh).",
            _attend(_turn(slow=False), _turn(slow=False)),
        ),
        Mistake(
            "The frequencies fall half as fast as they should: the exponent of pair i is -2i / Dh.",
            _attend(_turn(exponent=1.0), _turn(exponent=1.0)),
        ),
        Mistake(
            "The frequencies grow with the pair: the exponent is -2i / Dh, with a minus.",
            _attend(_turn(exponent=-2.0), _turn(exponent=-2.0)),
        ),
        Mistake(
            "The scores are not divided by sqrt(Dh).",
            _attend(right, right, scale=lambda d: 1.0),
        ),
        Mistake(
            "The positions run along dimension 0, which is the batch where there is one; they belong to dim=-2.",
            _attend(_turn(axis=0), _turn(axis=0)),
        ),
        Mistake(
            "The positions run along dimension 1, which is the heads where there are any; they belong to dim=-2.",
            _attend(_turn(axis=1), _turn(axis=1)),
        ),
        Mistake(
            "Only the queries count their positions from one, so every distance is off by one.",
            _attend(_turn(shift=1), right),
        ),
        Mistake(
            "Only the keys count their positions from one, so every distance is off by one.",
            _attend(right, _turn(shift=1)),
        ),
    ]


def _first_only(fn: object, case: Case) -> str:
    """A query at position 0 is not turned, a key at position 0 neither: is at least that score right?"""
    alone = {name: value[..., :1, :] for name, value in case.items()}
    value = outcome(fn, alone)
    if isinstance(value, Tensor) and value.shape == alone["v"].shape and not torch.allclose(value, alone["v"]):
        return (
            "A single word must come back as its own value, since position 0 is turned by 0 and the softmax over one "
            "key is 1; it does not. Look at what happens to the values."
        )
    return ""


def _qkv(seed: int, length: int, width: int, *batch: int) -> dict[str, Tensor]:
    q, k, v = (normal(3 * seed + i, *batch, length, width) for i in range(3))
    return {"q": 2 * q, "k": k, "v": v}


# ---------------------------------------------------------------- ALiBi
def _penalty(slopes: Tensor, length: int) -> Tensor:
    here = torch.arange(length)
    return -slopes[:, None, None] * _away(here, here).abs()


_ALIBI_MISTAKES = [
    Mistake(
        "The sign is missing: far keys would be rewarded. It is minus the slope times the distance.",
        lambda h, n: -_penalty(torch.tensor(Alibi.geometric(h)), n),
    ),
    Mistake(
        "The first head has slope 1: slopes begin with 2^(-8 / heads), so the exponent counts heads from one.",
        lambda h, n: _penalty(2.0 ** (-8 * torch.arange(h) / h), n),
    ),
    Mistake(
        "The slopes are 1/2, 1/4, 1/8, ... whatever the number of heads; that is so for 8 heads only. The exponent is "
        "-8 (h + 1) / heads.",
        lambda h, n: _penalty(2.0 ** -(torch.arange(h) + 1.0), n),
    ),
    Mistake(
        "The slopes fall linearly; they are powers of two, 2^(-8 (h + 1) / heads).",
        lambda h, n: _penalty(1 - torch.arange(h) / h, n),
    ),
    Mistake(
        "The distance keeps its sign, so keys on the right are rewarded; it counts on both sides, abs().",
        lambda h, n: -torch.tensor(Alibi.geometric(h))[:, None, None] * _away(torch.arange(n), torch.arange(n)),
    ),
    Mistake(
        "The distance keeps its sign, so keys on the left are rewarded; it counts on both sides, abs().",
        lambda h, n: torch.tensor(Alibi.geometric(h))[:, None, None] * _away(torch.arange(n), torch.arange(n)),
    ),
    Mistake(
        "The penalty grows with the square of the distance; it is linear.",
        lambda h, n: -torch.tensor(Alibi.geometric(h))[:, None, None] * _away(torch.arange(n), torch.arange(n)) ** 2,
    ),
    Mistake(
        "All heads have the same slope; each has its own, 2^(-8 (h + 1) / heads).",
        lambda h, n: _penalty(torch.full((h,), 2.0 ** (-8 / h)), n),
    ),
    Mistake(
        "The last dimension holds the heads; they come first, [heads length length].",
        lambda h, n: _penalty(torch.tensor(Alibi.geometric(h)), n).permute(1, 2, 0),
    ),
]

__all__ = ["alibi_bias", "relative_index", "rotary_attention", "sinusoidal"]
