"""Batches of documents that a function generates when they are needed.

    def sentences(number):
        return [f"This is document {number}.", "It ends here."]

    StreamBatches(sentences, tokenizer, rows=32)[0]["ids"]    Int[32 T]

Such documents never end, so there are no epochs: each document is read once.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from course_lib.data.batch_plans import by_length
from course_lib.data.batches import BatchSource, require_bert_tokens
from course_lib.data.tokenizers import Tokenizer
from course_lib.objectives import InputRow, corruption, seeded_generator
from course_lib.objectives.collate import pad
from course_lib.objectives.losses import Batch
from course_lib.objectives.registry import Corruption
from course_lib.vocab import IGNORE

# The random streams of a seed: one for the rows of each pool, one for the corruption of each step.
POOL = 0
CORRUPTION = 1


class StreamBatches(BatchSource):
    """Generated documents, one in a row: [CLS] document [SEP].

    With `pairs`, a row may be [CLS] first half [SEP] second half [SEP], for next-sentence
    prediction (Devlin et al. 2019, section 3.1). About half of these rows have the second half of
    another document. Then a batch has two more entries:

        segments    Int[B T], 0 for the tokens of the first half, 1 for those of the second
        next        Int[B], 0 = the second half followed the first, 1 = it is from another document,
                    -100 = the document is not cut

    Args:
        sentences: document number -> its sentences, for any number from 0 on.
        tokenizer: the tokenizer of the sentences.
        corrupt: turns padded rows into a batch, as for `CorruptedBatches`.
        rows: number of rows in a batch.
        length: maximum number of tokens in a row, special tokens included.
        pairs: share of the documents that are cut in two. With 0.0 no document is cut, but the
            batch has `segments` and `next`; with None it has neither.
        pool: number of batches that are made together, their rows sorted by length.
        seed: seed of the cuts, of the order of the batches and of every corruption.
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
        padding_id = self.tokenizer.vocab.padding_id
        padded = pad([row.ids for row in rows], padding_id, max_width=self.length)
        batch = self.apply_objective(step, padded["ids"], padded["attention_mask"])
        if self.pairs is None:
            return batch
        segments = pad([row.segments for row in rows], 0, max_width=self.length)["ids"]
        return {**batch, "segments": segments, "next": torch.tensor([row.next for row in rows])}

    def apply_objective(self, step: int, ids: Tensor, attention_mask: Tensor) -> Batch:
        """Inputs and labels of this step, from its padded rows. A subclass may vary it by step."""
        return self.corrupt(ids, attention_mask, seeded_generator(self.seed, CORRUPTION, step))

    def pool(self, number: int) -> list[list[InputRow]]:
        """The rows of all batches of a pool."""
        rng = seeded_generator(self.seed, POOL, number)
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
        """Batches of rows, each with one document or two halves.

        About half of the documents that are cut get the second half of the cut document before.

        Args:
            documents: each as its sentences.
            cuts: number of sentences in the first half of each document.
            rng: draws which halves are exchanged, and the order of the batches.
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

    def row(self, first: list[int], second: list[int], is_wrong: int) -> InputRow:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP].

        Args:
            first: token ids.
            second: token ids; empty for a document that is not cut.
            is_wrong: 1 if the second half is from another document, else 0.
        """
        cls, sep = require_bert_tokens(self.tokenizer)
        ids = [cls, *first, sep]
        segments = [0] * len(ids)
        if second:
            # At least one token of the second half, even if the first one fills the row: the last
            # line cuts such a row, and its [SEP] is lost.
            room = max(1, self.length - len(ids) - 1)
            rest = [*second[:room], sep]
            ids += rest
            segments += [1] * len(rest)
        label = is_wrong if second else IGNORE
        return InputRow(ids[: self.length], segments[: self.length], label)

    def _cut(self, sentences: int, rng: torch.Generator) -> int:
        """Number of sentences in the first half; all of them if the document is not cut."""
        # We always draw twice, so that one document does not change the draws of the next. With a
        # share of 0.0 (or None) no draw is small enough, and no document is cut.
        draw = torch.rand(2, generator=rng)
        stays_whole = sentences < 2 or float(draw[0]) >= (self.pairs or 0.0)
        if stays_whole:
            return sentences
        return 1 + int(float(draw[1]) * (sentences - 1))
