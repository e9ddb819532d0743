"""Checks of lesson 02, the block: layer norm and the residual branch."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

EPS = 1e-5


def layer_norm(fn: object) -> Verdict:
    """`fn(x, weight, bias)` is (x - mean) / sqrt(variance + 1e-5) * weight + bias over the last axis; x [... T D]."""
    cases: list[Case] = [_rows(0, 4, 3), _rows(1, 2, 5, 8), _rows(2, 3, 16)]
    cases.append({"x": 1e-3 * _normal(9, 2, 4), "weight": _normal(10, 4), "bias": _normal(11, 4)})  # eps counts here

    def test() -> str:
        compare(fn, cases, lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, EPS), _NORM_MISTAKES)
        return "one text and a batch, widths 3 to 16, nearly constant vectors too"

    return report("layer_norm", test)


def residual_branch(fn: object) -> Verdict:
    """`fn(x, f, norm, pre)`: norm(x + f(x)) where pre is False, x + f(norm(x)) where it is True."""
    right: Callable[..., Tensor] = lambda x, f, norm, pre: x + f(norm(x)) if pre else norm(x + f(x))  # noqa: E731
    cases = [
        {"x": _normal(seed, 2, 4, 6), "f": _Branch(seed), "norm": _Norm(), "pre": pre}
        for seed in (3, 4)
        for pre in (False, True)
    ]

    def test() -> str:
        compare(fn, cases, right, _BRANCH_MISTAKES)
        return "post-norm and pre-norm, two branches each"

    return report("residual_branch", test)


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed))


def _rows(seed: int, *shape: int) -> dict[str, Tensor]:
    width = shape[-1]
    return {
        "x": 3 * _normal(seed, *shape) + 2,
        "weight": _normal(seed + 30, width),
        "bias": _normal(seed + 60, width),
    }


class _Branch:
    """What stands in for attention or feed-forward: a fixed function of each position."""

    def __init__(self, seed: int) -> None:
        self.matrix = _normal(seed, 6, 6)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.matrix) + 0.3

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Branch)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "f"


class _Norm(_Branch):
    """A layer norm with a scale and a shift, so that leaving it out or doing it twice shows."""

    def __init__(self) -> None:
        self.weight, self.bias = 1 + 0.5 * _normal(1, 6), 0.5 * _normal(2, 6)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (6,), self.weight, self.bias)

    def __repr__(self) -> str:
        return "norm"


def _by_hand(
    x: Tensor, weight: Tensor, bias: Tensor, *, dim: int | tuple[int, ...] = -1, unbiased: bool = False
) -> Tensor:
    centred = x - x.mean(dim, keepdim=True)
    return centred / (x.var(dim, keepdim=True, unbiased=unbiased) + EPS).sqrt() * weight + bias


_NORM_MISTAKES = [
    Mistake(
        "The variance is divided by D - 1 (PyTorch's default). Layer norm divides by D: var(-1, unbiased=False).",
        lambda x, w, b: _by_hand(x, w, b, unbiased=True),
    ),
    Mistake(
        "Mean and variance run over the positions (dim=-2). Each word is normalised by itself, over its D numbers: "
        "dim=-1.",
        lambda x, w, b: _by_hand(x, w, b, dim=-2),
    ),
    Mistake(
        "Mean and variance run over dim=0, which is the batch where there is one (that would be batch norm). Each word "
        "is normalised by itself: dim=-1.",
        lambda x, w, b: _by_hand(x, w, b, dim=0),
    ),
    Mistake(
        "One mean and one variance for the whole tensor: then a word depends on its neighbours. Give dim=-1, "
        "keepdim=True.",
        lambda x, w, b: (x - x.mean()) / (x.var(unbiased=False) + EPS).sqrt() * w + b,
    ),
    Mistake(
        "The epsilon is outside the square root: it is added to the variance, before the root.",
        lambda x, w, b: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + EPS) * w + b,
    ),
    Mistake(
        "The epsilon is missing: a nearly constant vector is divided by almost 0. sqrt(variance + 1e-5).",
        lambda x, w, b: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False) * w + b,
    ),
    Mistake(
        "The variance has no square root: divide by the standard deviation.",
        lambda x, w, b: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + EPS) * w + b,
    ),
    Mistake(
        "The mean is not subtracted (that is close to RMS norm, lesson 17).",
        lambda x, w, b: x / (x.var(-1, keepdim=True, unbiased=False) + EPS).sqrt() * w + b,
    ),
    Mistake(
        "This is RMS norm (lesson 17): no mean is subtracted. Layer norm subtracts it first.",
        lambda x, w, b: x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * w + b,
    ),
    Mistake("The learned scale is missing: times weight.", lambda x, w, b: _by_hand(x, torch.ones_like(w), b)),
    Mistake("The learned shift is missing: plus bias.", lambda x, w, b: _by_hand(x, w, torch.zeros_like(b))),
    Mistake(
        "Scale and shift are both missing: times weight, plus bias.",
        lambda x, w, b: _by_hand(x, torch.ones_like(w), torch.zeros_like(b)),
    ),
    Mistake(
        "The bias is scaled too: (normalised + bias) * weight. Scale first, then shift.",
        lambda x, w, b: (_by_hand(x, torch.ones_like(w), torch.zeros_like(b)) + b) * w,
    ),
]

_BRANCH_MISTAKES = [
    Mistake(
        "pre and post have changed places: post-norm (pre=False) is norm(x + f(x)), pre-norm is x + f(norm(x)).",
        lambda x, f, norm, pre: norm(x + f(x)) if pre else x + f(norm(x)),
    ),
    Mistake(
        "The residual is missing: f's result must be added to x.",
        lambda x, f, norm, pre: f(norm(x)) if pre else norm(f(x)),
    ),
    Mistake(
        "Pre-norm adds f's result to norm(x); what flows on must be x itself: x + f(norm(x)).",
        lambda x, f, norm, pre: norm(x) + f(norm(x)) if pre else norm(x + f(x)),
    ),
    Mistake(
        "Pre-norm normalises the sum too; then nothing flows on untouched: x + f(norm(x)).",
        lambda x, f, norm, pre: norm(x + f(norm(x))) if pre else norm(x + f(x)),
    ),
    Mistake(
        "Post-norm normalises f's result only; the norm stands around the sum: norm(x + f(x)).",
        lambda x, f, norm, pre: x + f(norm(x)) if pre else x + norm(f(x)),
    ),
    Mistake(
        "Pre-norm normalises what comes out of f instead of what goes in: x + f(norm(x)).",
        lambda x, f, norm, pre: x + norm(f(x)) if pre else norm(x + f(x)),
    ),
    Mistake("It is post-norm in both cases; look at `pre`.", lambda x, f, norm, pre: norm(x + f(x))),
    Mistake("It is pre-norm in both cases; look at `pre`.", lambda x, f, norm, pre: x + f(norm(x))),
    Mistake("The norm is missing in both cases.", lambda x, f, norm, pre: x + f(x)),
]
