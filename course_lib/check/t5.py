"""Checks of lesson 17: the RMS norm, span corruption, the prefix mask, how often each task is drawn."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

EPS = 1e-6
Spans = Sequence[tuple[int, int]]
Pair = tuple[list[str], list[str]]


def rms_norm(fn: object) -> Verdict:
    """`fn(x, weight)` is x / sqrt(mean(x^2) + 1e-6) * weight over the last axis; x [... D], weight [D]."""
    shapes = [(4, 6), (2, 3, 5), (7, 4)]
    cases: list[Case] = [
        {"x": size * torch.randn(shape, generator=rng(i)) + 0.7 * size, "weight": _weight(i, shape[-1])}
        for i, (shape, size) in enumerate(zip(shapes, (1.0, 3.0, 1e-3), strict=True))
    ]
    cases.append({"x": torch.zeros(2, 3), "weight": torch.ones(3)})

    def test() -> str:
        compare(fn, cases, _rms, _NORM_MISTAKES)
        return "two and three axes, small numbers, where epsilon counts, and a vector of zeros"

    return report("rms_norm", test)


def corrupt_spans(fn: object) -> Verdict:
    """`fn(tokens, spans, sentinels)` -> (input, target), lists of strings; spans: (start, length), left to right."""
    marks = ["<X>", "<Y>", "<Z>", "<W>"]
    text = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week."]
    cuts: list[list[tuple[int, int]]] = [[(2, 2), (8, 1)], [(0, 1), (4, 3), (9, 1)], [(3, 4)], [(1, 3), (6, 1)]]
    cases: list[Case] = [{"tokens": text, "spans": spans, "sentinels": marks} for spans in cuts]

    def test() -> str:
        compare(fn, cases, _corrupt, _SPAN_MISTAKES)
        return "one, two and three spans, at the beginning, inside and at the end of a text"

    return report("corrupt_spans", test)


def prefix_mask(fn: object) -> Verdict:
    """`fn(source, length)` is Bool[T T], True = may attend: the first `source` see each other, the rest looks back."""
    cases: list[Case] = [{"source": s, "length": t} for s, t in ((3, 6), (1, 5), (4, 7), (5, 5))]

    def test() -> str:
        compare(fn, cases, _prefix, _MASK_MISTAKES)
        return "sources of 1, 3 and 4 tokens with a target behind them, and one without"

    return report("prefix_mask", test)


def mixing_rates(fn: object) -> Verdict:
    """`fn(sizes, limit, temperature)`: shares min(e, limit) ** (1 / temperature), made to add up to 1."""
    cases: list[Case] = [
        {"sizes": [100, 300, 10_000], "limit": 400, "temperature": 1.0},
        {"sizes": [100, 900], "limit": 10_000, "temperature": 2.0},
        {"sizes": [50, 2_000, 70_000, 400_000], "limit": 30_000, "temperature": 4.0},
        {"sizes": [10, 10], "limit": 5, "temperature": 3.0},
    ]

    def test() -> str:
        compare(fn, cases, _rates, _RATE_MISTAKES)
        return "limits above and below the sizes, temperatures 1 to 4"

    return report("mixing_rates", test)


# --- the norm ---------------------------------------------------------------------------------------------------


def _weight(seed: int, width: int) -> Tensor:
    return 1 + 0.5 * torch.randn(width, generator=rng(seed + 20))


def _mean_square(x: Tensor, dim: int = -1) -> Tensor:
    return (x * x).mean(dim, keepdim=True)


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (_mean_square(x) + EPS).sqrt() * weight


def _layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (_mean_square(centred) + EPS).sqrt() * weight


_NORM_MISTAKES = [
    Mistake("The mean is subtracted: that is layer norm. RMS norm leaves the mean where it is.", _layer_norm),
    Mistake("Epsilon is missing: a vector of zeros is divided by zero.", lambda x, w: x / _mean_square(x).sqrt() * w),
    Mistake("Epsilon belongs inside the square root.", lambda x, w: x / (_mean_square(x).sqrt() + EPS) * w),
    Mistake(
        "The squares are added up, not averaged: the mean square divides by the number of components.",
        lambda x, w: x / ((x * x).sum(-1, keepdim=True) + EPS).sqrt() * w,
    ),
    Mistake(
        "It divides by the mean square itself; take its square root.", lambda x, w: x / (_mean_square(x) + EPS) * w
    ),
    Mistake("The learned weight is missing.", lambda x, w: x / (_mean_square(x) + EPS).sqrt()),
    Mistake("The weight is added; it multiplies.", lambda x, w: x / (_mean_square(x) + EPS).sqrt() + w),
    Mistake(
        "It divides by the standard deviation, from which the mean has been taken out; the mean square keeps it.",
        lambda x, w: x / (x.var(-1, keepdim=True, unbiased=False) + EPS).sqrt() * w,
    ),
    Mistake(
        "The mean is taken over the words; each word is normalised by itself, over its own numbers.",
        lambda x, w: x / (_mean_square(x, -2) + EPS).sqrt() * w,
    ),
    Mistake(
        "One scale for all words together; each word has its own: mean(-1, keepdim=True).",
        lambda x, w: x / ((x * x).mean() + EPS).sqrt() * w,
    ),
]


# --- spans ------------------------------------------------------------------------------------------------------


def _corrupt(tokens: list[str], spans: Spans, sentinels: list[str]) -> Pair:
    read, said, done = [], [], 0
    for sign, (start, length) in zip(sentinels, spans, strict=False):
        read += [*tokens[done:start], sign]
        said += [sign, *tokens[start : start + length]]
        done = start + length
    return [*read, *tokens[done:]], [*said, sentinels[len(spans)]]


def _but(change: Callable[[list[str], list[str], list[str], Spans, list[str]], Pair]) -> Callable[..., Pair]:
    """The right pair, changed: input, target, tokens, spans, sentinels."""
    return lambda tokens, spans, signs: change(*_corrupt(tokens, spans, signs), tokens, spans, signs)


def _token_by_token(tokens: list[str], spans: Spans, signs: list[str]) -> Pair:
    """A sentinel for each token of a span, the same one over the whole span."""
    of = {i: sign for sign, (start, length) in zip(signs, spans, strict=False) for i in range(start, start + length)}
    return [of.get(i, token) for i, token in enumerate(tokens)], _corrupt(tokens, spans, signs)[1]


def _as_stops(tokens: list[str], spans: Spans, signs: list[str]) -> Pair:
    """Each (start, length) read as (start, stop)."""
    read, said, done = [], [], 0
    for sign, (start, stop) in zip(signs, spans, strict=False):
        read += [*tokens[done:start], sign]
        said += [sign, *tokens[start:stop]]
        done = stop
    return [*read, *tokens[done:]], [*said, signs[len(spans)]]


def _span_first(tokens: list[str], spans: Spans, signs: list[str]) -> list[str]:
    pairs = zip(signs, spans, strict=False)
    said = [piece for sign, (start, n) in pairs for piece in (*tokens[start : start + n], sign)]
    return [*said, signs[len(spans)]]


def _one_sign(tokens: list[str], spans: Spans, signs: list[str]) -> Pair:
    return _corrupt(tokens, spans, [signs[0]] * len(signs))


_SPAN_MISTAKES = [
    Mistake(
        "The target ends without its last sentinel, which says that there is nothing more to fill in.",
        _but(lambda a, b, *_: (a, b[:-1])),
    ),
    Mistake("Input and target are exchanged.", _but(lambda a, b, *_: (b, a))),
    Mistake(
        "The spans are gone from the input without a trace; a sentinel stands where each of them was.",
        _but(lambda a, b, t, spans, s: ([token for token in a if token not in s], b)),
    ),
    Mistake(
        "Each hidden token has a sentinel of its own; one sentinel stands for the whole span, however long.",
        _token_by_token,
    ),
    Mistake("The same sentinel stands for every span; then nobody knows which answer belongs where.", _one_sign),
    Mistake(
        "The target holds the whole text: that is BART's. T5 says only what was taken out.",
        _but(lambda a, b, t, *_: (a, t)),
    ),
    Mistake(
        "The target lacks the sentinels in front of its spans.",
        _but(lambda a, b, t, spans, s: (a, [token for token in b if token not in s])),
    ),
    Mistake(
        "The target lacks the sentinels in front of its spans; only the last one is there.",
        _but(lambda a, b, t, spans, s: (a, [*(token for token in b if token not in s), b[-1]])),
    ),
    Mistake(
        "In the target each sentinel stands in front of its span, not behind it.",
        lambda t, spans, s: (_corrupt(t, spans, s)[0], _span_first(t, spans, s)),
    ),
    Mistake("A span is (start, length), not (start, stop).", _as_stops),
    Mistake(
        "What stands behind the last span is missing from the input.",
        _but(lambda a, b, t, spans, s: (a[: a.index(s[len(spans) - 1]) + 1], b)),
    ),
    Mistake(
        "The hidden tokens are still in the input, behind their sentinels.",
        lambda t, spans, s: (_corrupt(t, [(start, 0) for start, _ in spans], s)[0], _corrupt(t, spans, s)[1]),
    ),
]


# --- the mask ---------------------------------------------------------------------------------------------------


def _prefix(source: int, length: int) -> Tensor:
    return _causal(length) | (torch.arange(length) < source)


def _causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def _inside(source: int, length: int) -> Tensor:
    """Query and key both of the source."""
    row = torch.arange(length) < source
    return row[:, None] & row


_MASK_MISTAKES = [
    Mistake(
        "This is the causal mask: the source's tokens do not see what stands behind them in the source.",
        lambda s, t: _causal(t),
    ),
    Mistake(
        "Everybody sees everybody: the target could copy its own next tokens.",
        lambda s, t: torch.ones(t, t, dtype=torch.bool),
    ),
    Mistake(
        "The source's tokens see the target; only keys of the source are open to all.",
        lambda s, t: _causal(t) | (torch.arange(t) < s)[:, None],
    ),
    Mistake("One token of the source too few.", lambda s, t: _prefix(s - 1, t)),
    Mistake("One token too many: the target's first is no part of the source.", lambda s, t: _prefix(s + 1, t)),
    Mistake("True and False are exchanged; True means that a query may attend.", lambda s, t: ~_prefix(s, t)),
    Mistake("Queries and keys are exchanged: a row is a query, a column a key. (mask.T)", lambda s, t: _prefix(s, t).T),
    Mistake(
        "The target does not see the source; it must, there is no cross-attention here.",
        lambda s, t: _inside(s, t) | (_causal(t) & (torch.arange(t) >= s)),
    ),
    Mistake(
        "The target sees the source, but not the beginning of itself.",
        lambda s, t: (torch.arange(t) < s).expand(t, t).clone(),
    ),
    Mistake("The target sees nothing at all; only the source is filled in.", _inside),
]


# --- mixing -----------------------------------------------------------------------------------------------------


def _shares(values: Sequence[float]) -> list[float]:
    return [value / sum(values) for value in values]


def _rates(sizes: list[int], limit: int, temperature: float) -> list[float]:
    return _shares([min(size, limit) ** (1 / temperature) for size in sizes])


_RATE_MISTAKES = [
    Mistake("The limit is not used: no task counts for more than `limit` examples.",
            lambda n, k, t: _shares([x ** (1 / t) for x in n])),
    Mistake("The temperature changes nothing here; each size is taken to the power 1 / temperature.",
            lambda n, k, t: _shares([min(x, k) for x in n])),
    Mistake("Only the plain proportions: neither the limit nor the temperature is used.", lambda n, k, t: _shares(n)),
    Mistake("The power is 1 / temperature, so that a large one makes the shares more equal.",
            lambda n, k, t: _shares([min(x, k) ** t for x in n])),
    Mistake("The shares do not add up to 1; divide by their sum.",
            lambda n, k, t: [min(x, k) ** (1 / t) for x in n]),
    Mistake("The shares do not add up to 1: the sum was divided out before the power was taken.",
            lambda n, k, t: [x ** (1 / t) for x in _shares([min(x, k) for x in n])]),
    Mistake("max takes the larger of the two; a limit is min(size, limit).",
            lambda n, k, t: _shares([max(x, k) ** (1 / t) for x in n])),
    Mistake("The limit comes first, the power afterwards.",
            lambda n, k, t: _shares([min(x ** (1 / t), k) for x in n])),
    Mistake("Every task has the same share: that is equal mixing.", lambda n, k, t: _shares([1] * len(n))),
]  # fmt: skip
