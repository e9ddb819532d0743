"""Does the model read? Fill-in accuracy where the answer stands earlier in the same text (the copy
probe).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course_lib.analysis import metrics
from course_lib.data.tokenizers import Tokenizer
from course_lib.families.electra import Electra
from course_lib.model.layers import evaluating
from course_lib.model.seq2seq import Seq2SeqLM, shift_right
from course_lib.objectives import infill, mark_spans
from course_lib.objectives.collate import pad, pad_to_longest
from course_lib.objectives.losses import Batch, Loss
from course_lib.vocab import IGNORE

BATCH = 64  # blanks read at once


@dataclass(frozen=True)
class Blank:
    """A text with one word to fill in. A causal model sees `left` only, a masked one `right` as
    well.
    """

    left: str
    answer: str
    right: str


@torch.no_grad()
def fill_in_accuracy(model: nn.Module, tokenizer: Tokenizer, blanks: Sequence[Blank]) -> float:
    """Share of blanks that the model's most probable tokens fill rightly, every piece of the word;
    with a mask token all pieces are masked at once, without one each is predicted from what stands
    before it."""
    device, vocab, right = next(model.parameters()).device, tokenizer.vocab, 0
    with evaluating(model):
        for start in range(0, len(blanks), BATCH):
            rows = [_encoded(tokenizer, blank) for blank in blanks[start : start + BATCH]]
            ids, attention_mask = pad_to_longest([ids for ids, _ in rows], vocab.pad or 0).values()
            at = pad_to_longest([inside for _, inside in rows], False)["ids"].bool()
            # Without a mask position t predicts t + 1; the first token is never an answer.
            read, asked = (
                (ids, at.roll(-1, dims=1))
                if vocab.mask is None
                else (ids.masked_fill(at, vocab.mask), at)
            )
            logits = model(
                read.to(device),
                attention_mask=attention_mask.to(device),
                loss_mask=asked.to(device),
            )
            right += _whole_answers(logits[0] if isinstance(logits, tuple) else logits, ids, at)
    return right / len(blanks)


@torch.no_grad()
def restore_accuracy(
    model: Seq2SeqLM,
    tokenizer: Tokenizer,
    blanks: Sequence[Blank],
    *,
    sentinels: Sequence[int] = (),
) -> float:
    """The same for an encoder-decoder, whose source has one sign in place of the word. sentinels:
    for a T5, which says the word behind the first of them; without them the model restores the
    whole text, as BART does."""
    device, vocab, right = next(model.parameters()).device, tokenizer.vocab, 0
    with evaluating(model):
        for start in range(0, len(blanks), BATCH):
            sources, targets, asked = [], [], []
            for row, inside in (
                _encoded(tokenizer, blank) for blank in blanks[start : start + BATCH]
            ):
                ids, span = torch.tensor(row), (inside.index(True), sum(inside))
                if sentinels:
                    (source, target), first = mark_spans(ids, [span], sentinels), 1
                else:
                    source, target, first = infill(ids, [span], vocab.mask or 0), ids, span[0]
                sources.append(source.tolist())
                targets.append(target.tolist())
                asked.append([first <= place < first + span[1] for place in range(len(target))])
            read, attention_mask = (x.to(device) for x in pad(sources, vocab.pad or 0).values())
            labels, at = pad(targets, IGNORE)["ids"], pad(asked, False)["ids"].bool()
            said = shift_right(labels, model.stack.start).to(device)
            logits = model(read, said, attention_mask=attention_mask, loss_mask=at.to(device))
            right += _whole_answers(logits, labels, at)
    return right / len(blanks)


@torch.no_grad()
def target_accuracy(model: Seq2SeqLM, batches: Iterable[Batch]) -> float:
    """Share of the targets' tokens that an encoder-decoder says rightly, each from the target
    before it.
    """
    device = next(model.parameters()).device
    with evaluating(model):
        right = total = 0
        for batch in batches:
            source, attention_mask, labels = (
                batch[name].to(device) for name in ("ids", "attention_mask", "labels")
            )
            at = labels != IGNORE
            logits = model(
                source,
                shift_right(labels, model.stack.start),
                attention_mask=attention_mask,
                loss_mask=at,
            )
            right += int((logits.argmax(-1) == labels[at]).sum())
            total += int(at.sum())
    return right / total


@torch.no_grad()
def detection(model: Electra, batches: Iterable[Batch]) -> dict[str, float]:
    """What ELECTRA's two models get right: "detection", F1 of the discriminator's "replaced" over
    real tokens, and "generator", the share of masked tokens that it guesses. Samples draw from
    torch's global generator."""
    device = next(model.parameters()).device
    with evaluating(model):
        said, true, guessed = [], [], []
        for batch in batches:
            inputs = {
                name: batch[name].to(device)
                for name in ("ids", "labels", "loss_mask", "attention_mask")
            }
            judged, real = model(**inputs), inputs["attention_mask"]
            said += (judged.verdicts[real] > 0).tolist()
            true += judged.replaced[real].tolist()
            guessed += (judged.guesses.argmax(-1) == inputs["labels"][inputs["loss_mask"]]).tolist()
    return {"detection": metrics.f1(said, true), "generator": sum(guessed) / len(guessed)}


@torch.no_grad()
def mean_loss(model: nn.Module, loss: Loss, batches: Iterable[Batch]) -> float:
    """Mean of the loss over batches, without dropout."""
    device = next(model.parameters()).device
    with evaluating(model):
        values = [
            loss(model, {k: v.to(device) for k, v in batch.items()}).item() for batch in batches
        ]
    return sum(values) / len(values)


def _encoded(tokenizer: Tokenizer, blank: Blank) -> tuple[list[int], list[bool]]:
    """Ids of the whole text, the answer unmasked, and which of them belong to the answer."""
    start = len(blank.left)
    end = start + len(blank.answer)
    code = tokenizer.encode(blank.left + blank.answer + blank.right)
    inside = [a < end and b > start and a < b for a, b in code.offsets]
    if tokenizer.vocab.mask is None:
        return [tokenizer.vocab.bos or 0, *code.ids], [False, *inside]
    return code.ids, inside


def _whole_answers(logits: Tensor, ids: Tensor, at: Tensor) -> int:
    """Rows of which every answer token is the likeliest. logits [N V] of the N True positions of
    `at` Bool[B T].
    """
    wrong = torch.zeros(at.shape, dtype=torch.bool)
    wrong[at] = logits.argmax(-1).cpu() != ids[at]
    return int((~wrong.any(dim=1)).sum())
