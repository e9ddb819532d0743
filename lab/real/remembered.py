"""A frozen stack that computes the vectors of each text once.

Training a head on a frozen stack reads every text in every epoch. The stack has no dropout and does
not change, so its output is always the same.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.model.modes import evaluating
from course_lib.model.transformer import Transformer


class Remembered(nn.Module):
    """The stack's outputs, kept for each row of ids. Letters: B rows, T tokens, D width."""

    def __init__(self, stack: Transformer) -> None:
        super().__init__()
        self.stack = stack
        self.config = stack.config
        self.kept: dict[tuple[int, ...], Tensor] = {}  # ids without padding -> [T D]

    def forward(
        self, ids: Int[Tensor, "B T"], *, attention_mask: Bool[Tensor, "B T"], **options: Any
    ) -> Float[Tensor, "B T D"]:
        texts = [tuple(row[real].tolist()) for row, real in zip(ids, attention_mask, strict=True)]
        if any(text not in self.kept for text in texts):
            with torch.no_grad(), evaluating(self.stack):
                h = self.stack(ids, attention_mask=attention_mask, **options)  # B T D
            for text, vectors, real in zip(texts, h, attention_mask, strict=True):
                self.kept[text] = vectors[real]

        rows = self.kept[texts[0]].new_zeros(*ids.shape, self.config.width)  # B T D
        for number, text in enumerate(texts):
            rows[number, attention_mask[number]] = self.kept[text]
        return rows
