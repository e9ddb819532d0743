"""Word vectors to ask: neighbours, analogies, and a table for a classifier to start from."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError

UNIT = 1e-12  # the shortest vector that has a direction


class WordVectors:
    """One vector a word.

    Args:
        words: V different words. matrix: Float[V D]. counts: of each word in the text, if known.
    """

    def __init__(self, words: Sequence[str], matrix: Float[Tensor, "V D"], counts: Sequence[int] | None = None) -> None:
        self.words, self.matrix = list(words), matrix.float()
        self.counts = None if counts is None else list(counts)
        self.numbers = {word: i for i, word in enumerate(self.words)}
        if matrix.dim() != 2 or len(matrix) != len(self.words) or len(self.counts or words) != len(self.words):
            raise CourseError(f"There are {len(self.words)} words, but vectors {list(matrix.shape)}; give one a word.")
        if len(self.numbers) < len(self.words):
            raise CourseError(f"Of {len(self.words)} words, {len(self.words) - len(self.numbers)} come twice.")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.numbers

    def __getitem__(self, word: str) -> Float[Tensor, " D"]:
        """The word's vector.

        Raises:
            CourseError: a word that has none.
        """
        if word not in self.numbers:
            raise CourseError(f"There is no vector for {word!r}; it is not among the {len(self)} words.")
        return self.matrix[self.numbers[word]]

    def table(self, words: Iterable[str], *, seed: int = 0) -> Float[Tensor, "N D"]:
        """A vector a word, for a model to start from: a word's own, or that of its lower case; the others draw one of
        these vectors' mean and spread, by `seed`."""
        words = list(words)
        drawn = torch.randn(len(words), self.matrix.shape[1], generator=torch.Generator().manual_seed(seed))
        found = self.matrix.mean(0) + drawn * self.matrix.std(0, unbiased=False)
        for row, word in enumerate(words):
            number = self.numbers.get(word, self.numbers.get(word.lower()))
            if number is not None:
                found[row] = self.matrix[number]
        return found

    def similarity(self, a: str, b: str) -> float:
        """The cosine of two words."""
        return float(torch.cosine_similarity(self[a], self[b], dim=0))

    def nearest(
        self, to: str | Float[Tensor, " D"], k: int = 10, *, leave_out: Iterable[str] = ()
    ) -> list[tuple[str, float]]:
        """The k words with the largest cosine, and that cosine; never the word itself.

        Args:
            to: a word or a vector. leave_out: words that do not count.
        """
        if k < 1:
            raise CourseError(f"k is {k}; ask for at least one neighbour.")
        vector = self[to] if isinstance(to, str) else to
        cosines = self.units() @ (vector / vector.norm().clamp(min=UNIT))
        out = [self.numbers[word] for word in {*leave_out, *([to] if isinstance(to, str) else [])} if word in self]
        cosines[out] = float("-inf")
        best = cosines.topk(min(k, len(self) - len(out)))
        return [(self.words[i], cosine) for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[tuple[str, float]]:
        """a is to b as c is to ...: the words nearest to b - a + c, all three of length 1 and not counted themselves
        (3CosAdd: Mikolov et al. 2013c; Levy and Goldberg 2014, equation 2)."""
        u, v, w = torch.nn.functional.normalize(torch.stack([self[word] for word in (a, b, c)]), eps=UNIT)
        return self.nearest(v - u + w, k, leave_out=(a, b, c))

    def units(self) -> Float[Tensor, "V D"]:
        """All vectors at length 1."""
        return torch.nn.functional.normalize(self.matrix, eps=UNIT)
