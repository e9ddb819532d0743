"""Checks of lesson 01, second half: splitting into heads, merging them, multi-head attention."""

import math
from collections.abc import Callable

from torch import Tensor

from course_lib.check.attention import normal
from course_lib.check.base import Case, Mistake, Verdict, compare, report


def split_heads(fn: object) -> Verdict:
    """`fn(x, heads)`: [B T D] -> [B H T Dh]; head h takes the components h*Dh to (h+1)*Dh."""
    cases = [
        {"x": normal(8, 2, 5, 12), "heads": 3},
        {"x": normal(9, 1, 4, 8), "heads": 4},
        {"x": normal(10, 3, 4, 16), "heads": 4},
    ]

    def test() -> str:
        compare(fn, cases, _split, _SPLIT_MISTAKES)
        return "shape [B H T Dh] and every component in its head, for 3 and 4 heads"

    return report("split_heads", test)


def merge_heads(fn: object) -> Verdict:
    """`fn(x)`: [B H T Dh] -> [B T D], the inverse of split_heads."""
    cases = [{"x": normal(11, 2, 3, 5, 4)}, {"x": normal(12, 1, 4, 4, 2)}, {"x": normal(13, 3, 4, 4, 4)}]

    def test() -> str:
        compare(fn, cases, _merge, _MERGE_MISTAKES)
        return "shape [B T D], heads side by side in order, the inverse of split_heads"

    return report("merge_heads", test)


def multi_head(fn: object) -> Verdict:
    """`fn(x, wq, wk, wv, wo, heads)`: x [B T D], matrices [D D] applied as x @ w, full attention, no biases."""
    cases: list[Case] = []
    for seed, (batch, length, width, heads) in enumerate([(1, 4, 8, 2), (2, 5, 12, 3), (3, 4, 16, 4)]):
        weights = {
            w: normal(20 + 5 * seed + i, width, width) / math.sqrt(width)
            for i, w in enumerate(("wq", "wk", "wv", "wo"))
        }
        cases.append({"x": normal(40 + seed, batch, length, width), **weights, "heads": heads})

    def test() -> str:
        compare(fn, cases, _multi_head, _MULTI_MISTAKES)
        return "three sizes with 2, 3 and 4 heads: projections, split, scale by sqrt(Dh), merge, output projection"

    return report("multi_head", test)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


_SPLIT_MISTAKES = [
    Mistake(
        "x.view(B, heads, T, Dh) mixes positions and heads: the memory lies as [B T D]. View as (B, T, heads, Dh), "
        "then transpose(1, 2).",
        lambda x, heads: x.reshape(x.shape[0], heads, x.shape[1], -1),
    ),
    Mistake(
        "T and H are in each other's place: the shape is [B T H Dh]; transpose(1, 2) is missing.",
        lambda x, heads: x.reshape(*x.shape[:2], heads, -1),
    ),
    Mistake(
        "The width is split as (Dh, heads): head h then takes every H-th component. Split it as (heads, Dh).",
        lambda x, heads: x.reshape(*x.shape[:2], -1, heads).permute(0, 3, 1, 2),
    ),
]


_MERGE_MISTAKES = [
    Mistake(
        "The heads are merged in the wrong order: reshape without transposing back mixes positions and heads. "
        "transpose(1, 2) first.",
        lambda x: x.reshape(x.shape[0], x.shape[2], -1),
    ),
    Mistake(
        "The components are interleaved, all heads' first, then all heads' second; merge (heads, Dh) in this order.",
        lambda x: x.permute(0, 2, 3, 1).flatten(2),
    ),
    Mistake("The last two dimensions are still apart: flatten heads and Dh into D.", lambda x: x.transpose(1, 2)),
    Mistake("The heads are averaged; they must stand side by side.", lambda x: x.mean(1)),
]


def _heads_with(
    *,
    split: Callable[[Tensor, int], Tensor] = _split,
    merge: Callable[[Tensor], Tensor] = _merge,
    width: Callable[[int, int], float] = lambda d, h: d / h,
    turned: bool = False,
    out: bool = True,
) -> Callable[..., Tensor]:
    """Multi-head attention with one of its parts replaced."""

    def run(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, heads: int) -> Tensor:
        wq, wk, wv, wo = (w.T if turned else w for w in (wq, wk, wv, wo))
        q, k, v = (split(x @ w, heads) for w in (wq, wk, wv))
        probs = (q @ k.transpose(-2, -1) / math.sqrt(width(x.shape[-1], heads))).softmax(-1)
        merged = merge(probs @ v)
        return merged @ wo if out else merged

    return run


_multi_head = _heads_with()


_MULTI_MISTAKES = [
    Mistake(
        "The scores are divided by sqrt(D); each head's vectors have Dh = D / heads components.",
        _heads_with(width=lambda d, h: d),
    ),
    Mistake("The scores are not divided by sqrt(Dh).", _heads_with(width=lambda d, h: 1)),
    Mistake("The output projection is missing: multiply the merged heads by wo.", _heads_with(out=False)),
    Mistake(
        "The heads are merged in the wrong order: transpose(1, 2) before flattening them.",
        _heads_with(merge=lambda x: x.reshape(x.shape[0], x.shape[2], -1)),
    ),
    Mistake(
        "The heads are merged in the wrong order: their components are interleaved. Merge (heads, Dh) in this order.",
        _heads_with(merge=lambda x: x.permute(0, 2, 3, 1).flatten(2)),
    ),
    Mistake(
        "The heads are split with view(B, heads, T, Dh), which mixes positions and heads. View as (B, T, heads, Dh), "
        "then transpose(1, 2).",
        _heads_with(split=lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)),
    ),
    Mistake(
        "The heads are split with view(B, heads, T, Dh) and merged with view(B, T, D): the shapes fit, but positions "
        "and heads "
        "are mixed. transpose(1, 2) belongs on both sides.",
        _heads_with(
            split=lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1),
            merge=lambda x: x.reshape(x.shape[0], x.shape[2], -1),
        ),
    ),
    Mistake("The matrices are used transposed; here they stand on the right, x @ w.", _heads_with(turned=True)),
    Mistake(
        "All heads are one: the width is not split, so there is a single softmax over D components.",
        _heads_with(split=lambda x, h: x[:, None], merge=lambda x: x[:, 0], width=lambda d, h: d),
    ),
    Mistake(
        "All heads are one: the width is not split, so there is a single softmax over D components.",
        _heads_with(split=lambda x, h: x[:, None], merge=lambda x: x[:, 0]),
    ),
    Mistake(
        "Attention runs between the heads of one position: transpose(1, 2) is missing before the scores, [B H T Dh].",
        _heads_with(split=lambda x, h: x.reshape(*x.shape[:2], h, -1), merge=lambda x: x.flatten(2)),
    ),
]
