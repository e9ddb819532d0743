"""Word vectors, however they were learned, and the text files in which they are published.

Letters: V words of the vocabulary, D width of a vector, N words that a model needs.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError

MIN_NORM = 1e-12  # shorter vectors are not scaled to length 1: their direction is rounding error


class WordVectors:
    """One vector for each word of a vocabulary.

    >>> vectors = WordVectors(["king", "queen"], torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
    >>> vectors["queen"].tolist(), "uncle" in vectors
    ([0.6000000238418579, 0.800000011920929], False)

    Args:
        words: the V different words.
        matrix: their vectors, in the same order.
        counts: how often each word occurs in the text that the vectors were learned from, if known.

    Raises:
        CourseError: a word has no vector or several.
    """

    def __init__(
        self,
        words: Sequence[str],
        matrix: Float[Tensor, "V D"],
        counts: Sequence[int] | None = None,
    ) -> None:
        self.words = list(words)
        self.matrix = matrix.float()
        self.counts = None if counts is None else list(counts)
        self.numbers = {word: i for i, word in enumerate(self.words)}
        if len({*words}) < len(matrix) or len(matrix) != len(self.words):
            raise CourseError(
                f"There are {len({*words})} words and {len(matrix)} vectors; give each word one."
            )

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.numbers

    def __getitem__(self, word: str) -> Float[Tensor, " D"]:
        if word not in self.numbers:
            raise CourseError(
                f"There is no vector for {word!r}; it is not among the {len(self)} words."
            )
        return self.matrix[self.numbers[word]]

    def table(self, words: Iterable[str], *, seed: int = 0) -> Float[Tensor, "N D"]:
        """An embedding matrix for another model's vocabulary, to initialise it with.

        Args:
            words: that vocabulary. A word without a vector gets the vector of its lower-case form.
                If that is missing too, it gets a random vector with the mean and standard deviation
                of all vectors.
            seed: seed of the random vectors.
        """
        words = list(words)
        rng = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(words), self.matrix.shape[1], generator=rng)
        table = self.matrix.mean(0) + noise * self.matrix.std(0, unbiased=False)
        for row, word in enumerate(words):
            number = self.numbers.get(word, self.numbers.get(word.lower()))
            if number is not None:
                table[row] = self.matrix[number]
        return table

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The k other words with the largest cosine to this word, each with its cosine."""
        unit = F.normalize(self[word], dim=0, eps=MIN_NORM)
        cosines = self.units() @ unit  # V
        cosines[self.numbers[word]] = float("-inf")
        top = cosines.topk(min(k, len(self) - 1))
        words = [self.words[i] for i in top.indices.tolist()]
        return list(zip(words, top.values.tolist(), strict=True))

    def units(self) -> Float[Tensor, "V D"]:
        """All vectors scaled to length 1, so that the dot product of two is their cosine."""
        return F.normalize(self.matrix, eps=MIN_NORM)


def load_text(path: str | Path) -> WordVectors:
    """Read word vectors from a text file in word2vec's or GloVe's format.

    Each line is a word and its D numbers, separated by blanks. word2vec's format has one more line
    at the top, with V and D.

    Raises:
        CourseError: a line is not a word and numbers, or lines have different lengths.
    """
    with Path(path).open(encoding="utf-8") as file:
        lines = [line.rstrip("\n ").split(" ") for line in file]
    if len(lines[0]) == 2:  # word2vec's first line: V D
        lines = lines[1:]
    try:
        matrix = torch.tensor([[float(value) for value in values] for _, *values in lines])
    except ValueError as error:
        raise CourseError(
            f"{path} is not lines of a word and as many numbers each ({error})."
        ) from None
    return WordVectors([word for word, *_ in lines], matrix)
