"""Does the model read? Fill-in accuracy where the answer stands earlier in the same text (the copy probe)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from course_lib.losses import Batch, Loss
from course_lib.tokenizers import Tokenizer


@dataclass(frozen=True)
class Blank:
    """A text with one word to fill in. A causal model sees `left` only, a masked one `right` as well."""

    left: str
    answer: str
    right: str


@torch.no_grad()
def fill_in_accuracy(model: nn.Module, tokenizer: Tokenizer, blanks: Sequence[Blank], *, batch: int = 64) -> float:
    """Share of blanks that the model's most probable tokens fill rightly, every piece of the word.

    Args:
        model: an `MLM` or `Pretraining` head (the tokenizer has a mask token: all pieces are masked at once)
            or an `LM` head (each piece is predicted from what stands before it).
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    right = 0
    for some in _chunks(blanks, batch):
        ids, keep, at = pad_blanks([encode_blank(tokenizer, blank) for blank in some], tokenizer)
        answers = ids[at]
        if tokenizer.vocab.mask is None:
            asked = at.roll(-1, dims=1)  # position t predicts t + 1; the first token is never an answer
        else:
            ids, asked = ids.masked_fill(at, tokenizer.vocab.mask), at
        logits = model(ids.to(device), keep=keep.to(device), at=asked.to(device))
        logits = logits[0] if isinstance(logits, tuple) else logits
        wrong = torch.zeros(at.shape, dtype=torch.bool)
        wrong[at] = logits.argmax(-1).cpu() != answers
        right += int((~wrong.any(dim=1)).sum())
    model.train(was_training)
    return right / len(blanks)


@torch.no_grad()
def mean_loss(model: nn.Module, loss: Loss, batches: Iterable[Batch]) -> float:
    """Mean of the loss over batches, without dropout."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    values = [loss(model, {k: v.to(device) for k, v in batch.items()}).item() for batch in batches]
    model.train(was_training)
    return sum(values) / len(values)


def encode_blank(tokenizer: Tokenizer, blank: Blank) -> tuple[list[int], list[bool]]:
    """Ids of the whole text, the answer unmasked, and which of them belong to the answer."""
    start = len(blank.left)
    end = start + len(blank.answer)
    code = tokenizer.encode(blank.left + blank.answer + blank.right)
    inside = [a < end and b > start and a < b for a, b in code.offsets]
    if tokenizer.vocab.mask is None:
        first = 0 if tokenizer.vocab.bos is None else tokenizer.vocab.bos
        return [first, *code.ids], [False, *inside]
    return code.ids, inside


def pad_blanks(rows: Sequence[tuple[list[int], list[bool]]], tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """ids Int[B T], keep Bool[B T], answer Bool[B T], padded at the right."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), tokenizer.vocab.pad or 0)
    keep, at = torch.zeros(2, len(rows), width, dtype=torch.bool)
    for i, (row, inside) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        at[i, : len(row)] = torch.tensor(inside)
        keep[i, : len(row)] = True
    return ids, keep, at


def _chunks(blanks: Sequence[Blank], size: int) -> Iterator[list[Blank]]:
    rest = iter(blanks)
    while some := list(islice(rest, size)):
        yield some
