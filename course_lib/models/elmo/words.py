"""Words in, words out: their spelling as character ids for the input, their numbers for the softmax."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.files import atomic_write

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
# Character ids after the 256 bytes, all shifted by one: 0 is left for a place without a word.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261

WORD = re.compile(r"['’]s\b|\w+(?:['’-](?!s\b)\w+)*|[^\w\s]")


def split(text: str) -> list[str]:
    """Words, the possessive, and punctuation marks, as the world's documents count them.

    >>> split("Anna's dog isn't here.")
    ['Anna', "'s", 'dog', "isn't", 'here', '.']
    """
    return WORD.findall(text)


@lru_cache(maxsize=2**16)
def spelling(word: str, length: int) -> tuple[int, ...]:
    """The character ids of a word: its UTF-8 bytes between two marks, cut and padded to `length`, each plus one.

    `<S>` and `</S>` are one character each.
    """
    whole = {BOS: (BEGIN_SENTENCE,), EOS: (END_SENTENCE,)}.get(word)
    inner = whole or tuple(byte + 1 for byte in word.encode("utf-8", "ignore")[: length - 2])
    ids = (BEGIN_WORD, *inner, END_WORD)
    return ids + (PAD,) * (length - len(ids))


def characters(rows: Sequence[Sequence[str]], length: int, ends: bool = True) -> dict[str, Tensor]:
    """Rows of words as a model's input, padded on the right.

    Args:
        rows: words, without `<S>` and `</S>`, which are added around each row unless `ends` is False.
        length: characters of a word (`ElmoConfig.length`).

    Returns: `ids` Int[B T C], 0 where there is no word, and `keep` Bool[B T].
    """
    framed = [[BOS, *row, EOS] if ends else list(row) for row in rows]
    if not framed:
        raise CourseError("There are no rows of words to spell.")
    width = max(map(len, framed))
    ids = np.zeros((len(framed), width, length), dtype=np.int64)
    for line, row in zip(ids, framed, strict=True):
        if row:
            line[: len(row)] = [spelling(word, length) for word in row]
    lengths = torch.tensor([len(row) for row in framed])
    return {"ids": torch.from_numpy(ids), "keep": torch.arange(width) < lengths[:, None]}


class Vocabulary:
    """The words of the softmax: `<S>`, `</S>`, `<UNK>`, then by frequency. Inputs need none of it."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        if missing := [mark for mark in (BOS, EOS, UNK) if mark not in self._ids]:
            raise CourseError(f"A vocabulary needs the entry {missing[0]}; this one does not have it.")
        if len(self._ids) < len(self.words):
            raise CourseError(f"A vocabulary of {len(self.words)} entries names only {len(self._ids)} different words.")
        self.bos, self.eos, self.unk = (self._ids[mark] for mark in (BOS, EOS, UNK))

    @staticmethod
    def count(rows: Iterable[Sequence[str]], most: int | None = None, least: int = 1) -> "Vocabulary":
        """The words of a text.

        Args:
            rows: lists of words. most: keep so many of the most frequent words. least: times that a word must occur.
        """
        counts = Counter(word for row in rows for word in row)
        kept = sorted((w for w, n in counts.items() if n >= least), key=lambda w: (-counts[w], w))
        return Vocabulary([BOS, EOS, UNK, *(w for w in kept[:most] if w not in (BOS, EOS, UNK))])

    def ids(self, words: Iterable[str]) -> list[int]:
        """Their numbers; `<UNK>`'s for words that are not in it."""
        return [self._ids.get(word, self.unk) for word in words]

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __len__(self) -> int:
        return len(self.words)

    def save(self, path: str | Path) -> None:
        """Write one word a line, as the published vocabulary is."""
        with atomic_write(path) as file:
            file.writelines(word + "\n" for word in self.words)

    @staticmethod
    def load(path: str | Path) -> "Vocabulary":
        """Read one word a line."""
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CourseError(f"The vocabulary {path} cannot be read ({error}).") from error
        return Vocabulary(line.strip() for line in text.split("\n") if line.strip())
