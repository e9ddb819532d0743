"""Checks of lesson 04: windows, negative sampling, the noise distribution, GloVe's loss, analogies."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.attention import normal
from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

POWER, X_MAX, ALPHA = 0.75, 100.0, 0.75


def context_pairs(fn: object) -> Verdict:
    """`fn(words, window)` -> the list of (centre, context) of all words at most `window` places apart, in order.

    Centres from left to right; for each the words before it from left to right, then those after it.
    """
    cases: list[Case] = [
        {"words": ["the", "cat", "drank", "warm", "milk"], "window": 1},
        {"words": ["a", "b", "a", "c", "d", "e"], "window": 2},
        {"words": ["x", "y", "z"], "window": 5},
        {"words": ["alone"], "window": 2},
    ]

    def test() -> str:
        compare(_then(fn, _as_tuples), cases, _pairs, _PAIR_MISTAKES)
        return "windows of 1, 2 and 5, a word that comes twice, a sentence of one word"

    return report("context_pairs", test)


def negative_loss(fn: object) -> Verdict:
    """`fn(v, u, noise)`: the mean over pairs of -log sigma(v . u) - sum over k of log sigma(-v . noise_k).

    v [B D] input vectors, u [B D] output vectors of the words that were seen, noise [B K D] of those that were drawn.
    """
    cases = [_scored(0, 4, 3, 6), _scored(1, 1, 5, 4), _scored(2, 7, 2, 3)]

    def test() -> str:
        compare(fn, cases, _negative_loss, _LOSS_MISTAKES)
        return "4 pairs with 3 drawn words each, one pair with 5, seven with 2"

    return report("negative_loss", test)


def noise_distribution(fn: object) -> Verdict:
    """`fn(counts)` -> the probabilities with which words are drawn: counts ** 0.75, divided by their sum.

    counts Int[V].
    """
    cases: list[Case] = [{"counts": torch.tensor(c)} for c in ([81, 16, 1], [1000, 10, 10, 3, 1], [3, 2, 1])]

    def test() -> str:
        compare(fn, cases, lambda counts: _share(counts.float() ** POWER), _NOISE_MISTAKES)
        return "three vocabularies; the probabilities add up to 1"

    return report("noise_distribution", test)


def glove_loss(fn: object) -> Verdict:
    """`fn(w, c, b, d, x)`: GloVe's J over P pairs, with x_max = 100 and alpha = 0.75.

    w, c [P D] the vectors of both words, b, d [P] their biases, x [P] how often they meet.
    """
    cases = [_met(0, 6, 4), _met(1, 3, 8), _met(2, 1, 2)]

    def test() -> str:
        compare(fn, cases, _glove(), _GLOVE_MISTAKES)
        return "6, 3 and 1 pairs, some that meet more than 100 times"

    return report("glove_loss", test)


def analogy(fn: object) -> Verdict:
    """`fn(vectors, a, b, c)` -> the row number that solves "a is to b as c is to ...": the largest cosine with
    b - a + c, all of length 1, and never a, b or c itself.

    vectors [V D]; a, b, c row numbers.
    """
    cases: list[Case] = [_asked(seed) for seed in range(12)]

    def test() -> str:
        compare(_then(fn, _whole), cases, _solve(), _ANALOGY_MISTAKES)
        return "twelve questions over 40 vectors of unlike lengths"

    return report("analogy", test)


def _then(fn: object, form: Callable[[object], object]) -> object:
    """The student's function, its results brought into one form; what is no function stays as it is."""
    return (lambda *given: form(fn(*given))) if callable(fn) else fn


# ---------------------------------------------------------------- windows


def _as_tuples(found: object) -> object:
    return [tuple(pair) for pair in found] if isinstance(found, list | tuple) else found


def _window(
    words: list[str], window: int, *, itself: bool = False, reach: int = 0, before: bool = True, after: bool = True
) -> list[tuple[str, str]]:
    found = []
    for i in range(len(words)):
        first = max(0, i - window) if before else i
        last = min(len(words), i + window + 1 + reach) if after else i + 1
        found += [(words[i], words[j]) for j in range(first, last) if itself or j != i]
    return found


def _pairs(words: list[str], window: int) -> list[tuple[str, str]]:
    return _window(words, window)


def _wraps(words: list[str], window: int) -> list[tuple[str, str]]:
    offsets = [*range(-window, 0), *range(1, window + 1)]
    return [(word, words[i + o]) for i, word in enumerate(words) for o in offsets if i + o < len(words)]


_PAIR_MISTAKES = [
    Mistake(
        "Each word is paired with itself too; leave j == i out, compare places and not words.",
        lambda words, window: _window(words, window, itself=True),
    ),
    Mistake(
        "Off by one: the last word of the window is missing. range() stops before its end, so it is i + window + 1.",
        lambda words, window: _window(words, window, reach=-1),
    ),
    Mistake(
        "Only the words after the centre are paired; the window goes to both sides.",
        lambda words, window: _window(words, window, before=False),
    ),
    Mistake(
        "Only the words before the centre are paired; the window goes to both sides.",
        lambda words, window: _window(words, window, after=False),
    ),
    Mistake(
        "Each pair is turned round: the centre comes first, then the context word.",
        lambda words, window: [(b, a) for a, b in _window(words, window)],
    ),
    Mistake(
        "Words are compared where places should be: a word that comes twice in the window is left out. Test j != i.",
        lambda words, window: [(a, b) for a, b in _window(words, window) if a != b],
    ),
    Mistake(
        "At the start of the sentence the window wraps round to its end, because a negative place counts from behind. "
        "Begin at max(0, i - window).",
        _wraps,
    ),
    Mistake(
        "The words that have no full window on both sides have no pairs; cut the window there, do not skip the word.",
        lambda words, window: [
            (words[i], words[j])
            for i in range(window, len(words) - window)
            for j in range(i - window, i + window + 1)
            if j != i
        ],
    ),
]

# ---------------------------------------------------------------- negative sampling


def _scored(seed: int, b: int, k: int, d: int) -> dict[str, Tensor]:
    return {
        "v": normal(3 * seed + 50, b, d),
        "u": normal(3 * seed + 51, b, d),
        "noise": normal(3 * seed + 52, b, k, d),
    }


def _products(v: Tensor, u: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    return (v * u).sum(-1), (noise * v[:, None]).sum(-1)


def _negative_loss(v: Tensor, u: Tensor, noise: Tensor) -> Tensor:
    seen, drawn = _products(v, u, noise)
    return -(F.logsigmoid(seen) + F.logsigmoid(-drawn).sum(-1)).mean()


def _softmax_loss(v: Tensor, u: Tensor, noise: Tensor) -> Tensor:
    seen, drawn = _products(v, u, noise)
    return -torch.cat([seen[:, None], drawn], 1).log_softmax(-1)[:, 0].mean()


def _swapped(v: Tensor, u: Tensor, noise: Tensor) -> Tensor:
    seen, drawn = _products(v, u, noise)
    return -(F.logsigmoid(-seen) + F.logsigmoid(drawn).sum(-1)).mean()


_LOSS_MISTAKES = [
    Mistake(
        "The drawn words have the sign of the seen one: it is log sigma(-v . noise), they should score low.",
        lambda v, u, noise: -(F.logsigmoid((v * u).sum(-1)) + F.logsigmoid(_products(v, u, noise)[1]).sum(-1)).mean(),
    ),
    Mistake("The two signs have changed places: the seen word should score high, the drawn ones low.", _swapped),
    Mistake(
        "The drawn words are averaged; the formula adds them up, so K words weigh K times as much as the seen one.",
        lambda v, u, noise: -(F.logsigmoid((v * u).sum(-1)) + F.logsigmoid(-_products(v, u, noise)[1]).mean(-1)).mean(),
    ),
    Mistake(
        "The pairs are added up; take their mean, so that the loss does not depend on the size of the batch.",
        lambda v, u, noise: _negative_loss(v, u, noise) * len(v),
    ),
    Mistake("The minus sign in front is missing: this rises as the vectors learn.", lambda *g: -_negative_loss(*g)),
    Mistake(
        "The drawn words are left out; without them all vectors may grow alike and the loss still falls to 0.",
        lambda v, u, noise: -F.logsigmoid((v * u).sum(-1)).mean(),
    ),
    Mistake(
        "That is a softmax over the seen and the drawn words; negative sampling asks K + 1 yes-or-no questions.",
        _softmax_loss,
    ),
    Mistake(
        "The logarithm is missing: these are the probabilities themselves. F.logsigmoid does both steps.",
        lambda v, u, noise: -((v * u).sum(-1).sigmoid() + (-_products(v, u, noise)[1]).sigmoid().sum(-1)).mean(),
    ),
    Mistake(
        "The drawn words are compared with u; it is the word's own input vector v that should score them low.",
        lambda v, u, noise: (
            -(F.logsigmoid((v * u).sum(-1)) + F.logsigmoid(-(noise * u[:, None]).sum(-1)).sum(-1)).mean()
        ),
    ),
    Mistake(
        "The K scores are added up before the sigmoid; each drawn word has a sigmoid of its own.",
        lambda v, u, noise: -(F.logsigmoid((v * u).sum(-1)) + F.logsigmoid(-_products(v, u, noise)[1].sum(-1))).mean(),
    ),
]

# ---------------------------------------------------------------- which words are drawn


def _share(weights: Tensor) -> Tensor:
    return weights / weights.sum()


_NOISE_MISTAKES = [
    Mistake(
        "The power is missing: these are the plain frequencies. Raise the counts to 0.75 first.",
        lambda counts: _share(counts.float()),
    ),
    Mistake(
        "The frequencies are raised to 0.75 but not divided by their sum again, so they do not add up to 1.",
        lambda counts: _share(counts.float()) ** POWER,
    ),
    Mistake("They are not divided by their sum; probabilities add up to 1.", lambda counts: counts.float() ** POWER),
    Mistake(
        "That is a softmax of the counts; no exponential here, only a power and a sum.",
        lambda counts: counts.float().softmax(0),
    ),
    Mistake(
        "That is a softmax of the powers; divide the powers by their sum.",
        lambda counts: (counts.float() ** POWER).softmax(0),
    ),
    Mistake("The counts are multiplied by 0.75, which the division undoes; raise them to it: **.",
            lambda counts: _share(counts * POWER)),
    Mistake(
        "The power is 1 / 0.75, which favours the frequent words even more; 0.75 lifts the rare ones.",
        lambda counts: _share(counts.float() ** (1 / POWER)),
    ),
    Mistake(
        "The power is negative, so the rarest word is drawn most; frequent words should still be drawn more often.",
        lambda counts: _share(counts.float() ** -POWER),
    ),
    Mistake("Every word has the same probability.", lambda counts: torch.ones(len(counts)) / len(counts)),
]  # fmt: skip

# ---------------------------------------------------------------- GloVe


def _met(seed: int, pairs: int, d: int) -> dict[str, Tensor]:
    x = 10 ** (torch.rand(pairs, generator=rng(90 + seed)) * 4 - 1)  # 0.1 to 1,000
    x[0] = 250.0
    some = {name: normal(7 * seed + i + 60, pairs, d) for i, name in enumerate("wc")}
    return some | {name: normal(7 * seed + i + 64, pairs) for i, name in enumerate("bd")} | {"x": x}


def _glove(
    *, weight: str = "f", log: bool = True, biases: bool = True, square: bool = True, mean: bool = False
) -> Callable[..., Tensor]:
    """J as the paper has it, or with a slip."""
    weights: dict[str, Callable[[Tensor], Tensor]] = {
        "f": lambda x: (x / X_MAX).pow(ALPHA).clamp(max=1),
        "none": torch.ones_like,
        "open": lambda x: (x / X_MAX).pow(ALPHA),
        "linear": lambda x: (x / X_MAX).clamp(max=1),
        "min": lambda x: x.pow(ALPHA).clamp(max=X_MAX),
        "squared": lambda x: (x / X_MAX).pow(ALPHA).clamp(max=1).square(),
    }

    def loss(w: Tensor, c: Tensor, b: Tensor, d: Tensor, x: Tensor) -> Tensor:
        difference = (w * c).sum(-1) + (b + d if biases else 0) - (x.log() if log else x)
        terms = weights[weight](x) * (difference.square() if square else difference.abs())
        return terms.mean() if mean else terms.sum()

    return loss


_GLOVE_MISTAKES = [
    Mistake(
        "The weighting f(x) is missing: every pair counts the same, whether it was seen once or a thousand times.",
        _glove(weight="none"),
    ),
    Mistake(
        "f(x) goes on growing above x_max = 100; from there on it is 1: clamp(max=1).",
        _glove(weight="open"),
    ),
    Mistake("The exponent 0.75 of f(x) is missing.", _glove(weight="linear")),
    Mistake(
        "x is raised to 0.75 and cut at 100 but not divided by x_max: f(x) = min(1, (x / 100) ** 0.75).",
        _glove(weight="min"),
    ),
    Mistake("f(x) stands inside the square; it weighs the squared difference from outside.", _glove(weight="squared")),
    Mistake("The logarithm is missing: the product of two vectors should be log x, not x.", _glove(log=False)),
    Mistake("The two biases are missing in the difference.", _glove(biases=False)),
    Mistake("The difference is not squared.", _glove(square=False)),
    Mistake("That is the mean over the pairs; J is their sum.", _glove(mean=True)),
    Mistake(
        "log(1 + x) stands for log x; only pairs that meet are in the sum, so x is never 0.",
        lambda w, c, b, d, x: (
            (x / X_MAX).pow(ALPHA).clamp(max=1) * ((w * c).sum(-1) + b + d - x.log1p()).square()
        ).sum(),
    ),
]

# ---------------------------------------------------------------- analogies


def _asked(seed: int) -> dict[str, object]:
    """Vectors of unlike lengths. For eight seeds d stands near b - a + c, but c itself nearer still; for the others a,
    b and c are so alike that each of them lies nearer to it than any other word."""
    vectors = normal(200 + seed, 40, 6)
    a, b, c, d = torch.randperm(40, generator=rng(300 + seed))[:4].tolist()
    units = F.normalize(vectors, dim=-1)
    if seed < 8:
        vectors[b] = units[a] + 0.7 * normal(400 + seed, 6) / 6**0.5
        units = F.normalize(vectors, dim=-1)
        vectors[d] = units[b] - units[a] + units[c] + 0.3 * normal(500 + seed, 6) / 6**0.5
    else:
        for i, other in enumerate((b, c)):
            vectors[other] = units[a] + 0.3 * normal(400 + seed + 50 * i, 6) / 6**0.5
    vectors *= 0.5 + 2 * torch.rand(40, 1, generator=rng(600 + seed))
    return {"vectors": vectors, "a": a, "b": b, "c": c}


def _whole(found: object) -> object:
    return int(found) if isinstance(found, Tensor) and found.numel() == 1 else found


def _solve(
    *, signs: tuple[int, int, int] = (-1, 1, 1), out: str = "abc", before: bool = True, after: bool = True
) -> Callable[..., int]:
    """The analogy's answer as it should be, or with a slip."""

    def solve(vectors: Tensor, a: int, b: int, c: int) -> int:
        units = F.normalize(vectors, dim=-1)
        known = units if before else vectors
        target = sum(sign * known[i] for sign, i in zip(signs, (a, b, c), strict=True))
        scores = (units if after else vectors) @ target
        scores[[{"a": a, "b": b, "c": c}[name] for name in out]] = float("-inf")
        return int(scores.argmax())

    return solve


def _farthest(vectors: Tensor, a: int, b: int, c: int) -> int:
    units = F.normalize(vectors, dim=-1)
    distance = (units - (units[b] - units[a] + units[c])).norm(dim=-1)
    distance[[a, b, c]] = float("-inf")
    return int(distance.argmax())


_ANALOGY_MISTAKES = [
    Mistake(
        "a, b and c may be answers themselves, and c or b often wins; set their scores to -inf.",
        _solve(out=""),
    ),
    Mistake("Only c is left out; a and b are no answers either.", _solve(out="c")),
    Mistake("Only b and c are left out; a is no answer either.", _solve(out="bc")),
    Mistake("The direction is turned round: b - a + c, not a - b + c.", _solve(signs=(1, -1, 1))),
    Mistake("All three are added up; a is subtracted: b - a + c.", _solve(signs=(1, 1, 1))),
    Mistake("b + a - c answers another question; it is b - a + c.", _solve(signs=(1, 1, -1))),
    Mistake(
        "The scores are plain dot products with vectors of unlike lengths, which favour long vectors; make all of them "
        "length 1 first.",
        _solve(before=False, after=False),
    ),
    Mistake(
        "a, b and c are used at their own lengths, so that the longest decides; make them length 1 before you add.",
        _solve(before=False),
    ),
    Mistake(
        "The candidates are not at length 1, so long vectors win; compare cosines.",
        _solve(after=False),
    ),
    Mistake("It takes the word farthest away; the answer is the nearest.", _farthest),
]
