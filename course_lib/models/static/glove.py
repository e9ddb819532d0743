"""GloVe: word vectors whose products are the logarithms of how often words meet (Pennington et al. 2014).

    J = sum over pairs of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2,    f(x) = min(1, (x / x_max)^alpha)

X_ij counts the words j around a word i, one at distance n as 1 / n. A word's vector is w + c (section 4.2).

As the authors' program does and the paper does not say: the steps follow half of the gradient, and AdaGrad's sums of
squares begin at 1. Known departure: a step takes many pairs, whose gradients are all taken before its updates.

Letters: V words, D size of a vector, P pairs of words that meet, B pairs of a step.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.models.static.text import CountedText
from course_lib.models.static.vectors import WordVectors
from course_lib.models.static.word2vec import Progress


@dataclass(frozen=True)
class GloVeConfig:
    """size: D. window: words looked at on each side. x_max, alpha: of f. batch: pairs a step."""

    size: int = 64
    window: int = 5
    x_max: float = 100.0
    alpha: float = 0.75
    epochs: int = 15
    lr: float = 0.05
    batch: int = 2048
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "window", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise CourseError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if min(self.x_max, self.alpha, self.lr) <= 0:
            raise CourseError("x_max, alpha and lr must be above 0.")


class Cooccurrences(NamedTuple):
    """Word i has word j around it x times, for every pair that meets at all."""

    i: Int[Tensor, " P"]
    j: Int[Tensor, " P"]
    x: Float[Tensor, " P"]


def cooccurrences(text: CountedText, window: int = 5) -> Cooccurrences:
    """How often words meet within `window` places on either side, each time as 1 / distance (section 4.2)."""
    from scipy.sparse import coo_array

    size = len(text.words)
    total = coo_array((size, size)).tocsr()
    for distance in range(1, window + 1):
        same = text.rows[distance:] == text.rows[:-distance]
        left, right = text.ids[:-distance][same].numpy(), text.ids[distance:][same].numpy()
        weights = torch.full((len(left),), 1 / distance, dtype=torch.float64).numpy()
        total += coo_array((weights, (left, right)), shape=(size, size)).tocsr()
    both = (total + total.T).tocoo()
    i, j = (torch.from_numpy(side.astype("int64")) for side in (both.row, both.col))
    return Cooccurrences(i, j, torch.from_numpy(both.data).float())


class GloVe:
    """Vectors w, c [V D + 1] with their biases in the last column, and AdaGrad's sums of squares."""

    def __init__(self, text: CountedText, config: GloVeConfig | None = None) -> None:
        self.text, self.config = text, config or GloVeConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        shape = len(text.words), self.config.size + 1
        self.w, self.c = ((torch.rand(shape, generator=self.rng) - 0.5) / shape[1] for _ in range(2))
        self.squares_w, self.squares_c = torch.ones(shape), torch.ones(shape)

    def vectors(self) -> WordVectors:
        """w + c as learned so far."""
        return WordVectors(self.text.words, (self.w + self.c)[:, :-1].clone(), self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Learn; one record an epoch, its loss the mean term of J.

        Raises:
            CourseError: no two words meet; the loss is no longer a number, because the learning rate is too high.
        """
        pairs = cooccurrences(self.text, self.config.window)
        if not len(pairs.x):
            raise CourseError("No two words of the text stand in one row; GloVe learns from words that meet.")
        for epoch in range(self.config.epochs):
            start, total = time.perf_counter(), torch.zeros(())
            order = torch.randperm(len(pairs.x), generator=self.rng)
            for done in range(0, len(order), self.config.batch):
                at = order[done : done + self.config.batch]
                total += self.step(pairs.i[at], pairs.j[at], pairs.x[at]).sum()
            loss = float(total) / len(pairs.x)
            if not loss < float("inf"):
                raise CourseError(f"The loss is {loss} in epoch {epoch + 1}; lower the learning rate or the batch.")
            yield Progress(epoch + 1, loss, len(self.text.ids) / (time.perf_counter() - start))

    def loss(self, i: Int[Tensor, " B"], j: Int[Tensor, " B"], x: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Each pair's term of J (equation 8)."""
        return self._terms(i, j, x)[0]

    def step(self, i: Int[Tensor, " B"], j: Int[Tensor, " B"], x: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Update both words of every pair by AdaGrad. Returns each pair's term of J before it."""
        loss, g, w, c = self._terms(i, j, x)
        w[:, -1] = c[:, -1] = 1.0  # what a bias is multiplied with
        for table, squares, at, down in ((self.w, self.squares_w, i, g * c), (self.c, self.squares_c, j, g * w)):
            table.index_add_(0, at, down * squares.index_select(0, at).rsqrt_().mul_(-self.config.lr))
            squares.index_add_(0, at, down.square())
        return loss

    def _terms(self, i: Tensor, j: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """J's terms, half of their derivatives by what is squared [B 1], and the rows of w and c."""
        w, c = self.w.index_select(0, i), self.c.index_select(0, j)
        difference = (w[:, :-1] * c[:, :-1]).sum(1) + w[:, -1] + c[:, -1] - x.log()
        weighted = (x / self.config.x_max).pow(self.config.alpha).clamp(max=1) * difference
        return weighted * difference, weighted[:, None], w, c
