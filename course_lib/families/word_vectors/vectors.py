"""One vector a word, and the text files in which they are published.

Letters: V different words, D size of a vector.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError

UNIT = 1e-12  # the shortest vector that has a direction


class WordVectors:
    """One vector a word.

    Args:
        words: V different words.
        matrix: their vectors.
        counts: of each word in the text, if known.

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
        """A vector for each of these words, for a model to start from.

        Args:
            words: a word without a vector gets that of its lower case. If that is missing too, it
                gets a random vector of the same mean and spread.
            seed: of the random vectors.
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
        """The k words with the largest cosine, and that cosine; never the word itself."""
        unit = F.normalize(self[word], dim=0, eps=UNIT)
        cosines = self.units() @ unit  # V
        cosines[self.numbers[word]] = float("-inf")
        best = cosines.topk(min(k, len(self) - 1))
        words = [self.words[i] for i in best.indices.tolist()]
        return list(zip(words, best.values.tolist(), strict=True))

    def units(self) -> Float[Tensor, "V D"]:
        """All vectors with length 1, so that a product of two is their cosine."""
        return F.normalize(self.matrix, eps=UNIT)


def load_text(path: str | Path) -> WordVectors:
    """Read word2vec's text format, or GloVe's, which lacks the first line with V and D.

    Raises:
        CourseError: a line is not a word and numbers, or lines have different lengths.
    """
    with Path(path).open(encoding="utf-8") as file:
        lines = [line.rstrip("\n ").split(" ") for line in file]
    if len(lines[0]) == 2:
        lines = lines[1:]
    try:
        matrix = torch.tensor([[float(value) for value in values] for _, *values in lines])
    except ValueError as error:
        raise CourseError(
            f"{path} is not lines of a word and as many numbers each ({error})."
        ) from None
    return WordVectors([word for word, *_ in lines], matrix)
