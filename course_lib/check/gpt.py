"""Checks of lesson 08: GELU, the next-token loss, perplexity, sampling, GPT-1's input transformations."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, difference, outcome, report, rng


def gelu(fn: object) -> Verdict:
    """`fn(x)` is x Phi(x) = x/2 (1 + erf(x / sqrt 2)), exactly (Hendrycks and Gimpel 2016)."""
    cases = [{"x": torch.linspace(-6, 6, 97)}, {"x": _normal(1, 2, 3, 4)}]

    def test() -> str:
        compare(fn, cases, lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2))), _GELU_MISTAKES)
        return "97 points from -6 to 6 and a batch, to 1e-5 of the exact form"

    return report("gelu", test)


def next_token_loss(fn: object) -> Verdict:
    """`fn(logits, ids)` or `fn(logits, ids, keep)`: mean cross-entropy in nats of each token given those before it.

    logits [B T V], ids Int[B T], keep Bool[B T] (True = real token; only real targets count).
    """
    keep = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
    cases: list[Case] = [_language(2, 2, 6, 7), _language(3, 1, 4, 11), _language(4, 3, 5, 5)]
    if _arity(fn) >= 3:
        cases = [c | {"keep": torch.ones_like(c["ids"], dtype=torch.bool)} for c in cases]
        cases.insert(0, _language(5, 2, 6, 7) | {"keep": keep})

    def test() -> str:
        compare(fn, cases, _next_token, _LOSS_MISTAKES)
        return "the shift by one, the mean over all targets" + (", padding left out" if len(cases) > 3 else "")

    return report("next_token_loss", test)


def perplexity(fn: object) -> Verdict:
    """`fn(losses, keep)` is exp of the mean loss a token: losses [B T] in nats, keep Bool[B T], True = counts."""
    keep = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    cases: list[Case] = [
        {"losses": 3 * _uniform(6, 3, 4), "keep": keep},
        {"losses": 2 * _uniform(7, 2, 5), "keep": torch.ones(2, 5, dtype=torch.bool)},
    ]

    def test() -> str:
        compare(fn, cases, _perplexity, _PERPLEXITY_MISTAKES)
        return "exp of the mean over all real tokens, for rows of unlike length"

    return report("perplexity", test)


def temperature(fn: object) -> Verdict:
    """`fn(logits, temperature)` is the softmax of logits / temperature over the last dimension."""
    cases: list[Case] = [{"logits": 2 * _normal(8 + i, *shape), "temperature": t} for i, (shape, t) in enumerate([((6,), 0.5), ((2, 6), 2.0), ((6,), 1.0)])]

    def test() -> str:
        compare(fn, cases, lambda x, t: (x / t).softmax(-1), _TEMPERATURE_MISTAKES)
        return "temperatures 0.5, 1 and 2, with and without a batch; rows sum to 1"

    return report("temperature", test)


def top_k(fn: object) -> Verdict:
    """`fn(logits, k)`: the distribution over the k most likely tokens, renormalised; all others have probability 0."""
    cases: list[Case] = [{"logits": 2 * _normal(20 + i, *shape), "k": k} for i, (shape, k) in enumerate([((8,), 3), ((2, 9), 4), ((6,), 1), ((5,), 5)])]

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
        return "the shares of 3,000 draws for k = 1, 3 and 4, temperatures 0.5, 1 and 2; the same generator gives the same draws"

    return report("sample_top_k", test)


def entailment_input(fn: object) -> Verdict:
    """`fn(premise, hypothesis, start, delim, extract)` -> the list start, premise, delim, hypothesis, extract of ids."""
    cases: list[Case] = [
        {"premise": [11, 12, 13], "hypothesis": [21, 22], "start": 1, "delim": 2, "extract": 3},
        {"premise": [31], "hypothesis": [41, 42, 43, 44], "start": 7, "delim": 8, "extract": 9},
    ]

    def test() -> str:
        compare(_listed(fn), cases, lambda p, h, s, d, e: [s, *p, d, *h, e], _ENTAILMENT_MISTAKES)
        return "start, premise, delimiter, hypothesis, extract, flat and in this order"

    return report("entailment_input", test)


def similarity_inputs(fn: object) -> Verdict:
    """`fn(a, b, start, delim, extract)` -> two lists of ids, one for each order of the two texts."""
    cases: list[Case] = [
        {"a": [11, 12], "b": [21, 22, 23], "start": 1, "delim": 2, "extract": 3},
        {"a": [31], "b": [41], "start": 7, "delim": 8, "extract": 9},
    ]

    def pair(a: list[int], b: list[int], s: int, d: int, e: int) -> list[list[int]]:
        return [[s, *a, d, *b, e], [s, *b, d, *a, e]]

    mistakes = [
        Mistake("There is one order only; similarity has none, so the decoder reads both.", lambda a, b, s, d, e: [s, *a, d, *b, e]),
        Mistake("Both rows hold the same order; the second needs b first.", lambda a, b, s, d, e: [[s, *a, d, *b, e]] * 2),
        Mistake("The delimiter between the texts is missing.", lambda a, b, s, d, e: [[s, *a, *b, e], [s, *b, *a, e]]),
        Mistake("The first row must hold a before b, the second b before a.", lambda *x: pair(*x)[::-1]),
    ]

    def test() -> str:
        compare(_listed(fn), cases, pair, mistakes)
        return "both orders, each with start, delimiter and extract"

    return report("similarity_inputs", test)


def choice_inputs(fn: object) -> Verdict:
    """`fn(context, answers, start, delim, extract)` -> one list of ids for each answer, the context in each."""
    cases: list[Case] = [
        {"context": [11, 12], "answers": [[21], [22, 23], [24]], "start": 1, "delim": 2, "extract": 3},
        {"context": [31], "answers": [[41, 42], [43]], "start": 7, "delim": 8, "extract": 9},
    ]

    def rows(c: list[int], answers: list[list[int]], s: int, d: int, e: int) -> list[list[int]]:
        return [[s, *c, d, *a, e] for a in answers]

    mistakes = [
        Mistake("The delimiter between context and answer is missing.", lambda c, n, s, d, e: [[s, *c, *a, e] for a in n]),
        Mistake("The context is missing: each answer is judged after it.", lambda c, n, s, d, e: [[s, *a, e] for a in n]),
        Mistake(
            "All answers stand in one sequence; each gets its own, and the softmax runs over their scores.",
            lambda c, n, s, d, e: [s, *c, *(x for a in n for x in [d, *a]), e],
        ),
        Mistake("The answer stands before the context.", lambda c, n, s, d, e: [[s, *a, d, *c, e] for a in n]),
        Mistake("The extract token at the end is missing; its vector is what gets scored.", lambda c, n, s, d, e: [[s, *c, d, *a] for a in n]),
    ]

    def test() -> str:
        compare(_listed(fn), cases, rows, mistakes)
        return "one sequence for each answer, the context in each"

    return report("choice_inputs", test)


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed))


def _uniform(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=rng(seed))


def _language(seed: int, batch: int, length: int, vocab: int) -> dict[str, Any]:
    return {
        "logits": 2 * _normal(seed, batch, length, vocab),
        "ids": torch.randint(vocab, (batch, length), generator=rng(seed)),
    }


def _arity(fn: object) -> int:
    """How many arguments the function takes by position; 0 where it cannot be told."""
    if not callable(fn):
        return 0
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return 0
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _phi(x: Tensor, scale: float) -> Tensor:
    return x / 2 * (1 + torch.erf(x * scale))


_GELU_MISTAKES = [
    Mistake(
        "This is the tanh approximation, off by up to 5e-4 (GPT-2 uses it). Here the exact form is asked for, with torch.erf.",
        lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    Mistake("This is the sigmoid approximation x sigmoid(1.702 x), off by up to 0.02. Use torch.erf.", lambda x: x * (1.702 * x).sigmoid()),
    Mistake("erf takes x / sqrt(2), not x: erf and the normal distribution differ by that factor.", lambda x: _phi(x, 1.0)),
    Mistake("x is multiplied by sqrt(2) inside erf instead of divided.", lambda x: _phi(x, math.sqrt(2))),
    Mistake("x is divided by 2 inside erf; it is the square root of 2.", lambda x: _phi(x, 0.5)),
    Mistake("The half is missing: x/2 (1 + erf(...)).", lambda x: 2 * _phi(x, 1 / math.sqrt(2))),
    Mistake("This is the gate Phi(x) alone; GELU lets that share of x through: x Phi(x).", lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2),
    Mistake("The 1 + is missing: x/2 (1 + erf(...)).", lambda x: x / 2 * torch.erf(x / math.sqrt(2))),
    Mistake("This is ReLU: a gate that is only open or shut.", lambda x: x.relu()),
    Mistake("This is SiLU, x sigmoid(x): its gate is the logistic function, GELU's is the normal distribution's.", lambda x: x * x.sigmoid()),
    Mistake("x is multiplied by the normal density; the gate is its integral, Phi.", lambda x: x * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)),
]


def _nll(logits: Tensor, targets: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]


def _next_token(logits: Tensor, ids: Tensor, keep: Tensor | None = None) -> Tensor:
    losses = _nll(logits[:, :-1], ids[:, 1:])
    return losses.mean() if keep is None else losses[keep[:, 1:]].mean()


def _chosen(losses: Tensor, keep: Tensor | None) -> Tensor:
    return losses.flatten() if keep is None else losses[keep]


def _shifted(keep: Tensor | None, part: slice) -> Tensor | None:
    return None if keep is None else keep[:, part]


def _by_rows(logits: Tensor, ids: Tensor, keep: Tensor | None = None) -> Tensor:
    losses = _nll(logits[:, :-1], ids[:, 1:])
    kept = torch.ones_like(losses) if keep is None else keep[:, 1:].float()
    return ((losses * kept).sum(1) / kept.sum(1)).mean()


_NEXT, _LAST = slice(1, None), slice(None, -1)
_LOSS_MISTAKES = [
    Mistake(
        "There is no shift: position t is compared with token t, which it has already read. Compare logits[:, :-1] with ids[:, 1:].",
        lambda x, ids, keep=None: _chosen(_nll(x, ids), keep).mean(),
    ),
    Mistake(
        "The shift goes the wrong way: position t is compared with token t-1. Compare logits[:, :-1] with ids[:, 1:].",
        lambda x, ids, keep=None: _chosen(_nll(x[:, 1:], ids[:, :-1]), _shifted(keep, _LAST)).mean(),
    ),
    Mistake(
        "The shift goes the wrong way: position t is compared with token t-1. Compare logits[:, :-1] with ids[:, 1:].",
        lambda x, ids, keep=None: _chosen(_nll(x[:, 1:], ids[:, :-1]), _shifted(keep, _NEXT)).mean(),
    ),
    Mistake(
        "torch.roll shifts the first token to the end, where it becomes a target. Cut instead: logits[:, :-1] and ids[:, 1:].",
        lambda x, ids, keep=None: _chosen(_nll(x, ids.roll(-1, 1)), keep).mean(),
    ),
    Mistake(
        "Padding counts: the mean must run over the targets with keep[:, 1:] only.",
        lambda x, ids, keep=None: _nll(x[:, :-1], ids[:, 1:]).mean(),
    ),
    Mistake(
        "Padding still counts in the mean: the losses are set to 0 there, but divided by all positions. Divide by keep[:, 1:].sum().",
        lambda x, ids, keep=None: (_nll(x[:, :-1], ids[:, 1:]) * (1 if keep is None else keep[:, 1:])).mean(),
    ),
    Mistake(
        "keep is not shifted with the targets: whether a target counts is said by keep[:, 1:].",
        lambda x, ids, keep=None: _chosen(_nll(x[:, :-1], ids[:, 1:]), _shifted(keep, _LAST)).mean(),
    ),
    Mistake(
        "It is the sum; the loss is the mean over the targets, or it grows with the batch.",
        lambda x, ids, keep=None: _chosen(_nll(x[:, :-1], ids[:, 1:]), _shifted(keep, _NEXT)).sum(),
    ),
    Mistake(
        "It is the sum over positions and the mean over rows; divide by the number of targets.",
        lambda x, ids, keep=None: (_nll(x[:, :-1], ids[:, 1:]) * (1 if keep is None else keep[:, 1:])).sum(1).mean(),
    ),
    Mistake(
        "Each row is averaged first, so a short row counts as much as a long one. Take one mean over all targets.",
        _by_rows,
    ),
    Mistake(
        "The softmax is applied twice: cross_entropy wants logits and does it itself.",
        lambda x, ids, keep=None: _next_token(x.softmax(-1), ids, keep),
    ),
    Mistake(
        "The sign is wrong: the loss is the negative log-probability.",
        lambda x, ids, keep=None: -_next_token(x, ids, keep),
    ),
    Mistake(
        "It is in bits (log2); this course counts loss in nats, torch.log.",
        lambda x, ids, keep=None: _next_token(x, ids, keep) / math.log(2),
    ),
    Mistake(
        "It is the mean over all tokens of the vocabulary, not the target's loss: pick the target with gather or cross_entropy.",
        lambda x, ids, keep=None: -x[:, :-1].log_softmax(-1).mean(),
    ),
]


def _perplexity(losses: Tensor, keep: Tensor) -> float:
    return math.exp(float(losses[keep].mean()))


def _rows_mean(losses: Tensor, keep: Tensor) -> Tensor:
    return (losses * keep).sum(1) / keep.sum(1)


_PERPLEXITY_MISTAKES = [
    Mistake("It is 2 to the power of the loss; the losses are in nats, so the base is e: exp.", lambda x, k: 2 ** float(x[k].mean())),
    Mistake("The exp is missing: this is the mean loss.", lambda x, k: float(x[k].mean())),
    Mistake(
        "Each row is averaged first, so short rows count too much. Sum all real tokens' losses, divide by their number, then exp.",
        lambda x, k: math.exp(float(_rows_mean(x, k).mean())),
    ),
    Mistake(
        "It is the mean of the rows' perplexities; take one mean loss over all tokens, then exp once.",
        lambda x, k: float(_rows_mean(x, k).exp().mean()),
    ),
    Mistake("It is the mean of exp(loss); the exp comes after the mean.", lambda x, k: float(x[k].exp().mean())),
    Mistake("Padding counts: take the mean over keep only.", lambda x, k: math.exp(float(x.mean()))),
    Mistake("Padding counts in the number of tokens: divide by keep.sum().", lambda x, k: math.exp(float((x * k).mean()))),
    Mistake("It is exp of the sum; divide by the number of tokens first.", lambda x, k: math.exp(float(x[k].sum()))),
    Mistake("The sign is wrong: the loss is a negative log-probability already, so exp(+mean).", lambda x, k: math.exp(-float(x[k].mean()))),
]

_TEMPERATURE_MISTAKES = [
    Mistake(
        "The logits are multiplied by the temperature; divide, so that a high temperature flattens the distribution.",
        lambda x, t: (x * t).softmax(-1),
    ),
    Mistake("The temperature divides the probabilities, after the softmax; divide the logits.", lambda x, t: x.softmax(-1) / t),
    Mistake("The temperature is not used.", lambda x, t: x.softmax(-1)),
    Mistake("It returns logits; the softmax is missing.", lambda x, t: x / t),
    Mistake("The softmax runs over dim=0, which is the batch where there is one; the tokens are dim=-1.", lambda x, t: (x / t).softmax(0)),
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
    Mistake("Off by one: it keeps k + 1 tokens; is the comparison with the k-th largest right?", lambda x, k: _top_k(x, min(k + 1, x.shape[-1]))),
    Mistake("It keeps k - 1 tokens: the k-th largest itself must stay (>=).", lambda x, k: _top_k(x, k - 1)),
    Mistake("It returns logits; the softmax is missing.", lambda x, k: x.masked_fill(_top_k(x, k) == 0, -math.inf)),
    Mistake("It returns k probabilities; keep the places of all V tokens, with 0 for the others.", lambda x, k: x.topk(k).values.softmax(-1)),
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
    ("All k tokens come up equally often; draw by their probabilities.", lambda x, k, t: (_top_k(x, k) > 0).float() / k),
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
    if one != outcome(fn, {**case, "rng": rng(0)}):
        raise WrongError("Two draws from equal generators differ: give torch.multinomial the argument generator=rng.")
    assert callable(fn)
    generator, counts = rng(1), torch.zeros(len(logits))
    for _ in range(_DRAWS):
        drawn = fn(logits.clone(), k, heat, generator)
        if isinstance(drawn, Tensor) and drawn.numel() == 1:
            drawn = drawn.item()
        if isinstance(drawn, bool) or not isinstance(drawn, int) or not 0 <= drawn < len(logits):
            raise WrongError(f"It returned {drawn!r}; a token is a whole number from 0 to {len(logits) - 1}, on {_said(case)}.")
        counts[drawn] += 1
    shares = counts / _DRAWS
    if _fits(shares, _top_k(logits / heat, k)):
        return
    if int((shares > 0).sum()) == k < len(logits) and _fits(shares.sort().values, _top_k(logits / heat, k).sort().values):
        raise WrongError("It returns the place among the k kept tokens, not the token: look the draw up in topk's indices.")
    for says, wrong in _SAMPLERS:
        if _fits(shares, wrong(logits, k, heat)):
            raise WrongError(f"{says} Seen on {_said(case)}.")
    token = int((shares - _top_k(logits / heat, k)).abs().argmax())
    right = float(_top_k(logits / heat, k)[token])
    raise WrongError(f"Token {token} came up in {100 * shares[token]:.0f}% of the draws, {100 * right:.0f}% is right, on {_said(case)}.")


def _fits(shares: Tensor, probs: Tensor) -> bool:
    """Within five standard errors everywhere, and never where the probability is 0."""
    error = 5 * (probs * (1 - probs) / _DRAWS).sqrt() + 1e-6
    return bool(((shares - probs).abs() <= error).all())


def _said(case: Case) -> str:
    return f"k = {case['k']}, temperature {case['temperature']}"


def _listed(fn: object) -> object:
    """Let tuples and tensors of ids pass for lists."""
    if not callable(fn):
        return fn

    def wrapped(*args: object) -> object:
        return _plain(fn(*args))

    return wrapped


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


_ENTAILMENT_MISTAKES = [
    Mistake("The delimiter between premise and hypothesis is missing.", lambda p, h, s, d, e: [s, *p, *h, e]),
    Mistake("Premise and hypothesis have changed places; the premise comes first.", lambda p, h, s, d, e: [s, *h, d, *p, e]),
    Mistake("The start token is missing.", lambda p, h, s, d, e: [*p, d, *h, e]),
    Mistake("The extract token at the end is missing; its vector is what the classifier reads.", lambda p, h, s, d, e: [s, *p, d, *h]),
    Mistake("Start and extract are missing around the two texts.", lambda p, h, s, d, e: [*p, d, *h]),
    Mistake("The extract token must come last: a decoder's position only knows what stands before it.", lambda p, h, s, d, e: [e, s, *p, d, *h]),
    Mistake("Start and extract have changed places.", lambda p, h, s, d, e: [e, *p, d, *h, s]),
    Mistake("There is a delimiter too many, after the hypothesis.", lambda p, h, s, d, e: [s, *p, d, *h, d, e]),
    Mistake("The end has a delimiter instead of the extract token.", lambda p, h, s, d, e: [s, *p, d, *h, d]),
    Mistake("The texts are lists inside the list; unpack them with * or join lists with +.", lambda p, h, s, d, e: [s, p, d, h, e]),
]
