"""Checks of lesson 21: what an answer and a training cost, how far a model goes beyond its corpus, a reward's loss."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng


def answer_flops(fn: object) -> Verdict:
    """`fn(parameters, read, written, cache)` -> operations of one answer, 2 for each parameter and token that passes.

    With the cache each token passes once; the last one written is not read again. Without it every new token needs a
    pass over all before it.
    """
    cases: list[Case] = [
        {"parameters": n, "read": read, "written": written, "cache": cache}
        for n, read, written, cache in (
            (124_000_000, 100, 50, True), (124_000_000, 100, 50, False), (10, 7, 1, True), (10, 7, 1, False),
            (3, 2, 4, False), (3, 2, 4, True),
        )
    ]  # fmt: skip

    def test() -> str:
        compare(fn, cases, _answer, _ANSWER_MISTAKES)
        return "with and without a cache, one token and many"

    return report("answer_flops", test)


def training_bill(fn: object) -> Verdict:
    """`fn(parameters, tokens, peak, utilisation, price)` -> dollars: 6 N D operations, devices rented by the hour.

    peak: operations a second by the data sheet; utilisation: the share of it that is reached; price: of one hour.
    """
    cases: list[Case] = [
        {"parameters": n, "tokens": d, "peak": peak, "utilisation": share, "price": price}
        for n, d, peak, share, price in (
            (110e6, 137e9, 312e12, 0.4, 2.0), (175e9, 300e9, 125e12, 0.2, 1.5), (1e6, 2e9, 1e12, 0.5, 0.3),
        )
    ]  # fmt: skip

    def test() -> str:
        compare(fn, cases, _bill, _BILL_MISTAKES)
        return "BERT on A100s, GPT-3 on V100s, a toy"

    return report("training_bill", test)


def amplification(fn: object) -> Verdict:
    """`fn(corpus, said)` -> mean over the words of |said - 1/2| - |corpus - 1/2|, a scalar tensor.

    corpus, said: Float[N], the share of "she" among "she" and "he" beside each word, in the corpus and by the model.
    """
    cases: list[Case] = []
    for seed in range(3):
        corpus = torch.rand(6, generator=rng(seed))
        cases.append({"corpus": corpus, "said": (corpus + 0.4 * torch.randn(6, generator=rng(9 + seed))).clamp(0, 1)})

    def test() -> str:
        compare(fn, cases, _amplification, _AMPLIFICATION_MISTAKES)
        return "words on both sides of one half, models that go further and less far"

    return report("amplification", test)


def preference_loss(fn: object) -> Verdict:
    """`fn(chosen, rejected)` -> mean of -log sigmoid(chosen - rejected), a scalar that can be differentiated.

    chosen, rejected: Float[N], the rewards of the answers that people preferred and of the others.
    """
    cases: list[Case] = [
        {"chosen": torch.randn(5, generator=rng(seed)), "rejected": torch.randn(5, generator=rng(7 + seed))}
        for seed in range(2)
    ]
    cases.append({"chosen": torch.tensor([-150.0, 2.0]), "rejected": torch.tensor([150.0, 1.0])})

    def test() -> str:
        compare(fn, cases, _preference, _PREFERENCE_MISTAKES)
        return "two draws, and a pair that is wrong by far"

    return report("preference_loss", test)


# --- costs --------------------------------------------------------------------------------------------------------


def _answer(parameters: float, read: int, written: int, cache: bool) -> float:
    passes = read + written - 1 if cache else sum(read + i for i in range(written))
    return 2.0 * parameters * passes


_ANSWER_MISTAKES = [
    Mistake(
        "This is what training takes, 6 for each parameter and token; an answer needs the forward pass alone, 2.",
        lambda n, r, w, c: 3 * _answer(n, r, w, c),
    ),
    Mistake(
        "Half of it: each parameter is multiplied and added, 2 operations for each token.",
        lambda n, r, w, c: _answer(n, r, w, c) / 2,
    ),
    Mistake(
        "With the cache one token is counted too many: the last one written is never read again.",
        lambda n, r, w, c: 2.0 * n * (r + w) if c else _answer(n, r, w, c),
    ),
    Mistake(
        "The cache makes no difference here; without it each new token needs a pass over all tokens before it.",
        lambda n, r, w, c: _answer(n, r, w, True),
    ),
    Mistake(
        "The two cases are exchanged: the cache is the cheap one.",
        lambda n, r, w, c: _answer(n, r, w, not c),
    ),
    Mistake(
        "Without the cache the text grows: the i-th new token is preceded by read + i tokens, not by read.",
        lambda n, r, w, c: _answer(n, r, w, c) if c else 2.0 * n * r * w,
    ),
    Mistake(
        "What was read is not in it; the prompt passes all the weights, too.",
        lambda n, r, w, c: 2.0 * n * w if c else 2.0 * n * sum(range(w)),
    ),
]


def _bill(parameters: float, tokens: float, peak: float, utilisation: float, price: float) -> float:
    return 6 * parameters * tokens / (peak * utilisation) / 3600 * price


_BILL_MISTAKES = [
    Mistake(
        "It is a third of the bill: training is 6 N D, a forward pass and twice that backward.",
        lambda n, d, k, u, p: _bill(n, d, k, u, p) / 3,
    ),
    Mistake(
        "The utilisation is left out: no training reaches the data sheet's rate.",
        lambda n, d, k, u, p: _bill(n, d, k, 1.0, p),
    ),
    Mistake(
        "It is multiplied by the utilisation. The lower it is, the longer the devices work: divide by it.",
        lambda n, d, k, u, p: _bill(n, d, k, 1.0, p) * u,
    ),
    Mistake(
        "The price is of an hour, and this counts seconds; divide by 3600.",
        lambda n, d, k, u, p: _bill(n, d, k, u, p) * 3600,
    ),
    Mistake("It divides by 60: these are minutes.", lambda n, d, k, u, p: _bill(n, d, k, u, p) * 60),
    Mistake("These are the hours; multiply by the price.", lambda n, d, k, u, p: _bill(n, d, k, u, 1.0)),
    Mistake("It divides by the price; each hour costs it.", lambda n, d, k, u, p: _bill(n, d, k, u, 1.0) / p),
]

# --- bias ---------------------------------------------------------------------------------------------------------


def _amplification(corpus: Tensor, said: Tensor) -> Tensor:
    return ((said - 0.5).abs() - (corpus - 0.5).abs()).mean()


_AMPLIFICATION_MISTAKES = [
    Mistake(
        "This is the mean of said - corpus. Words that are pushed up and words that are pushed down cancel in it; take "
        "the distances from one half.",
        lambda corpus, said: (said - corpus).mean(),
    ),
    Mistake(
        "This is the distance between the two. A model that is *less* extreme than its corpus must get a minus.",
        lambda corpus, said: (said - corpus).abs().mean(),
    ),
    Mistake("The order is turned: the corpus's distance is subtracted.", lambda c, s: -_amplification(c, s)),
    Mistake("This is the sum over the words; the mean is asked for.", lambda c, s: _amplification(c, s) * len(c)),
    Mistake(
        "This is how far the model is from one half; the corpus's own distance is not subtracted.",
        lambda corpus, said: (said - 0.5).abs().mean(),
    ),
    Mistake(
        "Distances are taken after the mean; then words on the two sides of one half cancel. First abs, then mean.",
        lambda corpus, said: (said.mean() - 0.5).abs() - (corpus.mean() - 0.5).abs(),
    ),
    Mistake(
        "Distances are squared; absolute ones are asked for.",
        lambda corpus, said: ((said - 0.5) ** 2 - (corpus - 0.5) ** 2).mean(),
    ),
]

# --- rewards ------------------------------------------------------------------------------------------------------


def _preference(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -F.logsigmoid(chosen - rejected).mean()


_PREFERENCE_MISTAKES = [
    Mistake(
        "It is infinite where the rejected answer is far ahead: sigmoid becomes 0 before the logarithm. F.logsigmoid "
        "does both in one.",
        lambda chosen, rejected: -(chosen - rejected).sigmoid().log().mean(),
    ),
    Mistake(
        "Chosen and rejected are exchanged: this rewards what people did not want.",
        lambda chosen, rejected: _preference(rejected, chosen),
    ),
    Mistake(
        "The sign: this is the log probability of people's choice, and a loss is minus that.",
        lambda chosen, rejected: -_preference(chosen, rejected),
    ),
    Mistake("This is the sum over the pairs; take the mean.", lambda c, r: _preference(c, r) * len(c)),
    Mistake(
        "The logarithm is missing; this is the mean probability of the other choice.",
        lambda chosen, rejected: (rejected - chosen).sigmoid().mean(),
    ),
    Mistake(
        "Each reward has a sigmoid of its own here. Only the difference is known from a comparison: "
        "sigmoid(chosen - rejected).",
        lambda chosen, rejected: -(F.logsigmoid(chosen) + F.logsigmoid(-rejected)).mean(),
    ),
    Mistake(
        "This is a margin (hinge) loss; the probability of the choice is a sigmoid of the difference.",
        lambda chosen, rejected: (1 - (chosen - rejected)).clamp(min=0).mean(),
    ),
    Mistake("This is the plain difference of rewards.", lambda chosen, rejected: (rejected - chosen).mean()),
]
