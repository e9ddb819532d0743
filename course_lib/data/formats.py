"""Batches in RoBERTa's four input formats (Liu et al. 2019, section 4.2), masked anew in every step."""

from collections.abc import Sequence

import numpy as np
import torch

from course_lib import corrupt, objectives
from course_lib.corrupt import Format
from course_lib.data.batches import Batch, Plan, Source, pad
from course_lib.errors import CourseError
from course_lib.tokenizers import Tokenizer


class FormatBatches(Source):
    """Masked language modelling on whole sentences, packed or in pairs; the pairs with next-sentence prediction.

    Batches hold `ids` (masked), `labels`, `at`, `keep`, and in the two pair formats `segments` and `next`, for
    `losses.mlm_nsp`. The rows are made once; their order and their masks are new in every epoch. Sized in `tokens`, the
    four formats read equally much a step, short rows simply being more.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        *,
        format: Format,
        length: int,
        rows: int | None = None,
        tokens: int | None = None,
        unit: objectives.Unit = "token",
        rate: float = 0.15,
        seed: int = 0,
    ) -> None:
        """Make the rows and plan the epochs.

        Args:
            documents: each a list of its sentences; an order that means something should be shuffled first.
            format: "segment-pair", "sentence-pair", "full-sentences" or "doc-sentences".
            length: most tokens in a row. rows, tokens: the size of a batch, in one of the two.
            unit: what is masked, tokens, whole words or spans of words. rate: the share of it.
        """
        super().__init__(seed)
        vocab = tokenizer.vocab
        if vocab.mask is None:
            raise CourseError(f"Masked batches need [MASK], which {tokenizer} does not have.")
        coded = [tokenizer.ids(list(document), special=False) if document else [] for document in documents]
        self.tokenizer, self.unit, self.rate, self.length = tokenizer, unit, rate, length
        self.rows = corrupt.input_rows(coded, corrupt.generator(seed, 0), vocab=vocab, format=format, length=length)
        self.plan = Plan(np.array([len(row.ids) for row in self.rows]), rows, tokens, seed, length)
        self.steps, self.pairs = self.plan.steps, format.endswith("pair")

    def _make(self, step: int) -> Batch:
        rows = [self.rows[i] for i in self.plan[step].tolist()]
        batch = pad([row.ids for row in rows], self.tokenizer.vocab.pad or 0, most=self.length)
        ids, keep = batch["ids"], batch["keep"]
        words = None if self.unit == "token" else self.tokenizer.words(ids)
        rng = corrupt.generator(self.seed, 1, step)
        hidden = objectives.masked(
            ids, keep, rng, vocab=self.tokenizer.vocab, unit=self.unit, words=words, rate=self.rate
        )
        if not self.pairs:
            return hidden
        segments = pad([row.segments for row in rows], 0, most=self.length)["ids"]
        return {**hidden, "segments": segments, "next": torch.tensor([row.next for row in rows])}
