"""Batches in which each row has several texts, to train a model of sentence vectors.

    text_batch(tokenizer, [["A dog runs.", "A dog is running."]], 32)["ids"]    Int[1 2 T]

Shapes: B rows, N texts in a row (2 in a pair, 3 in a triplet), T tokens in the longest text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.data.batch_plans import Shuffled
from course_lib.data.tokenizers import Tokenizer
from course_lib.objectives.collate import pad_to_longest
from course_lib.objectives.losses import Batch


def text_batch(
    tokenizer: Tokenizer, rows: Sequence[Sequence[str]], max_length: int
) -> dict[str, Tensor]:
    """Encode rows of N texts each, and pad all texts to the longest one.

    Args:
        tokenizer: the tokenizer of the texts.
        rows: the same number of texts in each row.
        max_length: longer texts are cut to this number of tokens.

    Returns:
        `ids` Int[B N T] and `attention_mask` Bool[B N T].
    """
    encoded = tokenizer.ids([text for row in rows for text in row], max_length=max_length)
    padded = pad_to_longest(encoded, tokenizer.vocab.padding_id)  # B*N T
    return {name: x.view(len(rows), len(rows[0]), -1) for name, x in padded.items()}  # B N T


class TextBatches:
    """`batches[step]` is the batch of a step. It depends on nothing but (rows, seed, step).

    Args:
        rows: rows with the columns text, pair and label; or query, positive and negatives.
        tokenizer: the tokenizer of the texts.
        batch: number of rows in a batch.
        seed: seed of the order.
        max_length: longer texts are cut to this number of tokens.
        best: the highest score of the labels, 5 in STS; scores are divided by it. None means that
            labels are class numbers.
    """

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
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.texts = [_texts_of(row) for row in rows]
        # Rows with a query have no label. Their right answer is candidate 0, the positive text.
        labels = [row.get("label", 0) for row in rows]
        if best is None:
            self.labels = torch.tensor(labels)
        else:
            self.labels = torch.tensor(labels, dtype=torch.float32) / best
        self.plan = Shuffled(len(self.texts), batch, seed)
        self.per_epoch = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        chosen = self.plan[step]
        batch = text_batch(self.tokenizer, [self.texts[i] for i in chosen], self.max_length)
        return batch | {"labels": self.labels[chosen]}


def _texts_of(row: Mapping[str, Any]) -> list[str]:
    """The texts of a row in the order that the losses expect: a positive text before negatives."""
    if "query" in row:
        return [row["query"], row["positive"], *row["negatives"]]
    return [row["text"], row["pair"]]
