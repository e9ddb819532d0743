"""Does the model read? Fill-in accuracy where the answer stands earlier in the same text (the copy probe)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from course_lib import metrics
from course_lib.corrupt import IGNORE, infill, mark_spans
from course_lib.data.batches import pad
from course_lib.electra import Electra
from course_lib.losses import Batch, Loss
from course_lib.seq2seq import Seq2SeqLM, shift_right
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
def restore_accuracy(
    model: Seq2SeqLM,
    tokenizer: Tokenizer,
    blanks: Sequence[Blank],
    *,
    sentinels: Sequence[int] = (),
    batch: int = 64,
) -> float:
    """The same for an encoder-decoder, whose source has one sign in place of the word.

    Each piece is predicted from the target before it. sentinels: for a T5, which says the word behind the first of
    them; without them the model restores the whole text, as BART does.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    right = 0
    for some in _chunks(blanks, batch):
        sources, targets, asked = [], [], []
        for blank in some:
            row, inside = encode_blank(tokenizer, blank)
            ids, span = torch.tensor(row), (inside.index(True), sum(inside))
            if sentinels:
                source, target = mark_spans(ids, [span], sentinels)
                first = 1
            else:
                source, target = infill(ids, [span], tokenizer.vocab.mask or 0), ids
                first = span[0]
            sources.append(source.tolist())
            targets.append(target.tolist())
            asked.append([first <= place < first + span[1] for place in range(len(target))])
        read, labels = pad(sources, tokenizer.vocab.pad or 0), pad(targets, IGNORE)["ids"]
        at = pad(asked, False)["ids"].bool()
        fed = shift_right(labels, model.stack.start)
        logits = model(read["ids"].to(device), fed.to(device), keep=read["keep"].to(device), at=at.to(device))
        wrong = torch.zeros(at.shape, dtype=torch.bool)
        wrong[at] = logits.argmax(-1).cpu() != labels[at]
        right += int((~wrong.any(dim=1)).sum())
    model.train(was_training)
    return right / len(blanks)


@torch.no_grad()
def target_accuracy(model: Seq2SeqLM, batches: Iterable[Batch]) -> float:
    """Share of the targets' tokens that an encoder-decoder says rightly, each from the target before it."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    right = total = 0
    for batch in batches:
        source, keep, labels = (batch[name].to(device) for name in ("ids", "keep", "labels"))
        at = labels != IGNORE
        logits = model(source, shift_right(labels, model.stack.start), keep=keep, at=at)
        right += int((logits.argmax(-1) == labels[at]).sum())
        total += int(at.sum())
    model.train(was_training)
    return right / total


@torch.no_grad()
def detection(model: Electra, batches: Iterable[Batch]) -> dict[str, float]:
    """What ELECTRA's two models get right: "detection", F1 of the discriminator's "replaced" over real tokens, and
    "generator", the share of masked tokens that it guesses. Samples draw from torch's global generator."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    said: list[bool] = []
    true: list[bool] = []
    guessed: list[Tensor] = []
    for batch in batches:
        ids, labels, at, keep = (batch[name].to(device) for name in ("ids", "labels", "at", "keep"))
        judged = model(ids, labels=labels, at=at, keep=keep)
        said += (judged.verdicts[keep] > 0).tolist()
        true += judged.replaced[keep].tolist()
        guessed.append(judged.guesses.argmax(-1) == labels[at])
    model.train(was_training)
    return {"detection": metrics.f1(said, true), "generator": float(torch.cat(guessed).float().mean())}


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
