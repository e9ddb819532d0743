"""Checks of lesson 01: scaled dot-product attention and masks."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, outcome, report, rng


def softmax_attention(fn: object) -> Verdict:
    """`fn(q, k, v)` is softmax(q k^T / sqrt(Dh)) v, for q [... Tq Dh], k [... Tk Dh], v [... Tk Dv]."""
    cases = [_qkv(0, 4, 4, 4, 4), _qkv(1, 3, 5, 8, 6), _qkv(2, 6, 4, 16, 16, (2,)), _qkv(3, 3, 5, 8, 4, (2, 3))]

    def test() -> str:
        compare(fn, cases, _attention, _ATTENTION_MISTAKES)
        return "one sequence and batches, Tq and Tk unlike, widths 4 to 16, four shapes in all"

    return report("softmax_attention", test)


def causal_mask(fn: object) -> Verdict:
    """`fn(T)` is Bool[T T], True where the query (row) may attend to the key (column): on and below the diagonal."""

    def test() -> str:
        compare(
            fn, [{"T": n} for n in (4, 1, 2, 7)], lambda n: torch.ones(n, n, dtype=torch.bool).tril(), _CAUSAL_MISTAKES
        )
        return "True on and below the diagonal, False above, boolean, for T = 1, 2, 4, 7"

    return report("causal_mask", test)


def masked_attention(fn: object) -> Verdict:
    """`fn(q, k, v, mask)`: attention with a mask Bool[#... Tq Tk], True = may attend.

    A query that may attend nowhere must not give NaN; what else it gives is free.
    """
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    padding = torch.tensor([[[True, True, True, True]], [[True, True, False, False]]])
    nowhere = causal.clone()
    nowhere[2] = False
    cases = [
        _qkv(4, 5, 5, 8, 8) | {"mask": causal},
        _qkv(5, 3, 4, 8, 6, (2,)) | {"mask": padding},
        _qkv(6, 5, 5, 4, 4, (2, 3)) | {"mask": causal},
    ]
    empty = _qkv(7, 5, 5, 8, 8) | {"mask": nowhere}

    def test() -> str:
        compare(fn, cases, _masked, _MASKED_MISTAKES, hints=lambda: _leak(fn, cases[0]))
        value = outcome(fn, empty)
        if isinstance(value, Crash) or bool(value.isnan().any()):
            raise WrongError(_NAN)
        return "causal and padding masks, broadcast over batch and heads, and no NaN where a query may attend nowhere"

    return report("masked_attention", test)


def normal(seed: int, *shape: int) -> Tensor:
    """Normal numbers of a fixed seed."""
    return torch.randn(shape, generator=rng(seed))


def _qkv(seed: int, tq: int, tk: int, width: int, value_width: int, batch: tuple[int, ...] = ()) -> dict[str, Tensor]:
    q, k = normal(3 * seed, *batch, tq, width), normal(3 * seed + 1, *batch, tk, width)
    return {"q": 2 * q, "k": k, "v": normal(3 * seed + 2, *batch, tk, value_width)}


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) @ v


Scale = Callable[[Tensor, int, int], Tensor]
_SCALES: dict[str, Scale] = {
    "": lambda s, d, t: s / math.sqrt(d),
    "The scores are not divided by sqrt(Dh)": lambda s, d, t: s,
    "The scores are divided by Dh instead of its square root": lambda s, d, t: s / d,
    "The scores are multiplied by sqrt(Dh) instead of divided": lambda s, d, t: s * math.sqrt(d),
    "The scores are divided by the square root of the number of keys; it is the width Dh, q.shape[-1], that counts": (
        lambda s, d, t: s / math.sqrt(t)
    ),
}
_AXES: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda s: s.softmax(-1),
    "The softmax runs over the queries (dim=-2); each query's weights over the keys must sum to 1, so dim=-1": (
        lambda s: s.softmax(-2)
    ),
    "The softmax runs over dim=0, which is the batch where there is one; it belongs over the keys, dim=-1": (
        lambda s: s.softmax(0)
    ),
    "The softmax runs over dim=1, which is no longer the keys once there is a batch; write dim=-1": (
        lambda s: s.softmax(1)
    ),
}
_ENDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "": lambda p, v: p @ v,
    "It returns the attention weights; the output is the weights times the values, weights @ v": lambda p, v: p,
}


def _variant(
    scale: Scale, axis: Callable[[Tensor], Tensor], end: Callable[[Tensor, Tensor], Tensor]
) -> Callable[..., Tensor]:
    return lambda q, k, v: end(axis(scale(q @ k.transpose(-2, -1), q.shape[-1], k.shape[-2])), v)


def _grid() -> list[Mistake]:
    """Every combination of a slip in the scale, in the axis and at the end; single ones first."""
    found = []
    for (a, scale), (b, axis), (c, end) in itertools.product(_SCALES.items(), _AXES.items(), _ENDS.items()):
        slips = [says for says in (a, b, c) if says]
        if slips:
            found.append((len(slips), Mistake(". And: ".join(slips) + ".", _variant(scale, axis, end))))
    return [mistake for _, mistake in sorted(found, key=lambda pair: pair[0])]


_ATTENTION_MISTAKES = [
    *_grid(),
    Mistake(
        "The division by sqrt(Dh) comes after the softmax, where it only shrinks the output; divide the scores "
        "before it.",
        lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) / math.sqrt(q.shape[-1]) @ v,
    ),
    Mistake(
        "The softmax is missing: the scores themselves weigh the values.",
        lambda q, k, v: q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) @ v,
    ),
    Mistake(
        "It returns the scores; they still need the softmax and the product with v.",
        lambda q, k, v: q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]),
    ),
    Mistake(
        "The keys are not transposed: q @ k compares components, not vectors. Use k.transpose(-2, -1).",
        lambda q, k, v: (q @ k / math.sqrt(q.shape[-1])).softmax(-1) @ v,
    ),
    Mistake(
        "Queries and keys have changed places: the rows of the scores must be the queries, q @ k.transpose(-2, -1).",
        lambda q, k, v: (k @ q.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v,
    ),
    Mistake(
        "The weights multiply the keys instead of the values: weights @ v.",
        lambda q, k, v: (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ k,
    ),
    Mistake(
        "k.T turns all dimensions round, so it fails as soon as there is a batch; swap the last two, k.transpose(-2, "
        "-1).",
        lambda q, k, v: (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1) @ v,
    ),
    Mistake(
        "k.transpose(0, 1) swaps the batch once there is one; swap the last two dimensions, k.transpose(-2, -1).",
        lambda q, k, v: (q @ k.transpose(0, 1) / math.sqrt(q.shape[-1])).softmax(-1) @ v,
    ),
]


def _ones(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool)


_CAUSAL_MISTAKES = [
    Mistake(
        "Off by one: the diagonal is left out, so a word cannot look at itself (and the first word at nothing). "
        "tril() keeps it.",
        lambda n: _ones(n).tril(-1),
    ),
    Mistake(
        "Off by one: each word also sees the next one, which is what it must predict. The diagonal is the last True.",
        lambda n: _ones(n).tril(1),
    ),
    Mistake(
        "It is inverted: True stands where attention is blocked. In this course True = may attend.",
        lambda n: _ones(n).triu(1),
    ),
    Mistake(
        "It is transposed: each word sees the future and not the past. Rows are queries, columns are keys; use tril.",
        lambda n: _ones(n).triu(),
    ),
    Mistake("It is all True: nothing is masked.", _ones),
    Mistake(
        "It returns numbers to add to the scores (0 and -inf); this mask is boolean, True = may attend.",
        lambda n: torch.zeros(n, n).masked_fill(~_ones(n).tril(), -math.inf),
    ),
    Mistake(
        "It returns floats; a mask is boolean here: begin with torch.ones(T, T, dtype=torch.bool), or end with "
        ".bool().",
        lambda n: torch.ones(n, n).tril(),
    ),
    Mistake(
        "It returns whole numbers; a mask is boolean here: begin with torch.ones(T, T, dtype=torch.bool), or end "
        "with .bool().",
        lambda n: torch.ones(n, n, dtype=torch.long).tril(),
    ),
    Mistake(
        "It marks what is blocked, with 1; in this course a mask is boolean and True = may attend.",
        lambda n: torch.ones(n, n).triu(1),
    ),
]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


_MASKED_MISTAKES = [
    Mistake(
        "The mask comes after the softmax, so the rows no longer sum to 1. Mask the scores, before the softmax.",
        lambda q, k, v, mask: (_scores(q, k).softmax(-1) * mask) @ v,
    ),
    Mistake(
        "The scores are multiplied by the mask: a blocked score becomes 0, and exp(0) = 1 still gets weight. "
        "Fill it with a very large negative number.",
        lambda q, k, v, mask: (_scores(q, k) * mask).softmax(-1) @ v,
    ),
    Mistake(
        "The mask is used the wrong way round: True = may attend, so fill where it is False, "
        "scores.masked_fill(~mask, ...).",
        lambda q, k, v, mask: _scores(q, k).masked_fill(mask, -1e30).softmax(-1) @ v,
    ),
    Mistake(
        "The mask is used the wrong way round: True = may attend, so fill where it is False, "
        "scores.masked_fill(~mask, ...).",
        lambda q, k, v, mask: _scores(q, k).masked_fill(mask, -math.inf).softmax(-1) @ v,
    ),
    Mistake("The mask is not used: every key still gets weight.", lambda q, k, v, mask: _scores(q, k).softmax(-1) @ v),
    Mistake(
        "The mask is added to the scores as 0 and 1, which hardly moves them. Fill the blocked scores instead.",
        lambda q, k, v, mask: (_scores(q, k) + mask).softmax(-1) @ v,
    ),
    Mistake(
        "The scores are not divided by sqrt(Dh).",
        lambda q, k, v, mask: (q @ k.transpose(-2, -1)).masked_fill(~mask, -1e30).softmax(-1) @ v,
    ),
    Mistake(
        "The softmax runs over the queries (dim=-2) instead of the keys (dim=-1).",
        lambda q, k, v, mask: _scores(q, k).masked_fill(~mask, -1e30).softmax(-2) @ v,
    ),
    Mistake(
        "It multiplies 0 by -inf somewhere, which is NaN: (1 - mask) * -inf does not work, masked_fill does.",
        lambda q, k, v, mask: (_scores(q, k) + (~mask) * -math.inf).softmax(-1) @ v,
    ),
]


_NAN = (
    "A query that may attend to no key gives NaN: its softmax runs over nothing but -inf. Fill blocked scores with a "
    "very large negative number, torch.finfo(scores.dtype).min, instead of -inf."
)


def _leak(fn: object, case: Case) -> str:
    """Does the output move when only a blocked value changes? Then the blocking is too weak, whatever else."""
    changed = dict(case)
    changed["v"] = case["v"].clone()
    changed["v"][..., -1, :] += 1000.0
    before, after = outcome(fn, case), outcome(fn, changed)
    fits = all(isinstance(x, Tensor) and x.shape == case["q"].shape for x in (before, after))
    if fits and not torch.allclose(before[..., 0, :], after[..., 0, :]):
        return (
            "Blocked keys still leak into the output: under a causal mask, changing the last value changes the first "
            "output. Fill blocked scores with -inf or torch.finfo(scores.dtype).min, before the softmax."
        )
    return ""
