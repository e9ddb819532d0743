"""Checks of lesson 08: temperature, top-k, sampling."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.check.attention import normal
from course_lib.check.base import (
    Case,
    Crash,
    Mistake,
    Verdict,
    WrongError,
    compare,
    difference,
    outcome,
    report,
    rng,
    short,
)


def temperature(fn: object) -> Verdict:
    """`fn(logits, temperature)` is the softmax of logits / temperature over the last dimension."""
    cases: list[Case] = [
        {"logits": 2 * normal(8 + i, *shape), "temperature": t}
        for i, (shape, t) in enumerate([((6,), 0.5), ((2, 6), 2.0), ((6,), 1.0)])
    ]

    def test() -> str:
        compare(fn, cases, lambda x, t: (x / t).softmax(-1), _TEMPERATURE_MISTAKES)
        return "temperatures 0.5, 1 and 2, with and without a batch; rows sum to 1"

    return report("temperature", test)


def top_k(fn: object) -> Verdict:
    """`fn(logits, k)`: the distribution over the k most likely tokens, renormalised; all others have probability 0."""
    cases: list[Case] = [
        {"logits": 2 * normal(20 + i, *shape), "k": k}
        for i, (shape, k) in enumerate([((8,), 3), ((2, 9), 4), ((6,), 1), ((5,), 5)])
    ]

    def test() -> str:
        compare(fn, cases, _top_k, _TOP_K_MISTAKES)
        return "k = 1, 3, 4 and all, with and without a batch; exactly k tokens above 0, and they sum to 1"

    return report("top_k", test)


def sample_top_k(fn: object) -> Verdict:
    """`fn(logits, k, temperature, rng)` draws one token (int) from the k likeliest of logits [V], at a temperature.

    Every draw comes from the torch.Generator `rng`.
    """
    cases: list[Case] = [
        {"logits": torch.tensor([1.0, -0.5, 2.0, 0.3, -2.0, 1.4]), "k": 3, "temperature": 0.5},
        {"logits": torch.tensor([0.2, 1.5, -1.0, 0.9]), "k": 4, "temperature": 2.0},
        {"logits": torch.tensor([0.2, 1.5, -1.0, 0.9]), "k": 1, "temperature": 1.0},
    ]

    def test() -> str:
        for case in cases:
            _sampled(fn, case)
        return "3,000 draws each for k = 1, 3, 4 and temperatures 0.5, 1, 2; equal generators give equal draws"

    return report("sample_top_k", test)


_TEMPERATURE_MISTAKES = [
    Mistake(
        "The logits are multiplied by the temperature; divide, so that a high temperature flattens the distribution.",
        lambda x, t: (x * t).softmax(-1),
    ),
    Mistake(
        "The temperature divides the probabilities, after the softmax; divide the logits.",
        lambda x, t: x.softmax(-1) / t,
    ),
    Mistake("The temperature is not used.", lambda x, t: x.softmax(-1)),
    Mistake("It returns logits; the softmax is missing.", lambda x, t: x / t),
    Mistake(
        "The softmax runs over dim=0, which is the batch where there is one; the tokens are dim=-1.",
        lambda x, t: (x / t).softmax(0),
    ),
]


def _top_k(logits: Tensor, k: int, largest: bool = True) -> Tensor:
    best = logits.topk(k, largest=largest).indices
    return torch.full_like(logits, -math.inf).scatter(-1, best, logits.gather(-1, best)).softmax(-1)


_TOP_K_MISTAKES = [
    Mistake("It keeps the k smallest logits; the k largest are the likely tokens.", lambda x, k: _top_k(x, k, False)),
    Mistake(
        "The kept probabilities do not sum to 1: renormalise, or set the other logits to -inf before the softmax.",
        lambda x, k: x.softmax(-1) * (_top_k(x, k) > 0),
    ),
    Mistake("Nothing is cut off.", lambda x, k: x.softmax(-1)),
    Mistake(
        "The cut logits are set to 0, and exp(0) = 1 keeps them in the game; set them to -inf.",
        lambda x, k: x.masked_fill(_top_k(x, k) == 0, 0.0).softmax(-1),
    ),
    Mistake(
        "Off by one: it keeps k + 1 tokens; is the comparison with the k-th largest right?",
        lambda x, k: _top_k(x, min(k + 1, x.shape[-1])),
    ),
    Mistake("It keeps k - 1 tokens: the k-th largest itself must stay (>=).", lambda x, k: _top_k(x, k - 1)),
    Mistake("It returns logits; the softmax is missing.", lambda x, k: x.masked_fill(_top_k(x, k) == 0, -math.inf)),
    Mistake(
        "It returns k probabilities; keep the places of all V tokens, with 0 for the others.",
        lambda x, k: x.topk(k).values.softmax(-1),
    ),
    Mistake(
        "All k tokens get the same probability; they keep their own logits.",
        lambda x, k: (_top_k(x, k) > 0).float() / k,
    ),
]


_DRAWS = 3000


_SAMPLERS: list[tuple[str, Callable[[Tensor, int, float], Tensor]]] = [
    ("The logits are multiplied by the temperature; divide.", lambda x, k, t: _top_k(x * t, k)),
    ("The temperature is not used.", lambda x, k, t: _top_k(x, k)),
    ("The k smallest logits are kept; keep the k largest.", lambda x, k, t: _top_k(x / t, k, False)),
    ("Nothing is cut off: tokens outside the k likeliest come up.", lambda x, k, t: (x / t).softmax(-1)),
    ("It always takes the likeliest token; draw with torch.multinomial.", lambda x, k, t: _top_k(x, 1)),
    (
        "All k tokens come up equally often; draw by their probabilities.",
        lambda x, k, t: (_top_k(x, k) > 0).float() / k,
    ),
    (
        "The cut logits are set to 0, which leaves them in the game; set them to -inf.",
        lambda x, k, t: (x / t).masked_fill(_top_k(x, k) == 0, 0.0).softmax(-1),
    ),
]


def _sampled(fn: object, case: Case) -> None:
    """Compare the shares of many draws with the right distribution, then with the known wrong ones."""
    logits, k, heat = case["logits"], case["k"], case["temperature"]
    one: Any = outcome(fn, {**case, "rng": rng(0)})
    if isinstance(one, Crash):
        raise WrongError(difference(case, one, 0))
    if not isinstance(one, int | Tensor) or (isinstance(one, Tensor) and one.numel() != 1):
        raise WrongError(f"It returns {short(one)}; one token is asked for, a whole number.")
    assert callable(fn)
    first, again = ([fn(logits.clone(), k, heat, equal) for _ in range(30)] for equal in (rng(0), rng(0)))
    if first != again:
        raise WrongError("Draws from equal generators differ: give torch.multinomial the argument generator=rng.")
    generator, counts = rng(1), torch.zeros(len(logits))
    for _ in range(_DRAWS):
        drawn = fn(logits.clone(), k, heat, generator)
        if isinstance(drawn, Tensor) and drawn.numel() == 1:
            drawn = drawn.item()
        if isinstance(drawn, bool) or not isinstance(drawn, int) or not 0 <= drawn < len(logits):
            raise WrongError(
                f"It returned {short(drawn)}; a token is a whole number from 0 to {len(logits) - 1}, on {_said(case)}."
            )
        counts[drawn] += 1
    shares = counts / _DRAWS
    if _fits(shares, _top_k(logits / heat, k)):
        return
    if int((shares > 0).sum()) == k < len(logits) and _fits(
        shares.sort().values, _top_k(logits / heat, k).sort().values
    ):
        raise WrongError(
            "It returns the place among the k kept tokens, not the token: look the draw up in topk's indices."
        )
    for says, wrong in _SAMPLERS:
        if _fits(shares, wrong(logits, k, heat)):
            raise WrongError(f"{says} Seen on {_said(case)}.")
    token = int((shares - _top_k(logits / heat, k)).abs().argmax())
    right = float(_top_k(logits / heat, k)[token])
    raise WrongError(
        f"Token {token} came up in {100 * shares[token]:.0f}% of the draws, {100 * right:.0f}% is right, on "
        f"{_said(case)}."
    )


def _fits(shares: Tensor, probs: Tensor) -> bool:
    """Within five standard errors everywhere, and never where the probability is 0."""
    error = 5 * (probs * (1 - probs) / _DRAWS).sqrt() + 1e-6
    return bool(((shares - probs).abs() <= error).all())


def _said(case: Case) -> str:
    return f"k = {case['k']}, temperature {case['temperature']}"
