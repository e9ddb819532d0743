"""The copy probe: does the model fill in words that stand earlier in the same text?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.model.modes import evaluating
from course_lib.model.seq2seq import Seq2SeqLM, shift_right
from course_lib.objectives import infill, mark_spans
from course_lib.objectives.collate import pad, pad_to_longest
from course_lib.vocab import IGNORE

BATCH = 64  # blanks read at once


@dataclass(frozen=True)
class Blank:
    """A text with one word to fill in.

    A causal model sees `left` only, a masked one `right` as well.
    """

    left: str
    answer: str
    right: str


@torch.no_grad()
def fill_in_accuracy(model: nn.Module, tokenizer: Tokenizer, blanks: Sequence[Blank]) -> float:
    """Share of blanks that the model's most probable tokens fill rightly, every token of the word.

    With a mask token all tokens of the word are masked at once. Without one each is predicted from
    what stands before it.
    """
    device = next(model.parameters()).device
    vocab = tokenizer.vocab
    right = 0
    with evaluating(model):
        for part in _batches(blanks):
            rows = [_encoded(tokenizer, blank) for blank in part]
            batch = pad_to_longest([ids for ids, _ in rows], vocab.padding_id)
            is_answer = pad_to_longest([inside for _, inside in rows], False)["ids"].bool()
            ids = batch["ids"]
            if vocab.mask is None:
                # Position t predicts t + 1. The first token is never an answer.
                given = ids
                predicts = is_answer.roll(-1, dims=1)
            else:
                given = ids.masked_fill(is_answer, vocab.mask)
                predicts = is_answer
            logits = model(
                given.to(device),
                attention_mask=batch["attention_mask"].to(device),
                loss_mask=predicts.to(device),
            )
            if isinstance(logits, tuple):  # of several heads the first is the language model's
                logits = logits[0]
            right += _whole_answers(logits, ids, is_answer)
    return right / len(blanks)


@torch.no_grad()
def restore_accuracy(
    model: Seq2SeqLM,
    tokenizer: Tokenizer,
    blanks: Sequence[Blank],
    *,
    sentinels: Sequence[int] = (),
) -> float:
    """The same for an encoder-decoder, whose source has one sign in place of the word.

    Args:
        model: BART restores the whole text; T5 gives the word behind the first sentinel.
        tokenizer: the model's tokenizer.
        blanks: what is asked.
        sentinels: T5's; none for BART.
    """
    device = next(model.parameters()).device
    vocab = tokenizer.vocab
    right = 0
    with evaluating(model):
        for part in _batches(blanks):
            sources = []
            targets = []
            is_answer = []
            for blank in part:
                row, inside = _encoded(tokenizer, blank)
                ids = torch.tensor(row)
                start = inside.index(True)
                length = sum(inside)
                if sentinels:
                    source, target = mark_spans(ids, [(start, length)], sentinels)
                    first = 1  # the sentinel stands before the word
                else:
                    source = infill(ids, [(start, length)], vocab.mask or 0)
                    target = ids
                    first = start
                sources.append(source.tolist())
                targets.append(target.tolist())
                is_answer.append([first <= t < first + length for t in range(len(target))])
            batch = pad(sources, vocab.padding_id)
            labels = pad(targets, IGNORE)["ids"]
            loss_mask = pad(is_answer, False)["ids"].bool()
            logits = model(
                batch["ids"].to(device),
                shift_right(labels, model.stack.start).to(device),
                attention_mask=batch["attention_mask"].to(device),
                loss_mask=loss_mask.to(device),
            )
            right += _whole_answers(logits, labels, loss_mask)
    return right / len(blanks)


def _batches(blanks: Sequence[Blank]) -> Iterator[Sequence[Blank]]:
    """So many of the blanks as are read at once."""
    for start in range(0, len(blanks), BATCH):
        yield blanks[start : start + BATCH]


def _encoded(tokenizer: Tokenizer, blank: Blank) -> tuple[list[int], list[bool]]:
    """Ids of the whole text, the answer unmasked, and which of them belong to the answer."""
    start = len(blank.left)
    end = start + len(blank.answer)
    code = tokenizer.encode(blank.left + blank.answer + blank.right)
    inside = [a < end and b > start and a < b for a, b in code.offsets]
    if tokenizer.vocab.mask is None:
        return [tokenizer.vocab.bos or 0, *code.ids], [False, *inside]
    return code.ids, inside


def _whole_answers(logits: Tensor, ids: Tensor, is_answer: Tensor) -> int:
    """How many rows have every token of the answer right.

    Args:
        logits: [N V] of the N answer tokens.
        ids: the right tokens, [B T].
        is_answer: Bool[B T].
    """
    is_wrong = torch.zeros(is_answer.shape, dtype=torch.bool)
    is_wrong[is_answer] = logits.argmax(-1).cpu() != ids[is_answer]
    return int((~is_wrong.any(dim=1)).sum())
