"""Checks of lesson 08: GELU, the next-token loss, perplexity, sampling, GPT-1's input transformations."""

import inspect
import math

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng


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
        cases = [{**c, "keep": torch.ones_like(c["ids"], dtype=torch.bool)} for c in cases]
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


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed))


def _uniform(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=rng(seed))


def _language(seed: int, batch: int, length: int, vocab: int) -> dict[str, Tensor]:
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
        "This is the tanh approximation, off by up to 5e-4 (GPT-2 uses it). Here the exact form is asked for, with "
        "torch.erf.",
        lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    Mistake(
        "This is the sigmoid approximation x sigmoid(1.702 x), off by up to 0.02. Use torch.erf.",
        lambda x: x * (1.702 * x).sigmoid(),
    ),
    Mistake(
        "erf takes x / sqrt(2), not x: erf and the normal distribution differ by that factor.", lambda x: _phi(x, 1.0)
    ),
    Mistake("x is multiplied by sqrt(2) inside erf instead of divided.", lambda x: _phi(x, math.sqrt(2))),
    Mistake("x is divided by 2 inside erf; it is the square root of 2.", lambda x: _phi(x, 0.5)),
    Mistake("The half is missing: x/2 (1 + erf(...)).", lambda x: 2 * _phi(x, 1 / math.sqrt(2))),
    Mistake(
        "This is the gate Phi(x) alone; GELU lets that share of x through: x Phi(x).",
        lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2,
    ),
    Mistake("The 1 + is missing: x/2 (1 + erf(...)).", lambda x: x / 2 * torch.erf(x / math.sqrt(2))),
    Mistake("This is ReLU: a gate that is only open or shut.", lambda x: x.relu()),
    Mistake(
        "This is SiLU, x sigmoid(x): its gate is the logistic function, GELU's is the normal distribution's.",
        lambda x: x * x.sigmoid(),
    ),
    Mistake(
        "x is multiplied by the normal density; the gate is its integral, Phi.",
        lambda x: x * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi),
    ),
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
        "There is no shift: position t is compared with token t, which it has already read. Compare logits[:, :-1] "
        "with ids[:, 1:].",
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
        "torch.roll shifts the first token to the end, where it becomes a target. Cut instead: logits[:, :-1] and "
        "ids[:, 1:].",
        lambda x, ids, keep=None: _chosen(_nll(x, ids.roll(-1, 1)), keep).mean(),
    ),
    Mistake(
        "Padding counts: the mean must run over the targets with keep[:, 1:] only.",
        lambda x, ids, keep=None: _nll(x[:, :-1], ids[:, 1:]).mean(),
    ),
    Mistake(
        "Padding still counts in the mean: the losses are set to 0 there, but divided by all positions. Divide by "
        "keep[:, 1:].sum().",
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
        "It is the mean over all tokens of the vocabulary, not the target's loss: pick the target with gather or "
        "cross_entropy.",
        lambda x, ids, keep=None: -x[:, :-1].log_softmax(-1).mean(),
    ),
]


def _perplexity(losses: Tensor, keep: Tensor) -> float:
    return math.exp(float(losses[keep].mean()))


def _rows_mean(losses: Tensor, keep: Tensor) -> Tensor:
    return (losses * keep).sum(1) / keep.sum(1)


_PERPLEXITY_MISTAKES = [
    Mistake(
        "It is 2 to the power of the loss; the losses are in nats, so the base is e: exp.",
        lambda x, k: 2 ** float(x[k].mean()),
    ),
    Mistake("The exp is missing: this is the mean loss.", lambda x, k: float(x[k].mean())),
    Mistake(
        "Each row is averaged first, so short rows count too much. Sum all real tokens' losses, divide by their "
        "number, then exp.",
        lambda x, k: math.exp(float(_rows_mean(x, k).mean())),
    ),
    Mistake(
        "It is the mean of the rows' perplexities; take one mean loss over all tokens, then exp once.",
        lambda x, k: float(_rows_mean(x, k).exp().mean()),
    ),
    Mistake("It is the mean of exp(loss); the exp comes after the mean.", lambda x, k: float(x[k].exp().mean())),
    Mistake("Padding counts: take the mean over keep only.", lambda x, k: math.exp(float(x.mean()))),
    Mistake(
        "Padding counts in the number of tokens: divide by keep.sum().", lambda x, k: math.exp(float((x * k).mean()))
    ),
    Mistake("It is exp of the sum; divide by the number of tokens first.", lambda x, k: math.exp(float(x[k].sum()))),
    Mistake(
        "The sign is wrong: the loss is a negative log-probability already, so exp(+mean).",
        lambda x, k: math.exp(-float(x[k].mean())),
    ),
]
