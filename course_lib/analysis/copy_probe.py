"""The copy probe: does a model fill in a word that occurs earlier in the same text?

    blank = Blank(left="Mara bought a lamp . Theo saw the ", answer="lamp", right=" .")

A causal model (GPT) reads only `left` and predicts what follows. A masked model (BERT) reads
`left [MASK] right`. An encoder-decoder writes the whole text (BART) or the missing word (T5).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.model.heads import word_logits
from course_lib.model.modes import evaluating
from course_lib.model.seq2seq import Seq2SeqLM, shift_right
from course_lib.objectives import infill, mark_spans
from course_lib.objectives.collate import pad, pad_to_longest
from course_lib.vocab import IGNORE

BATCH = 64  # number of blanks that the model reads at once


@dataclass(frozen=True)
class Blank:
    """A text with one word to fill in: `answer` between `left` and `right`."""

    left: str
    answer: str
    right: str


@torch.no_grad()
def fill_in_accuracy(model: nn.Module, tokenizer: Tokenizer, blanks: Sequence[Blank]) -> float:
    """The share of blanks in which the model predicts every token of the word.

    If the tokenizer has a mask token, all tokens of the word are masked at once. If not, the model
    is causal: each token is predicted from the tokens before it.
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
                # Position t predicts token t + 1. The first token is never part of the answer.
                inputs = ids
                predicting = is_answer.roll(-1, dims=1)
            else:
                inputs = ids.masked_fill(is_answer, vocab.mask)
                predicting = is_answer
            logits = word_logits(
                model,
                inputs.to(device),
                attention_mask=batch["attention_mask"].to(device),
                loss_mask=predicting.to(device),
            )
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
    """The share of blanks in which an encoder-decoder predicts every token of the word.

    It reads the text with one token instead of the word.

    Args:
        model: BART, which writes the whole text; or T5, which writes a sentinel and the word.
        tokenizer: the model's tokenizer.
        blanks: the texts.
        sentinels: the ids of T5's sentinels (the tokens that replace words); none for BART.
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
                    first = 1  # in the target the word follows the sentinel
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
    for start in range(0, len(blanks), BATCH):
        yield blanks[start : start + BATCH]


def _encoded(tokenizer: Tokenizer, blank: Blank) -> tuple[list[int], list[bool]]:
    """The ids of the whole text, and for each whether it belongs to the answer."""
    start = len(blank.left)
    end = start + len(blank.answer)
    encoding = tokenizer.encode(blank.left + blank.answer + blank.right)
    # Token by token: does it overlap the answer's characters? Special tokens cover no characters.
    inside = [a < end and b > start and a < b for a, b in encoding.offsets]
    if tokenizer.vocab.mask is None:  # a causal model starts with its start token
        return [tokenizer.vocab.bos or 0, *encoding.ids], [False, *inside]
    return encoding.ids, inside


def _whole_answers(logits: Tensor, ids: Tensor, is_answer: Tensor) -> int:
    """The number of rows in which every token of the answer is predicted.

    Args:
        logits: Float[N V], the logits for the N tokens of all answers.
        ids: Int[B T], the right tokens.
        is_answer: Bool[B T], True at the answers' tokens.
    """
    is_wrong = torch.zeros(is_answer.shape, dtype=torch.bool)
    is_wrong[is_answer] = logits.argmax(-1).cpu() != ids[is_answer]
    return int((~is_wrong.any(dim=1)).sum())


def repeated_pairs(ids: Int[Tensor, " T"]) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"]]:
    """Where a text says again what it has said: pairs of tokens that have come before.

    Args:
        ids: of one text.

    Returns:
        Of each repeated pair the position t at which it begins, and the position s < t at which
        its last occurrence ended. A model that has read up to t may take token t + 1 from s.

    >>> t, s = repeated_pairs(torch.tensor([5, 7, 8, 2, 7, 8]))
    >>> t.tolist(), s.tolist()
    ([4], [2])
    """
    ends: dict[tuple[int, int], int] = {}
    places = []
    for t, pair in enumerate(pairwise(ids.tolist())):
        if pair in ends and ends[pair] < t:
            places.append((t, ends[pair]))
        ends[pair] = t + 1
    at = torch.tensor(places, dtype=torch.long).reshape(-1, 2)
    return at[:, 0], at[:, 1]


def looked_at_alike(
    weights: Float[Tensor, "T T"], queries: Int[Tensor, " N"], keys: Int[Tensor, " N"]
) -> Int[Tensor, " N"]:
    """For each query another key, which gets about the same weight as its own: a control.

    Args:
        weights: attention weights, queries in rows.
        queries: positions that look.
        keys: a position before each, after the start token at 0. It is never the answer.

    Returns:
        Of the positions between the start token and the query, the one with the nearest weight.

    >>> weights = torch.tensor([[0.0] * 5] * 4 + [[0.4, 0.2, 0.1, 0.1, 0.2]])
    >>> looked_at_alike(weights, torch.tensor([4]), torch.tensor([2])).tolist()
    [3]
    """
    rows = weights[queries]
    distance = (rows - rows.gather(1, keys[:, None])).abs()
    positions = torch.arange(rows.shape[1])
    distance[positions >= queries[:, None]] = torch.inf
    distance[positions == keys[:, None]] = torch.inf
    distance[:, 0] = torch.inf
    return distance.argmin(dim=1)
