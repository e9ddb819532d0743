"""Lesson 21: what an answer and a training cost, how far a model goes beyond its corpus, a reward's
loss.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import normal
from classroom.checks.exercise import exercise


@exercise(
    [
        (n, *sizes, cache)
        for n, *sizes in ((124_000_000, 100, 50), (10, 7, 1), (3, 2, 4))
        for cache in (True, False)
    ],
)
def answer_flops(parameters: float, read: int, written: int, cache: bool) -> float:
    """FLOPs of one answer, 2 for each parameter and token that passes.

    With the cache each token passes once; the last one written is not read again. Without it every
    new token needs a pass over all before it."""
    passes = read + written - 1 if cache else sum(read + i for i in range(written))
    return 2.0 * parameters * passes


@exercise(
    [(110e6, 137e9, 312e12, 0.4, 2.0), (175e9, 300e9, 125e12, 0.2, 1.5), (1e6, 2e9, 1e12, 0.5, 0.3)]
)
def training_bill(
    parameters: float, tokens: float, peak: float, utilisation: float, price: float
) -> float:
    """Dollars: 6 N D FLOPs, devices rented by the hour.

    peak: FLOPs a second by the data sheet; utilisation: the share of it that is reached; price: of
    one hour."""
    hours = 6 * parameters * tokens / (peak * utilisation) / 3600
    return hours * price


def _shares(g: Generator) -> tuple[Tensor, Tensor]:
    corpus = torch.rand(6, generator=g)
    return corpus, (corpus + 0.4 * normal(g, 6)).clamp(0, 1)


@exercise(lambda g: [_shares(g) for _ in range(3)])
def amplification(corpus: Tensor, said: Tensor) -> Tensor:
    """Mean over the words of |said - 1/2| - |corpus - 1/2|, a scalar tensor.

    corpus, said: Float[N], the share of "she" among "she" and "he" beside each word, in the corpus
    and by the model."""
    beyond = (said - 0.5).abs() - (corpus - 0.5).abs()
    return beyond.mean()


@exercise(
    lambda g: [
        (normal(g, 5), normal(g, 5)),
        (normal(g, 5), normal(g, 5)),
        (torch.tensor([-150.0, 2.0]), torch.tensor([150.0, 1.0])),
    ],
    learns="chosen",
)
def preference_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Mean of -log sigmoid(chosen - rejected), a scalar that can be differentiated.

    chosen, rejected: Float[N], the rewards of the answers that people preferred and of the others.
    """
    return -F.logsigmoid(chosen - rejected).mean()
