"""GloVe: word vectors from how often words meet (Pennington et al. 2014).

Letters: V different words, D size of a vector, P pairs of words that meet, B pairs of a step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families.word_vectors.text import CountedText, Progress
from course_lib.families.word_vectors.vectors import WordVectors


@dataclass(frozen=True)
class GloVeConfig:
    """How GloVe learns its vectors."""

    size: int = 64  # D
    window: int = 5  # words on each side
    x_max: float = 100.0  # pairs that meet so often, or more often, have the full weight f
    alpha: float = 0.75  # how fast f grows up to there
    epochs: int = 15  # passes over all pairs
    lr: float = 0.05
    batch: int = 2048  # pairs a step
    seed: int = 0


class Cooccurrences(NamedTuple):
    """Word i has word j around it x times, for every pair that meets."""

    i: Int[Tensor, " P"]
    j: Int[Tensor, " P"]
    x: Float[Tensor, " P"]


def cooccurrences(text: CountedText, window: int = 5) -> Cooccurrences:
    """How often words meet within `window` words, each time counted as 1 / distance (section 4.2).

    Args:
        text: its words and rows; no window crosses a row.
        window: words on each side.
    """
    from scipy.sparse import coo_array

    size = len(text.words)
    total = coo_array((size, size)).tocsr()
    for distance in range(1, window + 1):
        is_same_row = text.rows[distance:] == text.rows[:-distance]
        left = text.ids[:-distance][is_same_row].numpy()
        right = text.ids[distance:][is_same_row].numpy()
        weights = torch.full((len(left),), 1 / distance, dtype=torch.float64).numpy()
        total += coo_array((weights, (left, right)), shape=(size, size)).tocsr()
    both = (total + total.T).tocoo()  # to the right and to the left
    i = torch.from_numpy(both.row.astype("int64"))
    j = torch.from_numpy(both.col.astype("int64"))
    return Cooccurrences(i, j, torch.from_numpy(both.data).float())


class GloVe:
    """Word vectors whose products are the logarithms of how often words meet (equations 8 and 9).

        J    = sum over pairs of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2
        f(x) = min(1, (x / x_max)^alpha)

    X_ij counts the words j around a word i, one at distance n as 1 / n. A word's vector is w + c
    (section 4.2). As in the authors' program, the steps follow half of the gradient, and AdaGrad's
    sums of squares begin at 1.

    Attributes:
        w: [V, D + 1], a word's vector and, in the last column, its bias b.
        c: the same of a word around another, with its bias d.
    """

    def __init__(self, text: CountedText, config: GloVeConfig | None = None) -> None:
        self.text = text
        self.config = config or GloVeConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        shape = len(text.words), self.config.size + 1
        self.w = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        self.c = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        # AdaGrad's sums of squared gradients
        self.squares_w = torch.ones(shape)
        self.squares_c = torch.ones(shape)

    def vectors(self) -> WordVectors:
        """The vectors learned so far, without the biases."""
        matrix = (self.w + self.c)[:, :-1].clone()
        return WordVectors(self.text.words, matrix, self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Train, and tell the loss after each epoch.

        Raises:
            CourseError: the loss is not finite.
        """
        pairs = cooccurrences(self.text, self.config.window)
        for epoch in range(self.config.epochs):
            total = torch.zeros(())
            order = torch.randperm(len(pairs.x), generator=self.rng)
            for done in range(0, len(order), self.config.batch):
                part = order[done : done + self.config.batch]
                total += self.step(pairs.i[part], pairs.j[part], pairs.x[part]).sum()
            loss = float(total) / len(pairs.x)
            if not loss < float("inf"):
                raise CourseError(
                    f"The loss is {loss} in epoch {epoch + 1}; lower the learning rate or the"
                    " batch."
                )
            yield Progress(epoch + 1, loss)

    def loss(
        self, i: Int[Tensor, " B"], j: Int[Tensor, " B"], x: Float[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Each pair's term of J (equation 8)."""
        difference = self._difference(self.w[i], self.c[j], x)
        return self._weight(x) * difference * difference

    def step(
        self, i: Int[Tensor, " B"], j: Int[Tensor, " B"], x: Float[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Update both words of every pair by AdaGrad; return each pair's term of J before it."""
        w = self.w.index_select(0, i)  # B D+1
        c = self.c.index_select(0, j)  # B D+1
        difference = self._difference(w, c, x)  # B
        half_slope = self._weight(x) * difference  # half of J's derivative by the difference
        loss = half_slope * difference
        g = half_slope[:, None]  # B 1

        # The derivative of w . c by w is c, and by c it is w; the derivative by a bias is 1.
        w[:, -1] = 1.0
        c[:, -1] = 1.0
        self._adagrad(self.w, self.squares_w, i, g * c)
        self._adagrad(self.c, self.squares_c, j, g * w)
        return loss

    def _adagrad(self, table: Tensor, squares: Tensor, rows: Tensor, gradient: Tensor) -> None:
        """Update some rows of a table, each number by its gradients' size so far."""
        rates = squares.index_select(0, rows).rsqrt_().mul_(-self.config.lr)
        table.index_add_(0, rows, gradient * rates)
        squares.index_add_(0, rows, gradient.square())

    def _difference(self, w: Tensor, c: Tensor, x: Tensor) -> Tensor:
        """w_i . c_j + b_i + d_j - log X_ij of each pair.

        Args:
            w: [B, D + 1], the words' vectors and biases.
            c: the same of the words around them.
            x: [B], how often they meet.
        """
        products = (w[:, :-1] * c[:, :-1]).sum(1)
        return products + w[:, -1] + c[:, -1] - x.log()

    def _weight(self, x: Tensor) -> Tensor:
        """f(x): rare pairs count less (equation 9)."""
        return (x / self.config.x_max).pow(self.config.alpha).clamp(max=1)
