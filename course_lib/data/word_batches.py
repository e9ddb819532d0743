"""Batches of words, for the two language models of ELMo."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from course_lib.data.batches import by_length
from course_lib.families.elmo import BOS, EOS, ElmoConfig, Vocabulary, characters
from course_lib.objectives import seeded_generator
from course_lib.objectives.losses import Batch
from course_lib.vocab import IGNORE

WordsOf = Callable[[int], Sequence[str]]  # document number -> its words


class BiLMBatches:
    """Whole documents, `<S>` words `</S>`, one a row, none of them twice: batch `step` depends on
    (words, seed, step) only. length: most words of a row, marks included. pool: batches whose
    documents are sorted by length together."""

    def __init__(
        self,
        words: WordsOf,
        vocabulary: Vocabulary,
        config: ElmoConfig,
        *,
        rows: int = 48,
        length: int = 160,
        pool: int = 64,
        seed: int = 0,
    ) -> None:
        self.words, self.vocabulary, self.config = words, vocabulary, config
        self.rows, self.length, self.pool, self.seed = rows, length, pool, seed
        self._made = lru_cache(maxsize=1)(self._make)

    def __getitem__(self, step: int, /) -> Batch:
        number, index = divmod(step, self.pool)
        return language_model_batch(self._made(number)[index], self.vocabulary, self.config.length)

    def _make(self, number: int) -> list[list[list[str]]]:
        count = self.rows * self.pool
        rows = [[BOS, *self.words(number * count + i), EOS][: self.length] for i in range(count)]
        return by_length(rows, self.rows, seeded_generator(self.seed, number))


def language_model_batch(
    rows: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int
) -> dict[str, Tensor]:
    """Rows of words, marks included, and `labels` Int[B 2 T]: the word after each place and the
    word before it, -100 where there is none."""
    batch = characters(rows, length, ends=False)
    labels = torch.full((len(rows), 2, batch["ids"].shape[1]), IGNORE)
    for b, row in enumerate(rows):
        ids = torch.tensor(vocabulary.ids(row))
        labels[b, 0, : len(row) - 1] = ids[1:]
        labels[b, 1, 1 : len(row)] = ids[:-1]
    return {**batch, "labels": labels}
