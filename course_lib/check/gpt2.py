"""Checks of lesson 18: GPT-2's parameters, a continuation's score, the nucleus, one step with a cache."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

Step = tuple[Tensor, Tensor, Tensor]


def gpt2_parameters(fn: object) -> Verdict:
    """`fn(layers, width, vocab, length)` counts a GPT-2's parameters: tied output matrix, biases, two norms a block."""
    sizes = [(12, 768, 50257, 1024), (24, 1024, 50257, 1024), (2, 6, 50, 10), (1, 8, 30, 7)]
    cases: list[Case] = [dict(zip(("layers", "width", "vocab", "length"), row, strict=True)) for row in sizes]

    def test() -> str:
        compare(fn, cases, _parameters, _PARAMETER_MISTAKES)
        return "GPT-2 124M and 355M and two small ones, to the unit"

    return report("gpt2_parameters", test)


def continuation_score(fn: object) -> Verdict:
    """`fn(logits, ids, start)` is log P(ids[start:] | ids[:start]) in nats, a sum; logits [T V], ids Int[T]."""
    cases: list[Case] = [
        {"logits": 2 * _normal(seed, length, vocab), "ids": _ids(seed, length, vocab), "start": start}
        for seed, (length, vocab, start) in enumerate([(7, 9, 4), (6, 6, 3), (5, 12, 1)])
    ]

    def test() -> str:
        compare(fn, cases, _score, _SCORE_MISTAKES)
        return "the sum over the continuation's tokens and over no others, each from the logits before it"

    return report("continuation_score", test)


def top_p(fn: object) -> Verdict:
    """`fn(logits, p)`: the distribution over the fewest likeliest tokens whose probability reaches p, renormalised."""
    settings: list[tuple[tuple[int, ...], float]] = [
        ((8,), 0.7),
        ((3, 9), 0.8),
        ((2, 7), 0.5),
        ((6,), 1.0),
        ((5,), 0.1),
    ]
    cases: list[Case] = [{"logits": 1.5 * _normal(30 + i, *shape), "p": p} for i, (shape, p) in enumerate(settings)]

    def test() -> str:
        compare(fn, cases, _nucleus, _NUCLEUS_MISTAKES)
        return "p = 0.1, 0.5, 0.7, 0.8 and 1, with and without a batch; each row has its own number of tokens"

    return report("top_p", test)


def cached_step(fn: object) -> Verdict:
    """`fn(q, k, v, past_k, past_v)` -> (y [1 D], keys [T+1 D], values [T+1 D]): one new token attends to all so far.

    One head. q, k, v [1 D] are the new token's; past_k, past_v [T D] those of the tokens before it, perhaps none.
    """
    cases = [_new_token(seed, past, width) for seed, (past, width) in enumerate([(5, 4), (3, 8), (0, 4)])]

    def test() -> str:
        compare(fn, cases, _step, _STEP_MISTAKES)
        return "five, three and no tokens before; output, keys and values"

    return report("cached_step", test)


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed))


def _ids(seed: int, length: int, vocab: int) -> Tensor:
    return torch.randint(vocab, (length,), generator=rng(seed + 50))


# --- parameters -------------------------------------------------------------------------------------------------


def _parameters(layers: int, width: int, vocab: int, length: int) -> int:
    return (vocab + length) * width + layers * (12 * width**2 + 13 * width) + 2 * width


def _off(says: str, by: Callable[[int, int, int, int], int]) -> Mistake:
    """A count that is off by `by(layers, width, vocab, length)`."""
    return Mistake(says, lambda n, d, v, t: _parameters(n, d, v, t) + by(n, d, v, t))


_PARAMETER_MISTAKES = [
    _off(
        "The output matrix is counted too; it is tied: the table of token vectors once more.", lambda n, d, v, t: v * d
    ),
    _off("The positions are missing: a learned vector for each of `length` places.", lambda n, d, v, t: -t * d),
    _off("The token vectors are missing: vocab rows of width numbers.", lambda n, d, v, t: -v * d),
    _off("The last norm is missing: pre-norm needs one after the top block, 2 width.", lambda n, d, v, t: -2 * d),
    _off(
        "The norms are missing: each block has two, each with a scale and a shift, and one stands at the end.",
        lambda n, d, v, t: -(4 * n + 2) * d,
    ),
    _off("The blocks' norms are missing: two a block, each with a scale and a shift.", lambda n, d, v, t: -4 * n * d),
    _off(
        "A block has one norm in your count; it has two, before the attention and before the feed-forward.",
        lambda n, d, v, t: -2 * n * d,
    ),
    _off("The norms' shifts are missing; each norm has a scale and a shift.", lambda n, d, v, t: -(2 * n + 1) * d),
    _off("The biases of the matrices are missing: 9 width in each block.", lambda n, d, v, t: -9 * n * d),
    _off("Biases and norms are missing: 13 width in each block.", lambda n, d, v, t: -13 * n * d),
    _off(
        "Only the matrices of the blocks and the two tables are counted; biases and norms are missing.",
        lambda n, d, v, t: -(13 * n + 2) * d,
    ),
    _off(
        "The attention has four matrices, queries, keys, values and output; one is missing.",
        lambda n, d, v, t: -n * (d * d + d),
    ),
    _off(
        "The feed-forward's bias on the way up has 4 width numbers, as many as it has hidden units.",
        lambda n, d, v, t: -3 * n * d,
    ),
    _off("The feed-forward has two matrices, up and down; one is missing.", lambda n, d, v, t: -n * (4 * d * d + d)),
    Mistake(
        "12 layers width² is the rule of thumb for the blocks; here every weight counts, and the two tables.",
        lambda n, d, v, t: 12 * n * d * d,
    ),
    Mistake("Only one block is counted; multiply by the layers.", lambda n, d, v, t: _parameters(1, d, v, t)),
]


# --- a continuation ---------------------------------------------------------------------------------------------


def _picked(logits: Tensor, ids: Tensor) -> Tensor:
    """log p of ids[1:], each from the logits before it."""
    return logits[:-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]


def _score(logits: Tensor, ids: Tensor, start: int) -> float:
    return float(_picked(logits, ids)[start - 1 :].sum())


def _unshifted(logits: Tensor, ids: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]


_SCORE_MISTAKES = [
    Mistake(
        "There is no shift: logits[t] is compared with ids[t], which the model has already read. The token at t is "
        "predicted by logits[t - 1].",
        lambda x, ids, start: float(_unshifted(x, ids)[start:].sum()),
    ),
    Mistake(
        "The shift goes the wrong way: the token at t is predicted by logits[t - 1], not by logits[t + 1].",
        lambda x, ids, start: float(x[start + 1 :].log_softmax(-1).gather(-1, ids[start:-1, None]).sum()),
    ),
    Mistake(
        "The prompt is scored too. It is given; only the tokens from `start` on count.",
        lambda x, ids, start: float(_picked(x, ids).sum()),
    ),
    Mistake(
        "The continuation's first token is left out: ids[start] counts, and logits[start - 1] predict it.",
        lambda x, ids, start: float(_picked(x, ids)[start:].sum()),
    ),
    Mistake(
        "One token of the prompt is scored too: the first that counts is ids[start].",
        lambda x, ids, start: float(_picked(x, ids)[max(0, start - 2) :].sum()),
    ),
    Mistake(
        "It is the mean; a text's probability is a product, its logarithm the sum.",
        lambda x, ids, start: float(_picked(x, ids)[start - 1 :].mean()),
    ),
    Mistake(
        "The probabilities are added up; take their logarithms first: log_softmax.",
        lambda x, ids, start: float(_picked(x, ids)[start - 1 :].exp().sum()),
    ),
    Mistake(
        "It is the probability itself. Of a long text that is too small for a float; return its logarithm.",
        lambda x, ids, start: float(_picked(x, ids)[start - 1 :].sum().exp()),
    ),
    Mistake(
        "The sign is wrong: that is the loss. The score is the log probability, and the highest is the best.",
        lambda x, ids, start: -_score(x, ids, start),
    ),
    Mistake(
        "The logits are added up as they are; without log_softmax they are no log probabilities.",
        lambda x, ids, start: float(x[start - 1 : -1].gather(-1, ids[start:, None]).sum()),
    ),
    Mistake(
        "The softmax runs over the positions; it belongs over the vocabulary, dim=-1.",
        lambda x, ids, start: float(x.log_softmax(0)[start - 1 : -1].gather(-1, ids[start:, None]).sum()),
    ),
    Mistake(
        "Only the last token is scored; all of the continuation's count.",
        lambda x, ids, start: float(_picked(x, ids)[-1]),
    ),
    Mistake("It returns one number a token; add them up.", lambda x, ids, start: _picked(x, ids)[start - 1 :]),
    Mistake(
        "It is in bits (log2); this course counts in nats.", lambda x, ids, start: _score(x, ids, start) / math.log(2)
    ),
]


# --- the nucleus ------------------------------------------------------------------------------------------------


def _cut(logits: Tensor, kept: Callable[[Tensor, Tensor], Tensor], descending: bool = True) -> Tensor:
    """Probabilities with those set to 0 whose (probability, cumulated probability) in order is not `kept`."""
    probs, order = logits.softmax(-1).sort(dim=-1, descending=descending)
    probs = probs * kept(probs, probs.cumsum(-1))
    return torch.zeros_like(logits).scatter(-1, order, probs)


def _even(probs: Tensor) -> Tensor:
    return probs / probs.sum(-1, keepdim=True)


def _reach(p: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda probs, total: total - probs < p


def _nucleus(logits: Tensor, p: float) -> Tensor:
    return _even(_cut(logits, _reach(p)))


def _sorted_rows(logits: Tensor, p: float) -> Tensor:
    return _nucleus(logits, p).sort(dim=-1, descending=True).values


def _one_more(logits: Tensor, p: float) -> Tensor:
    """A token too many: those whose predecessor had not reached p by itself."""
    count = (_nucleus(logits, p) > 0).sum(-1, keepdim=True)
    place = torch.arange(logits.shape[-1]).expand(logits.shape)
    return _even(_cut(logits, lambda probs, total: place <= count))


def _first_row_decides(logits: Tensor, p: float) -> Tensor:
    count = int((_nucleus(logits, p).reshape(-1, logits.shape[-1])[0] > 0).sum())
    place = torch.arange(logits.shape[-1]).expand(logits.shape)
    return _even(_cut(logits, lambda probs, total: place < count))


_NUCLEUS_MISTAKES = [
    Mistake(
        "The token that reaches p is cut off. It belongs in the set: keep a token if those before it have not reached "
        "p yet.",
        lambda x, p: _even(_cut(x, lambda probs, total: total <= p)),
    ),
    Mistake(
        "The token that reaches p is cut off. It belongs in the set: keep a token if those before it have not reached "
        "p yet.",
        lambda x, p: _even(_cut(x, lambda probs, total: total < p)),
    ),
    Mistake("One token too many is kept: the set ends with the token that reaches p.", _one_more),
    Mistake("The kept probabilities do not sum to 1; divide each row by its sum.", lambda x, p: _cut(x, _reach(p))),
    Mistake(
        "The tokens are counted from the least likely one; sort with descending=True.",
        lambda x, p: _even(_cut(x, _reach(p), descending=False)),
    ),
    Mistake(
        "The probabilities come back sorted; put each at its own token again (scatter with the sort's indices).",
        _sorted_rows,
    ),
    Mistake(
        "The probabilities of the kept tokens stand at wrong tokens: the mask is in sorted order, the probabilities "
        "are not. Scatter it back.",
        lambda x, p: _even(x.softmax(-1) * (_sorted_rows(x, p) > 0)),
    ),
    Mistake(
        "Each token is compared with p by itself; what counts is the sum of the likeliest ones (cumsum).",
        lambda x, p: _even(x.softmax(-1) * (x.softmax(-1) >= p)),
    ),
    Mistake(
        "Tokens with a probability above 1 - p are kept; what counts is the sum of the likeliest ones (cumsum).",
        lambda x, p: _even(x.softmax(-1) * (x.softmax(-1) >= 1 - p)),
    ),
    Mistake(
        "The cut logits are set to 0, and exp(0) = 1 keeps them in the game; set them to -inf.",
        lambda x, p: x.masked_fill(_nucleus(x, p) == 0, 0.0).softmax(-1),
    ),
    Mistake("Nothing is cut off.", lambda x, p: x.softmax(-1)),
    Mistake("It returns logits; the softmax is missing.", lambda x, p: x.masked_fill(_nucleus(x, p) == 0, -math.inf)),
    Mistake("The first row decides how many tokens all rows keep; each row has its own number.", _first_row_decides),
    Mistake(
        "All kept tokens get the same probability; they keep their own.",
        lambda x, p: _even((_nucleus(x, p) > 0).float()),
    ),
    Mistake(
        "The logits are summed instead of the probabilities; softmax first, then cumsum.",
        lambda x, p: _by_logits(x, p),
    ),
]


def _by_logits(logits: Tensor, p: float) -> Tensor:
    values, order = logits.sort(dim=-1, descending=True)
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, values.cumsum(-1) - values < p)
    return logits.masked_fill(~kept, -math.inf).softmax(-1)


# --- a step with a cache ----------------------------------------------------------------------------------------


def _new_token(seed: int, past: int, width: int) -> Case:
    draw = rng(seed + 70)
    shapes = {"q": (1, width), "k": (1, width), "v": (1, width), "past_k": (past, width), "past_v": (past, width)}
    return {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()}


def _attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    weights = (q @ keys.T / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ values


def _step(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    keys, values = torch.cat([past_k, k]), torch.cat([past_v, v])
    return _attend(q, keys, values), keys, values


def _only_past(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    return (_attend(q, past_k, past_v), *_step(q, k, v, past_k, past_v)[1:])


def _in_front(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    return _step(q, past_k, past_v, k, v)


def _unscaled(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    return _step(q * q.shape[-1] ** 0.5, k, v, past_k, past_v)[:1] + _step(q, k, v, past_k, past_v)[1:]


def _by_length(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    _, keys, values = _step(q, k, v, past_k, past_v)
    return (q @ keys.T / len(keys) ** 0.5).softmax(-1) @ values, keys, values


def _over_features(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    _, keys, values = _step(q, k, v, past_k, past_v)
    return (q @ keys.T / q.shape[-1] ** 0.5).softmax(0) @ values, keys, values


def _kept_old(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    return _step(q, k, v, past_k, past_v)[0], past_k, past_v


def _swapped(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    y, keys, values = _step(q, k, v, past_k, past_v)
    return y, values, keys


def _alone(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    return (v.clone(), *_step(q, k, v, past_k, past_v)[1:])


def _query_kept(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Step:
    return _step(q, q, v, past_k, past_v)


_STEP_MISTAKES = [
    Mistake("The new token does not see itself: append k and v first, then attend to all T + 1.", _only_past),
    Mistake("The new key and value stand in front of the old ones; the newest comes last.", _in_front),
    Mistake("The scores are not divided by the square root of the width.", _unscaled),
    Mistake(
        "The scores are divided by the square root of the length; it is that of the width, q.shape[-1].", _by_length
    ),
    Mistake("The softmax runs over dim=0, where there is one query; the keys are dim=-1.", _over_features),
    Mistake("The old keys and values are returned: without the new ones the next step misses this token.", _kept_old),
    Mistake("Keys and values are returned in the wrong order: (y, keys, values).", _swapped),
    Mistake("The token attends to itself alone; all T + 1 keys take part.", _alone),
    Mistake("The query is stored in place of the key.", _query_kept),
    Mistake(
        "Only the output is returned; the next step needs the longer keys and values too: (y, keys, values).",
        lambda q, k, v, past_k, past_v: _step(q, k, v, past_k, past_v)[0],
    ),
]
