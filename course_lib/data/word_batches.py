"""Batches of words for ELMo, which predicts each next word, and each word before.

A row is a whole document: <S> the cat sat </S>. The forward model reads "<S> the" and predicts
"cat"; the backward model reads "sat </S>", from right to left, and also predicts "cat".
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from course_lib.data.batch_plans import by_length
from course_lib.families.elmo import BOS, EOS, ElmoConfig, Vocabulary, characters
from course_lib.objectives import seeded_generator
from course_lib.objectives.losses import Batch
from course_lib.vocab import IGNORE

WordsOf = Callable[[int], Sequence[str]]  # document number -> its words


class BiLMBatches:
    """`batches[step]` is the batch of a step. Each document is read once.

    A batch depends on nothing but (words, seed, step).

    Args:
        words: document number -> its words, for any number from 0 on.
        vocabulary: the words that the softmax predicts.
        config: the configuration of the model that reads the batches.
        rows: number of rows in a batch.
        length: maximum number of words in a row, `<S>` and `</S>` included.
        pool: number of batches that are made together, their documents sorted by length.
        seed: seed of the order of the batches.
    """

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
        self.words = words
        self.vocabulary = vocabulary
        self.config = config
        self.rows = rows
        self.length = length
        self.pool = pool
        self.seed = seed
        self._pool = lru_cache(maxsize=1)(self._read_pool)

    def __getitem__(self, step: int, /) -> Batch:
        number, index = divmod(step, self.pool)
        return language_model_batch(self._pool(number)[index], self.vocabulary, self.config.length)

    def _read_pool(self, number: int) -> list[list[list[str]]]:
        """The documents of all batches of a pool, as words."""
        count = self.rows * self.pool
        rows = [[BOS, *self.words(number * count + i), EOS][: self.length] for i in range(count)]
        return by_length(rows, self.rows, seeded_generator(self.seed, number))


def language_model_batch(
    rows: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int
) -> dict[str, Tensor]:
    """A batch for ELMo's two language models.

    For the row `<S> hello </S>` the labels are

        forward     hello   </S>    -100
        backward    -100    <S>     hello

    Args:
        rows: words of each row, `<S>` and `</S>` included.
        vocabulary: the words that the softmax predicts.
        length: maximum number of characters in a word.

    Returns:
        `ids` and `attention_mask` (`elmo.characters`), and `labels` Int[B 2 T]: for each position
        the number of the next word, and that of the word before. It is -100 where there is none.
    """
    batch = characters(rows, length, ends=False)
    labels = torch.full((len(rows), 2, batch["ids"].shape[1]), IGNORE)
    for b, row in enumerate(rows):
        ids = torch.tensor(vocabulary.ids(row))
        labels[b, 0, : len(row) - 1] = ids[1:]  # forward: the next word
        labels[b, 1, 1 : len(row)] = ids[:-1]  # backward: the word before
    return {**batch, "labels": labels}
