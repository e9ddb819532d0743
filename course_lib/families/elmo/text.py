"""Words as character ids, ELMo's input; and the vocabulary of its softmax.

Letters: B rows, T words, C character ids of a word.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.files import atomic_write

CHARACTERS = 262  # ids: 0 for a position without a word, 256 bytes, 5 special characters
# The special characters. They follow the 256 bytes, which have the ids 1 to 256.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261
Characters = Int[Tensor, "B T C"]
BOS, EOS, UNK = "<S>", "</S>", "<UNK>"


@lru_cache(maxsize=2**16)
def spelling(word: str, length: int) -> tuple[int, ...]:
    """The character ids of a word: its UTF-8 bytes plus one, between BEGIN_WORD and END_WORD.

    >>> spelling("cat", 7)
    (259, 100, 98, 117, 260, 261, 261)

    Args:
        word: any word. `<S>` and `</S>` have one special character of their own each.
        length: number of ids; longer words are cut, shorter ones padded with PAD.
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
    """Turn rows of words into ELMo's input, padded on the right.

    Args:
        rows: the words of each row.
        length: number C of character ids of a word.
        ends: whether to add `<S>` and `</S>` to each row.

    Returns:
        `ids` Int[B T C], all 0 where there is no word, and `attention_mask` Bool[B T].
    """
    framed = [[BOS, *row, EOS] if ends else row for row in rows]
    lengths = torch.tensor([len(row) for row in framed])
    attention_mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.zeros(*attention_mask.shape, length, dtype=torch.long)
    ids[attention_mask] = torch.tensor([spelling(word, length) for row in framed for word in row])
    return {"ids": ids, "attention_mask": attention_mask}


class Vocabulary:
    """The words that the softmax predicts: `<S>`, `</S>`, `<UNK>`, then others by frequency.

    The input needs no vocabulary, because the model reads characters.

    >>> vocabulary = Vocabulary.count([["a", "b"], ["b"]])
    >>> vocabulary.words, vocabulary.ids(["b", "c"])
    (['<S>', '</S>', '<UNK>', 'b', 'a'], [3, 2])
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        self.bos = self._ids[BOS]
        self.eos = self._ids[EOS]
        self.unk = self._ids[UNK]

    @staticmethod
    def count(rows: Iterable[Sequence[str]], max_size: int | None = None) -> "Vocabulary":
        """Build the vocabulary of a text.

        Args:
            rows: words of the text.
            max_size: keeps only this many words, the most frequent ones; None keeps all.
        """
        special = (BOS, EOS, UNK)
        counts = Counter(word for row in rows for word in row)
        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        words = [word for word in by_frequency[:max_size] if word not in special]
        return Vocabulary([*special, *words])

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
