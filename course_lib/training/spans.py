"""From two logits a token to an answer in a passage (Devlin et al. 2019, section 4.2).

Letters: T tokens of one input, [CLS] question [SEP] passage [SEP]. `inside` Bool[T]: the passage's
tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.data.inputs import EncodedRow, Frame
from course_lib.errors import CourseError

Logits = Float[Tensor, " T"]
LONGEST = 30  # tokens of an answer, as in BERT's code


@dataclass(frozen=True)
class Reading:
    """What a fine-tuned model sees in one passage.

    Attributes:
        question: what was asked.
        tokens: the passage's words and signs, as the text spells them.
        start: each one's probability of holding the answer's first token; a word of several pieces
            has their sum.
        end: likewise its last token.
        best: places of the first and the last.
        answer: that text.
    """

    question: str
    tokens: list[str]
    start: list[float]
    end: list[float]
    best: tuple[int, int]
    answer: str


def totals(start: Logits, end: Logits, inside: Bool[Tensor, " T"]) -> Float[Tensor, "T T"]:
    """The score of every answer i..j: start[i] + end[j].

    It is -inf where i..j is no answer: not in the passage, not in order or too long.
    """
    everywhere = torch.ones(len(inside), len(inside), dtype=torch.bool)
    in_order = everywhere.triu()  # j >= i
    in_order = in_order.tril(LONGEST - 1)  # j < i + LONGEST
    allowed = in_order & inside[:, None] & inside[None, :]
    sums = start.float()[:, None] + end.float()[None, :]  # T T
    return sums.masked_fill(~allowed, float("-inf"))


def best(start: Logits, end: Logits, inside: Bool[Tensor, " T"]) -> tuple[int, int]:
    """The answer i..j with the highest start[i] + end[j]."""
    if not inside.any():
        raise CourseError("There is no passage to answer from: the question alone fills the input.")
    return divmod(int(totals(start, end, inside).argmax()), len(start))


def answer(row: EncodedRow, start: Logits, end: Logits) -> str:
    """The best answer as the passage spells it; empty where the passage was cut away.

    Args:
        row: the framed question and passage.
        start: logits of each token to be the answer's first; those of padding may follow.
        end: logits of each token to be its last.
    """
    assert row.context is not None
    text, places = row.context
    inside = _inside(row)
    if not inside.any():
        return ""
    length = len(places)  # without padding
    first, last = best(start[:length].float().cpu(), end[:length].float().cpu(), inside)
    first_place = places[first]  # its first and past-the-last character
    last_place = places[last]
    if first_place is None or last_place is None:
        return ""
    return text[first_place[0] : last_place[1]].strip()


class Reader(Protocol):
    """A fine-tuned model and what it reads (`finetune.FineTuned`)."""

    @property
    def model(self) -> nn.Module:
        """With the head of a span task."""

    @property
    def frame(self) -> Frame:
        """How a row becomes an input."""


@torch.no_grad()
def read(result: Reader, item: Mapping[str, Any]) -> Reading:
    """What a fine-tuned model sees in the passage of one row of a span task.

    Raises:
        CourseError: the model was fine-tuned on another kind of task.
    """
    if result.frame.kind != "span":
        raise CourseError(
            "spans.read needs a model fine-tuned on a span task; this one's is"
            f" {result.frame.kind!r}."
        )
    (row,) = result.frame.rows([item])
    device = next(result.model.parameters()).device
    inputs = {name: value.to(device) for name, value in result.frame.collate([row]).items()}
    del inputs["labels"]
    start, end = (logits[0].float().cpu() for logits in result.model(**inputs))  # T each
    inside = _inside(row)
    first, last = best(start, end, inside)
    words, word_of = _words(result, row)
    in_words = range(len(words))
    # Probabilities over the passage's tokens alone; a word has the sum over its tokens.
    starts = start.masked_fill(~inside, float("-inf")).softmax(-1)
    ends = end.masked_fill(~inside, float("-inf")).softmax(-1)
    return Reading(
        question=item["text"],
        tokens=words,
        start=[float(starts[word_of == word].sum()) for word in in_words],
        end=[float(ends[word_of == word].sum()) for word in in_words],
        best=(int(word_of[first]), int(word_of[last])),
        answer=answer(row, start, end),
    )


def _inside(row: EncodedRow) -> Bool[Tensor, " T"]:
    """Which of a framed row's tokens are the passage's."""
    assert row.context is not None
    return torch.tensor([place is not None for place in row.context[1]])


def _words(result: Reader, row: EncodedRow) -> tuple[list[str], Tensor]:
    """The passage's words, and the word of each token.

    Returns:
        The words as the passage spells them, and Int[T], -1 outside the passage.
    """
    assert row.context is not None
    text, places = row.context
    spelled = result.frame.tokenizer.words(torch.tensor(row.ids[0])).tolist()
    word_of = torch.full((len(places),), -1)
    bounds: list[list[int]] = []  # first and last character of each word
    before = None
    for token, (place, word) in enumerate(zip(places, spelled, strict=True)):
        if place is None:
            continue
        if word != before:
            bounds.append([*place])
        bounds[-1][1] = place[1]
        word_of[token] = len(bounds) - 1
        before = word
    return [text[first:last].strip() for first, last in bounds], word_of
