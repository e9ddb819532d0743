"""Words as ELMo reads them, by their characters; and the words that its softmax knows.

Letters: B rows, T words, C characters of a word.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.files import atomic_write

CHARACTERS = 262  # 256 bytes, 5 marks, and 0 for "no word here"
# Character ids after the 256 bytes, all shifted by one: 0 is left for a place without a word.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261
Characters = Int[Tensor, "B T C"]
BOS, EOS, UNK = "<S>", "</S>", "<UNK>"


@lru_cache(maxsize=2**16)
def spelling(word: str, length: int) -> tuple[int, ...]:
    """The character ids of a word: its UTF-8 bytes plus one, between two marks.

    Args:
        word: `<S>` and `</S>` are one character each.
        length: number of ids; longer words are cut, shorter ones padded.
    """
    if word == BOS:
        inner: tuple[int, ...] = (BEGIN_SENTENCE,)
    elif word == EOS:
        inner = (END_SENTENCE,)
    else:
        inner = tuple(byte + 1 for byte in word.encode("utf-8", "ignore")[: length - 2])
    ids = (BEGIN_WORD, *inner, END_WORD)
    return ids + (PAD,) * (length - len(ids))


def characters(rows: Sequence[Sequence[str]], length: int, ends: bool = True) -> dict[str, Tensor]:
    """Rows of words as a model's input, padded on the right.

    Args:
        rows: the words of each row.
        length: characters of a word.
        ends: whether to put each row between `<S>` and `</S>`.

    Returns:
        `ids`, Int[B, T, C], 0 where there is no word, and `attention_mask`, Bool[B, T].
    """
    framed = [[BOS, *row, EOS] if ends else row for row in rows]
    lengths = torch.tensor([len(row) for row in framed])
    attention_mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.zeros(*attention_mask.shape, length, dtype=torch.long)
    ids[attention_mask] = torch.tensor([spelling(word, length) for row in framed for word in row])
    return {"ids": ids, "attention_mask": attention_mask}


class Vocabulary:
    """The words of the softmax: `<S>`, `</S>`, `<UNK>`, then by frequency. Inputs need no list."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        self.bos = self._ids[BOS]
        self.eos = self._ids[EOS]
        self.unk = self._ids[UNK]

    @staticmethod
    def count(rows: Iterable[Sequence[str]], most: int | None = None) -> "Vocabulary":
        """The words of a text, or the `most` frequent of them."""
        marks = (BOS, EOS, UNK)
        counts = Counter(word for row in rows for word in row)
        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        words = [word for word in by_frequency[:most] if word not in marks]
        return Vocabulary([*marks, *words])

    def ids(self, words: Iterable[str]) -> list[int]:
        return [self._ids.get(word, self.unk) for word in words]

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __len__(self) -> int:
        return len(self.words)

    def save(self, path: str | Path) -> None:
        with atomic_write(path) as file:
            file.writelines(word + "\n" for word in self.words)

    @staticmethod
    def load(path: str | Path) -> "Vocabulary":
        return Vocabulary(Path(path).read_text("utf-8").split())
