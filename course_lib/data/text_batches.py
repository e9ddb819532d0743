"""Batches of rows with several texts each, for sentence vectors.

Letters: B rows, N texts a row (2 in a pair, 3 in a triplet), T positions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.data.batches import Shuffled
from course_lib.data.tokenizers import Tokenizer
from course_lib.objectives.collate import pad_to_longest
from course_lib.objectives.losses import Batch


def text_batch(
    tokenizer: Tokenizer, rows: Sequence[Sequence[str]], max_length: int
) -> dict[str, Tensor]:
    """Rows of N texts each to `ids` Int[B N T] and `attention_mask` Bool[B N T], padded to the
    longest.
    """
    encoded = tokenizer.ids([text for row in rows for text in row], max_length=max_length)
    ids, attention_mask = pad_to_longest(encoded, tokenizer.vocab.pad or 0).values()
    shape = (len(rows), len(rows[0]), -1)
    return {"ids": ids.view(shape), "attention_mask": attention_mask.view(shape)}


class TextBatches:
    """Shuffled batches of rows with text, pair, label, or query, positive, negatives (`ranking`);
    batch `step` depends on (rows, seed, step) only. best: the score that means a cosine of 1 (STS:
    5); None: labels are class numbers."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        tokenizer: Tokenizer,
        *,
        batch: int = 16,
        seed: int = 0,
        max_length: int = 128,
        best: float | None = None,
    ) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.texts = [
            [row["query"], row["positive"], *row["negatives"]]
            if "query" in row
            else [row["text"], row["pair"]]
            for row in rows
        ]
        # without labels the first candidate is the right one
        labels = [row.get("label", 0) for row in rows]
        self.labels = (
            torch.tensor(labels)
            if best is None
            else torch.tensor(labels, dtype=torch.float32) / best
        )
        self.plan = Shuffled(len(self.texts), batch, seed)
        self.per_epoch = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        chosen = self.plan[step]
        made = text_batch(self.tokenizer, [self.texts[i] for i in chosen], self.max_length)
        return made | {"labels": self.labels[chosen]}
