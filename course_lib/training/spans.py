"""Question answering: find the answer to a question in a passage (Devlin et al. 2019, section 4.2).

The model reads [CLS] question [SEP] passage [SEP] and gives each token two logits: how likely the
answer starts here, and how likely it ends here. The answer is the span (run of tokens) with the
largest sum of its start's and its end's logit:

    tokens    [CLS] who won ? [SEP] anna  won [SEP]
    start      0     0   0  0   0    5     1   0        the largest sum is 5 + 4,
    end        0     0   0  0   0    4     2   0        so the answer is "anna"

A span i..j is given by its first and its last token. Shapes: T tokens of one input. `inside`
Bool[T] is True at the passage's tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.data.inputs import EncodedRow, Frame, Passage
from course_lib.errors import CourseError

Logits = Float[Tensor, " T"]
MAX_ANSWER = 30  # tokens, as in BERT's run_squad.py


class SpanModel(Protocol):
    """The part of a fine-tuned model (`finetune.FineTuned`) that `read` uses."""

    @property
    def model(self) -> nn.Module:
        """A model: (ids, attention_mask, segments) -> start logits and end logits, [B T] each."""

    @property
    def frame(self) -> Frame:
        """Turns a question and a passage into the model's input."""


@dataclass(frozen=True)
class Reading:
    """A model's answer to one question, word by word.

    Attributes:
        question: the question.
        words: the passage's words and punctuation signs, spelled as in the passage.
        start_probabilities: for each word, the probability that the answer starts there. A word of
            several tokens has the sum of theirs.
        end_probabilities: for each word, the probability that the answer ends there.
        best_words: index in `words` of the best answer's first and last word.
        answer: the best answer's text.
    """

    question: str
    words: list[str]
    start_probabilities: list[float]
    end_probabilities: list[float]
    best_words: tuple[int, int]
    answer: str


def totals(start: Logits, end: Logits, inside: Bool[Tensor, " T"]) -> Float[Tensor, "T T"]:
    """The score of every answer i..j: start[i] + end[j].

    The score is -inf where i..j cannot be an answer: it leaves the passage, ends before it starts,
    or is longer than `MAX_ANSWER`.
    """
    everywhere = torch.ones(len(inside), len(inside), dtype=torch.bool)
    in_order = everywhere.triu()  # j >= i
    short_enough = in_order.tril(MAX_ANSWER - 1)  # and j < i + MAX_ANSWER
    allowed = short_enough & inside[:, None] & inside[None, :]
    sums = start.float()[:, None] + end.float()[None, :]  # T T
    return sums.masked_fill(~allowed, float("-inf"))


def best_span(start: Logits, end: Logits, inside: Bool[Tensor, " T"]) -> tuple[int, int]:
    """The first and the last token of the answer with the highest start[i] + end[j].

    >>> start = torch.tensor([9.0, 0.0, 3.0, 1.0])
    >>> end = torch.tensor([9.0, 4.0, 0.0, 2.0])
    >>> inside = torch.tensor([False, True, True, True])
    >>> best_span(start, end, inside)  # 3 + 2 beats 0 + 4; token 0 belongs to the question
    (2, 3)

    Raises:
        CourseError: no token belongs to the passage.
    """
    if not inside.any():
        raise CourseError("There is no passage to answer from: the question alone fills the input.")
    flat_index = int(totals(start, end, inside).argmax())  # counts row by row through T x T
    return divmod(flat_index, len(start))


def answer_text(row: EncodedRow, start: Logits, end: Logits) -> str:
    """The best answer, spelled as in the passage.

    It is empty if a long question left no room for the passage: one such row should not stop the
    prediction of all others. (`read`, which shows one row, raises an error instead.)

    Args:
        row: a question and a passage, encoded.
        start: each token's logit to be the answer's first; padding may follow on the right.
        end: each token's logit to be the answer's last, padded in the same way.
    """
    passage = _passage(row)
    inside = _inside(passage)
    if not inside.any():
        return ""
    first, last = best_span(_unpadded(start, passage), _unpadded(end, passage), inside)
    first_offsets = passage.offsets[first]
    last_offsets = passage.offsets[last]
    assert first_offsets is not None and last_offsets is not None  # both tokens are inside
    return passage.text[first_offsets[0] : last_offsets[1]].strip()


@torch.no_grad()
def read(tuned: SpanModel, item: Mapping[str, Any]) -> Reading:
    """Answer one question with a fine-tuned model, and show the probability of each word.

    Args:
        tuned: a model fine-tuned on a span task, such as SQuAD.
        item: a row of the task, with the columns `text` (the question) and `pair` (the passage).

    Raises:
        CourseError: the model was fine-tuned on another kind of task, or the question leaves no
            room for the passage.
    """
    if tuned.frame.kind != "span":
        raise CourseError(
            "spans.read needs a model fine-tuned on a span task; this one's is"
            f" {tuned.frame.kind!r}."
        )
    (row,) = tuned.frame.rows([item])
    device = next(tuned.model.parameters()).device
    inputs = {name: value.to(device) for name, value in tuned.frame.collate([row]).items()}
    del inputs["labels"]
    passage = _passage(row)
    start, end = (_unpadded(logits[0], passage) for logits in tuned.model(**inputs))  # T each
    inside = _inside(passage)
    first, last = best_span(start, end, inside)

    words, word_of_token = _passage_words(tuned.frame, row)
    # The softmax runs over the passage's tokens alone.
    start_of_token = start.masked_fill(~inside, float("-inf")).softmax(-1)
    end_of_token = end.masked_fill(~inside, float("-inf")).softmax(-1)
    numbers = range(len(words))
    return Reading(
        question=item["text"],
        words=words,
        start_probabilities=[float(start_of_token[word_of_token == i].sum()) for i in numbers],
        end_probabilities=[float(end_of_token[word_of_token == i].sum()) for i in numbers],
        best_words=(int(word_of_token[first]), int(word_of_token[last])),
        answer=answer_text(row, start, end),
    )


def _passage(row: EncodedRow) -> Passage:
    assert row.passage is not None  # every row of a span task has one
    return row.passage


def _inside(passage: Passage) -> Bool[Tensor, " T"]:
    # A token of the question has no offsets (positions of its characters in the passage).
    return torch.tensor([offsets is not None for offsets in passage.offsets])


def _unpadded(logits: Tensor, passage: Passage) -> Logits:
    return logits[: len(passage.offsets)].float().cpu()


def _passage_words(frame: Frame, row: EncodedRow) -> tuple[list[str], Tensor]:
    """The passage's words, and the word of each token.

    The tokens [CLS] who [SEP] an ##na won [SEP] give the words anna, won and the numbers
    -1 -1 -1 0 0 1 -1.

    Returns:
        The words as the passage spells them, and Int[T], -1 outside the passage.
    """
    passage = _passage(row)
    word_ids = frame.tokenizer.words(torch.tensor(row.ids[0])).tolist()  # of the whole input
    word_of_token = torch.full((len(passage.offsets),), -1)
    bounds: list[tuple[int, int]] = []  # each word's first character, and the one past its last
    previous = None
    for token, (offsets, word_id) in enumerate(zip(passage.offsets, word_ids, strict=True)):
        if offsets is None:
            continue
        start, stop = offsets
        if word_id == previous:  # one more token of the same word
            start, _ = bounds.pop()
        bounds.append((start, stop))
        word_of_token[token] = len(bounds) - 1
        previous = word_id
    return [passage.text[start:stop].strip() for start, stop in bounds], word_of_token
