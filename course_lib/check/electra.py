"""Checks of lesson 14: drawing words from a generator, filling them in, the detection loss, what a budget buys."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, difference, outcome, report, rng

Filled = tuple[Tensor, Tensor]


def sample_words(fn: object) -> Verdict:
    """`fn(logits, rng)` draws one token a row of logits [N V], by its probability: Int[N].

    Every draw comes from the torch.Generator `rng`.
    """

    def test() -> str:
        for row in ([1.5, -1.0, 0.5, 0.0], [-0.5, 2.0, 0.7, -3.0, 0.2]):
            _judge_draws(fn, torch.tensor(row))
        return "8,000 draws from each of two distributions, one for every row, all from rng"

    return report("sample_words", test)


def replace_tokens(fn: object) -> Verdict:
    """`fn(ids, at, sampled)` -> (seen, replaced): the text with the samples in it, and where it is another than before.

    ids Int[B T], the original; at Bool[B T]; sampled Int[N], for the chosen places in reading order.
    """
    cases: list[Case] = [
        {
            "ids": torch.tensor([[7, 5, 9, 6], [8, 5, 7, 3]]),
            "at": torch.tensor([[False, True, False, True], [True, False, True, False]]),
            "sampled": torch.tensor([5, 2, 4, 7]),  # the first and the last are the original tokens
        },
        {
            "ids": torch.tensor([[2, 3, 4, 5, 6]]),
            "at": torch.tensor([[True, False, True, True, False]]),
            "sampled": torch.tensor([9, 4, 2]),
        },
    ]

    def test() -> str:
        compare(fn, cases, _fill, _FILL_MISTAKES)
        return "samples in their places, right guesses not counted as replaced, two batches"

    return report("replace_tokens", test)


def rtd_loss(fn: object) -> Verdict:
    """`fn(logits, replaced, keep)`: the mean binary cross-entropy of "was it replaced?" over the real tokens.

    logits [B T], above 0 = replaced; replaced and keep Bool[B T].
    """
    cases = [_detection_case(seed, lengths) for seed, lengths in enumerate(([6, 3, 4], [5, 2]))]

    def test() -> str:
        compare(fn, cases, _detection, _DETECTION_MISTAKES)
        return "every real token counts, replaced or not, padding does not, two batches"

    return report("rtd_loss", test)


def steps_for(fn: object) -> Verdict:
    """`fn(budget, forwards, rows)`: how many whole training steps a budget of FLOPs pays for (int).

    forwards: FLOPs of one row's forward pass, a number for each model that is trained; rows: of a batch.
    """
    cases: list[Case] = [
        {"budget": 1_000_000, "forwards": [900, 100], "rows": 32},
        {"budget": 5_000_000, "forwards": [1_100], "rows": 16},
        {"budget": 2_500_000, "forwards": [700, 90], "rows": 8},
    ]

    def test() -> str:
        compare(fn, cases, _steps, _STEPS_MISTAKES)
        return "forward and backward, every row, generator and discriminator, rounded down, three budgets"

    return report("steps_for", test)


# --- sampling -----------------------------------------------------------------------------------------------------


def _judge_draws(fn: object, row: Tensor, count: int = 8000) -> None:
    case: Case = {"logits": row.expand(count, -1).contiguous(), "rng": rng(3)}
    drawn = _tokens(outcome(fn, case), case, len(row))
    if (drawn == drawn[0]).all():
        others = [_tokens(outcome(fn, {**case, "rng": rng(seed)}), case, len(row)) for seed in range(4, 12)]
        if any((other != drawn).all() for other in others):
            raise WrongError("Every row has the same draw; each row needs randomness of its own.")
    found = torch.bincount(drawn, minlength=len(row)) / count
    wanted = row.softmax(-1)
    slips = {
        "These are always the likeliest tokens. The generator draws: argmax would show the discriminator the same word "
        "each time.": F.one_hot(row.argmax(), len(row)).float(),
        "All tokens come equally often; each has its probability, softmax(logits).": torch.ones(len(row)) / len(row),
        "The likely tokens come seldom and the unlikely ones often: is a sign wrong?": (-row).softmax(-1),
    }
    for says, share in slips.items():
        if (found - share).abs().max() < 0.03:
            raise WrongError(says)
    if (found - wanted).abs().max() > 0.03:
        said = ", ".join(f"{p:.2f}" for p in found)
        raise WrongError(
            f"The tokens come with shares {said}; their probabilities are "
            + ", ".join(f"{p:.2f}" for p in wanted)
            + "."
        )
    runs = sum(bool(a == b) for a, b in pairwise(drawn.tolist())) / (count - 1)
    if abs(runs - float((wanted**2).sum())) > 0.05:
        raise WrongError("Neighbouring rows depend on each other; each row needs randomness of its own.")
    if not torch.equal(_tokens(outcome(fn, case), case, len(row)), drawn):
        raise WrongError("The same generator gives other tokens the next time: draw with generator=rng.")
    if torch.equal(_tokens(outcome(fn, {**case, "rng": rng(4)}), case, len(row)), drawn):
        raise WrongError("Another generator gives the same tokens: draw with generator=rng.")


def _tokens(got: object, case: Case, vocabulary: int) -> Tensor:
    count = len(case["logits"])
    if isinstance(got, Crash):
        raise WrongError(difference({"logits": case["logits"]}, got, None))
    if not isinstance(got, Tensor):
        raise WrongError("It should return a torch.Tensor, one token number a row: Int[N].")
    if got.is_floating_point():
        raise WrongError("It should return token numbers (whole numbers), not probabilities or scores.")
    if got.shape == (count, 1):
        raise WrongError("The result has shape [N 1]; one number a row is [N]: take [:, 0].")
    if got.shape != (count,):
        raise WrongError(f"The result has shape {list(got.shape)}; it should be one token a row, [{count}].")
    if int(got.min()) < 0 or int(got.max()) >= vocabulary:
        raise WrongError(f"It returns {int(got.max())}, which is no token of this vocabulary of {vocabulary}.")
    return got


# --- filling in ---------------------------------------------------------------------------------------------------


def _fill(ids: Tensor, at: Tensor, sampled: Tensor) -> Filled:
    seen = ids.masked_scatter(at, sampled)
    return seen, seen != ids


def _by_columns(ids: Tensor, at: Tensor, sampled: Tensor) -> Filled:
    seen = ids.T.masked_scatter(at.T, sampled).T
    return seen, seen != ids


_FILL_MISTAKES = [
    Mistake(
        "Every chosen place is called replaced. Where the generator guessed the original word, nothing was replaced: "
        "compare the new text with the old one.",
        lambda ids, at, sampled: (_fill(ids, at, sampled)[0], at),
    ),
    Mistake(
        "True and False have changed places: replaced is True where the new text differs.",
        lambda ids, at, sampled: (_fill(ids, at, sampled)[0], ~_fill(ids, at, sampled)[1]),
    ),
    Mistake("The two results have changed places; return seen, replaced.", lambda *case: _fill(*case)[::-1]),
    Mistake("The text is still the original one: the samples are not in it.", lambda ids, at, s: (ids, at)),
    Mistake(
        "The samples stand at the places that were not chosen.",
        lambda ids, at, s: _fill(ids, ~at, s.repeat(9)),
    ),
    Mistake("The samples go into the rows from left to right; here they go down the columns.", _by_columns),
    Mistake(
        "The samples are in reverse order; they are in reading order.", lambda ids, at, s: _fill(ids, at, s.flip(0))
    ),
    Mistake("This is the new text alone; return seen, replaced.", lambda *case: _fill(*case)[0]),
    Mistake("This is what was replaced alone; return seen, replaced.", lambda *case: _fill(*case)[1]),
]


# --- detection ----------------------------------------------------------------------------------------------------


def _detection_case(seed: int, lengths: Sequence[int]) -> Case:
    draw, shape = rng(40 + seed), (len(lengths), max(lengths))
    keep = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    logits = 2 * torch.randn(shape, generator=draw)
    return {"logits": logits, "replaced": (torch.rand(shape, generator=draw) < 0.4) & keep, "keep": keep}


def _bce(logits: Tensor, replaced: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")


def _detection(logits: Tensor, replaced: Tensor, keep: Tensor) -> Tensor:
    return _bce(logits, replaced)[keep].mean()


def _mistaken(says: str, does: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Mistake:
    return Mistake(says, does)


_DETECTION_MISTAKES = [
    _mistaken("Padding is counted: take the mean over the real tokens (keep).", lambda x, r, k: _bce(x, r).mean()),
    _mistaken(
        "Padding costs nothing here, but it is counted in the division: divide by the number of real tokens.",
        lambda x, r, k: (_bce(x, r) * k).mean(),
    ),
    _mistaken(
        "Only the replaced tokens are in the loss. The point of ELECTRA is that the others teach, too: a model that "
        "calls everything replaced would be perfect here.",
        lambda x, r, k: _bce(x, r)[r].mean(),
    ),
    _mistaken(
        "Only the tokens that were left alone are in the loss; every real token is.",
        lambda x, r, k: _bce(x, r)[k & ~r].mean(),
    ),
    _mistaken(
        "The question is turned round: a logit above 0 says replaced.",
        lambda x, r, k: _bce(-x, r)[k].mean(),
    ),
    _mistaken("This is the sum; the mean is asked for.", lambda x, r, k: _bce(x, r)[k].sum()),
    _mistaken(
        "This is a mean of the rows' means: in a short row a token counts more than in a long one. One mean over all "
        "real tokens.",
        lambda x, r, k: ((_bce(x, r) * k).sum(1) / k.sum(1)).mean(),
    ),
    _mistaken(
        "The sigmoid is taken twice: ..._with_logits wants the logits as they are.",
        lambda x, r, k: _bce(x.sigmoid(), r)[k].mean(),
    ),
    _mistaken(
        "Half of the cross-entropy is missing: tokens that were left alone add -log(1 - p).",
        lambda x, r, k: -(r * F.logsigmoid(x))[k].mean(),
    ),
    _mistaken(
        "This is the squared error of the probability; the cross-entropy is asked for.",
        lambda x, r, k: (x.sigmoid() - r.float())[k].square().mean(),
    ),
    _mistaken("The sign is wrong: a loss is minus the log-probability.", lambda x, r, k: -_bce(x, r)[k].mean()),
    _mistaken("The losses are still one a token; return their mean.", lambda x, r, k: _bce(x, r)[k]),
]


# --- what a budget buys -------------------------------------------------------------------------------------------


def _steps(budget: float, forwards: Sequence[float], rows: int) -> int:
    return int(budget // (3 * rows * sum(forwards)))


_STEPS_MISTAKES = [
    Mistake(
        "Only the forward pass is paid for. The backward pass takes twice as much: three times in all.",
        lambda b, f, r: int(b // (r * sum(f))),
    ),
    Mistake(
        "Forward and backward are counted as twice the forward pass; backward alone is twice: three in all.",
        lambda b, f, r: int(b // (2 * r * sum(f))),
    ),
    Mistake(
        "Only one of the models is paid for. The generator is thrown away afterwards, but it was trained.",
        lambda b, f, r: int(b // (3 * r * f[0])),
    ),
    Mistake(
        "Only the last model is paid for; every model that is trained costs.",
        lambda b, f, r: int(b // (3 * r * f[-1])),
    ),
    Mistake("The costs of the models add up; this is their mean.", lambda b, f, r: int(b // (3 * r * sum(f) / len(f)))),
    Mistake("The rows of the batch are missing: a step reads all of them.", lambda b, f, r: int(b // (3 * sum(f)))),
    Mistake("Rounded up: the last step is no longer paid for.", lambda b, f, r: math.ceil(b / (3 * r * sum(f)))),
    Mistake("Rounded to the nearest; only whole steps are paid for.", lambda b, f, r: round(b / (3 * r * sum(f)))),
    Mistake("This is not a whole number: steps are, rounded down.", lambda b, f, r: b / (3 * r * sum(f))),
    Mistake("This is the cost of one step; how often does it go into the budget?", lambda b, f, r: 3 * r * sum(f)),
]
