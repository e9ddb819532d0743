"""Counts of words that stand beside each other in the English training text: the cheapest language
models there are.

All probabilities are smoothed towards the word frequencies: P(b | a) = (n(a, b) + S P(b)) /
(n(a) + S), with the strength S that `Counts` is made with.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from course_lib import data

UNKNOWN = "<unknown>"
START = "<start>"
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\w\s]")


def words(text: str) -> list[str]:
    """Words and punctuation marks in small letters.

    >>> words("He didn't go, did he?")
    ['he', "didn't", 'go', ',', 'did', 'he', '?']
    """
    return _TOKEN.findall(text.lower())


class Pairs(NamedTuple):
    """[V V]: how often the column's word stands behind the row's, stored by rows and by columns."""

    rows: sparse.csr_matrix
    columns: sparse.csc_matrix

    def counted(
        self, words: Sequence[int], others: Sequence[int], *, before: bool
    ) -> Float[np.ndarray, "W O"]:
        """How often each of the others stands before, or behind, each word."""
        if before:
            return np.asarray(self.columns[:, words][others].toarray().T)
        return np.asarray(self.rows[words][:, others].toarray())


class Counts:
    """How often words stand at given distances from each other.

    Args:
        texts: the training text.
        size: that many of the most frequent words are told apart.
        strength: S, of the smoothing.
    """

    def __init__(self, texts: Sequence[str], size: int = 20_000, strength: float = 10.0) -> None:
        # Every word gets a number as it comes; then the frequent ones are numbered by frequency.
        first_numbers: defaultdict[str, int] = defaultdict(lambda: len(first_numbers))
        streams = [
            np.array([first_numbers[word] for word in (START, *words(text))], dtype=np.int32)
            for text in texts
        ]
        stream = np.concatenate(streams)
        counted = np.bincount(stream)
        known = list(first_numbers)
        order = np.argsort(-counted, kind="stable")[: size - 1]
        self.vocabulary = [UNKNOWN, *(known[number] for number in order)]
        self.numbers = {word: number for number, word in enumerate(self.vocabulary)}
        self.strength = strength
        new_numbers = np.zeros(len(known), dtype=np.int32)  # 0: not frequent
        new_numbers[order] = np.arange(1, len(order) + 1)
        self.ids = new_numbers[stream]  # N
        self.frequency = np.bincount(self.ids, minlength=len(self.vocabulary)).astype(np.float64)
        self.share = np.maximum(self.frequency, 1.0) / len(self.ids)
        self._pairs: dict[int, Pairs] = {}

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's words; 0 is an unknown one."""
        return [self.numbers.get(word, 0) for word in words(text)]

    def pairs(self, distance: int) -> "Pairs":
        """How often one word stands within `distance` words behind another."""
        if distance not in self._pairs:
            size = len(self.vocabulary)
            found = sparse.csr_matrix((size, size), dtype=np.int32)
            for gap in range(1, distance + 1):
                first, second = self.ids[:-gap], self.ids[gap:]
                ones = np.ones(len(first), dtype=np.int32)
                found += sparse.csr_matrix((ones, (first, second)), shape=(size, size))
            self._pairs[distance] = Pairs(found, found.tocsc())
        return self._pairs[distance]

    def bigram(self, first: int, second: int) -> float:
        """log P(second | first)."""
        seen = self.pairs(1).rows[first, second] + self.strength * self.share[second]
        return math.log(seen / (self.frequency[first] + self.strength))

    def sentence(self, text: str) -> float:
        """The log probability of a sentence, word by word."""
        ids = [self.numbers[START], *self.encode(text)]
        return sum(self.bigram(a, b) for a, b in pairwise(ids))

    def associations(
        self, words: Sequence[int], others: Sequence[int], distance: int, *, before: bool
    ) -> Float[np.ndarray, " W"]:
        """How well each word explains the others on one side: the sum of log P(o | word) / P(o).

        Args:
            words: W words.
            others: words that stand on that side; unknown ones are left out.
            distance: words are counted up to there.
            before: whether the others stand before the word.
        """
        known = [other for other in others if other]
        counted = self.pairs(distance).counted(words, known, before=before)  # W O
        expected = self.share[known]  # O
        total = self.frequency[words][:, None] * distance  # W 1
        likely = (counted + self.strength * expected) / (total + self.strength)
        values: Float[np.ndarray, " W"] = np.log(likely / expected).sum(axis=1)
        return values


@cache
def english(folder: Path, strength: float = 10.0) -> Counts:
    """The counts of the training split of a folder of text."""
    return Counts(data.corpus(folder, split="train")["text"], strength=strength)
