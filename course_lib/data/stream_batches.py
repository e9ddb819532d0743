"""Batches of documents that are written as they are needed, and never end."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from course_lib.data.batch_plans import by_length
from course_lib.data.batches import Source, cls_and_sep
from course_lib.data.tokenizers import Tokenizer
from course_lib.objectives import InputRow, corruption, seeded_generator
from course_lib.objectives.collate import pad
from course_lib.objectives.losses import Batch
from course_lib.objectives.registry import Corruption
from course_lib.vocab import IGNORE


class StreamBatches(Source):
    """Documents that are written as they are needed and never end, one a row: [CLS] document [SEP].

    With `pairs` a row may be [CLS] first half [SEP] second half [SEP] and the batch holds
    `segments` and `next`: every second of these has the second half of another document (Devlin et
    al. 2019, section 3.1).

    Args:
        sentences: document number -> its sentences, for any number from 0 on.
        tokenizer: of the sentences.
        corrupt: as for `CorruptedBatches`.
        rows: in a batch.
        length: most tokens in a row, special ones included.
        pairs: share of the documents that are cut in two. None cuts none, and the batch has no
            `segments` and no `next`.
        pool: batches whose rows are sorted by length together.
        seed: of the cuts, of the order and of every draw.
    """

    def __init__(
        self,
        sentences: Callable[[int], Sequence[str]],
        tokenizer: Tokenizer,
        corrupt: Corruption | None = None,
        *,
        rows: int,
        length: int = 160,
        pairs: float | None = None,
        pool: int = 64,
        seed: int = 0,
    ) -> None:
        self.sentences = sentences
        self.tokenizer = tokenizer
        self.corrupt = corrupt or corruption("masked", tokenizer)
        self.rows = rows
        self.length = length
        self.pairs = pairs
        self.steps = pool
        self.seed = seed
        self._pool = lru_cache(maxsize=1)(self.pool)

    def __getitem__(self, step: int, /) -> Batch:
        number, index = divmod(step, self.steps)
        rows = self._pool(number)[index]
        padding = self.tokenizer.vocab.pad or 0
        ids, attention_mask = pad([row.ids for row in rows], padding, most=self.length).values()
        batch = self.ask(step, ids, attention_mask)
        if self.pairs is None:
            return batch
        segments = pad([row.segments for row in rows], 0, most=self.length)["ids"]
        return {**batch, "segments": segments, "next": torch.tensor([row.next for row in rows])}

    def ask(self, step: int, ids: Tensor, attention_mask: Tensor) -> Batch:
        """What this step asks of its rows."""
        return self.corrupt(ids, attention_mask, seeded_generator(self.seed, 1, step))

    def pool(self, number: int) -> list[list[InputRow]]:
        """The rows of a pool's batches."""
        rng = seeded_generator(self.seed, 0, number)
        documents = self.documents(number)
        cuts = [self._cut(len(document), rng) for document in documents]
        return self.framed(documents, cuts, rng)

    def documents(self, number: int) -> list[Sequence[str]]:
        """The documents of a pool, each as its sentences."""
        count = self.rows * self.steps
        return [self.sentences(number * count + i) for i in range(count)]

    def framed(
        self, documents: Sequence[Sequence[str]], cuts: Sequence[int], rng: torch.Generator
    ) -> list[list[InputRow]]:
        """Batches of documents, each cut behind so many of its sentences.

        Of those that have a second half, about every second one gets the half of the one before.
        """
        halves = list(zip(documents, cuts, strict=True))
        first_texts = [" ".join(document[:cut]) for document, cut in halves]
        second_texts = [" ".join(document[cut:]) for document, cut in halves]
        first = self.tokenizer.ids(first_texts, special=False)
        second = self.tokenizer.ids(second_texts, special=False)
        pairs = [i for i, half in enumerate(second) if half]
        is_wrong = torch.rand(len(pairs), generator=rng) < 0.5
        source = list(range(len(first)))  # whose second half a row has
        for k, i in enumerate(pairs):
            if is_wrong[k]:
                source[i] = pairs[k - 1]  # the pair before; the first pair takes the last one's
        rows = []
        for i, half in enumerate(first):
            rows.append(self.row(half, second[source[i]], int(source[i] != i)))
        return by_length(rows, self.rows, rng)

    def row(self, first: list[int], second: list[int], follows: int) -> InputRow:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]."""
        cls, sep = cls_and_sep(self.tokenizer)
        ids = [cls, *first, sep]
        segments = [0] * len(ids)
        if second:
            room = max(1, self.length - len(ids) - 1)
            rest = [*second[:room], sep]
            ids += rest
            segments += [1] * len(rest)
        return InputRow(ids[: self.length], segments[: self.length], follows if second else IGNORE)

    def _cut(self, sentences: int, rng: torch.Generator) -> int:
        """How many sentences of a document are the first half: all, where it stays whole."""
        # Both draws are always made, so that one document does not change those of the next.
        draw = torch.rand(2, generator=rng)
        stays_whole = sentences < 2 or float(draw[0]) >= (self.pairs or 0.0)
        if stays_whole:
            return sentences
        return 1 + int(float(draw[1]) * (sentences - 1))
