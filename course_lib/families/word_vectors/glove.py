"""GloVe: word vectors from co-occurrence counts (Pennington et al. 2014).

Letters: V words of the vocabulary, D width of a vector, P pairs of words that co-occur, B pairs of
a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families.word_vectors.progress import Progress
from course_lib.families.word_vectors.text import EncodedText
from course_lib.families.word_vectors.vectors import WordVectors


@dataclass(frozen=True)
class GloVeConfig:
    """How GloVe learns its vectors.

    Attributes:
        size: width D of a vector.
        window: number of context words on each side.
        x_max: co-occurrence count from which on a pair has the full weight f = 1.
        alpha: exponent of f below `x_max`.
        epochs: passes over all pairs.
        lr: learning rate of AdaGrad.
        batch: pairs in a batch.
        seed: seed of the first vectors and of the order of the pairs.
    """

    size: int = 64
    window: int = 5
    x_max: float = 100.0
    alpha: float = 0.75
    epochs: int = 15
    lr: float = 0.05
    batch: int = 2048
    seed: int = 0


class Cooccurrences(NamedTuple):
    """The co-occurrence matrix X without its zeros: X[i, j] = x for each pair."""

    i: Int[Tensor, " P"]
    j: Int[Tensor, " P"]
    x: Float[Tensor, " P"]


def cooccurrences(text: EncodedText, window: int = 5) -> Cooccurrences:
    """Count how often words occur near each other; a distance of n counts 1 / n (section 4.2).

    >>> from course_lib.families.word_vectors.text import encode_text
    >>> text = encode_text([["a", "b", "a"], ["b"]], min_count=1)
    >>> [x.tolist() for x in cooccurrences(text, window=2)]
    [[0, 0, 1], [0, 1, 0], [1.0, 2.0, 2.0]]

    Args:
        text: the encoded text; no window crosses a sentence.
        window: number of context words on each side.
    """
    from scipy.sparse import coo_array

    size = len(text.words)
    total = coo_array((size, size)).tocsr()
    for distance in range(1, window + 1):
        is_same_sentence = text.sentence_ids[distance:] == text.sentence_ids[:-distance]
        left = text.ids[:-distance][is_same_sentence].numpy()
        right = text.ids[distance:][is_same_sentence].numpy()
        weights = torch.full((len(left),), 1 / distance, dtype=torch.float64).numpy()
        total += coo_array((weights, (left, right)), shape=(size, size)).tocsr()
    # `total` holds each pair once, from the left word to the right one; X is symmetric.
    both = (total + total.T).tocoo()
    i = torch.from_numpy(both.row.astype("int64"))
    j = torch.from_numpy(both.col.astype("int64"))
    return Cooccurrences(i, j, torch.from_numpy(both.data).float())


class GloVe:
    """Word vectors whose products fit the logarithms of co-occurrence counts (equations 8 and 9).

        J    = sum over pairs of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2
        f(x) = min(1, (x / x_max)^alpha)

    X_ij counts how often word j occurs around word i (`cooccurrences`). The final vector of a word
    is w + c (section 4.2). As in the authors' program, an update uses half of the gradient, and
    AdaGrad's sums of squared gradients start at 1.

    Attributes:
        w: [V, D + 1], the vectors of words as centres; the last column is their bias b.
        c: [V, D + 1], the vectors of words as context words; the last column is their bias d.
    """

    def __init__(self, text: EncodedText, config: GloVeConfig | None = None) -> None:
        self.text = text
        self.config = config or GloVeConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        shape = len(text.words), self.config.size + 1
        self.w = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        self.c = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        # AdaGrad's sums of squared gradients, one for each number in w and c.
        self.squares_w = torch.ones(shape)
        self.squares_c = torch.ones(shape)

    def vectors(self) -> WordVectors:
        """The vectors learned so far, without the biases."""
        matrix = (self.w + self.c)[:, :-1].clone()
        return WordVectors(self.text.words, matrix, self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Train, and yield the mean loss after each epoch.

        Raises:
            CourseError: the loss is not finite.
        """
        pairs = cooccurrences(self.text, self.config.window)
        for epoch in range(self.config.epochs):
            total = torch.zeros(())
            order = torch.randperm(len(pairs.x), generator=self.rng)
            for start in range(0, len(order), self.config.batch):
                chosen = order[start : start + self.config.batch]
                total += self.step(pairs.i[chosen], pairs.j[chosen], pairs.x[chosen]).sum()
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
        """Update both words of every pair by AdaGrad.

        Returns:
            Each pair's term of J before the update.
        """
        w = self.w.index_select(0, i)  # B D+1
        c = self.c.index_select(0, j)  # B D+1
        difference = self._difference(w, c, x)  # B
        half_slope = self._weight(x) * difference  # half of J's derivative by the difference
        loss = half_slope * difference
        g = half_slope[:, None]  # B 1

        # The derivative of w . c by w is c, and by c it is w. The derivative by a bias is 1, so we
        # overwrite the biases in these copies before we use them as gradients.
        w[:, -1] = 1.0
        c[:, -1] = 1.0
        self._adagrad(self.w, self.squares_w, i, g * c)
        self._adagrad(self.c, self.squares_c, j, g * w)
        return loss

    def _difference(self, w: Tensor, c: Tensor, x: Tensor) -> Tensor:
        """w_i . c_j + b_i + d_j - log X_ij of each pair.

        Args:
            w: [B, D + 1], the centres' vectors and biases.
            c: [B, D + 1], the context words' vectors and biases.
            x: [B], the co-occurrence count of each pair.
        """
        products = (w[:, :-1] * c[:, :-1]).sum(1)
        return products + w[:, -1] + c[:, -1] - x.log()

    def _weight(self, x: Tensor) -> Tensor:
        """The weight f(x) of a pair: rare pairs count less (equation 9)."""
        return (x / self.config.x_max).pow(self.config.alpha).clamp(max=1)

    def _adagrad(self, table: Tensor, squares: Tensor, rows: Tensor, gradient: Tensor) -> None:
        """AdaGrad on some rows of w or c: the rate of each number is lr / sqrt(its sum of squares).

        The sums grow after the update, as in the authors' program.
        """
        rates = squares.index_select(0, rows).rsqrt_().mul_(-self.config.lr)
        table.index_add_(0, rows, gradient * rates)
        squares.index_add_(0, rows, gradient.square())
