"""From two logits a token to an answer in a passage (Devlin et al. 2019, section 4.2).

Letters: T tokens of one input, [CLS] question [SEP] passage [SEP]. `inside` Bool[T]: the passage's tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.inputs import Row

if TYPE_CHECKING:
    from course_lib.finetune import Result

LONGEST = 30  # tokens of an answer, as in BERT's code


@dataclass(frozen=True)
class Reading:
    """What a fine-tuned model sees in one passage.

    tokens: the passage's words and signs as its text spells them. start, end: each one's probability of holding the
    answer's first and last token (a word of several pieces has their sum). best: places of the first and the last,
    first <= last. answer: that text.
    """

    question: str
    tokens: list[str]
    start: list[float]
    end: list[float]
    best: tuple[int, int]
    answer: str


def probabilities(logits: Float[Tensor, " T"], inside: Bool[Tensor, " T"]) -> Float[Tensor, " T"]:
    """Softmax over the passage; 0 at the question, at special tokens and at padding."""
    return logits.float().masked_fill(~inside, float("-inf")).softmax(-1)


def allowed(inside: Bool[Tensor, " T"], longest: int = LONGEST) -> Bool[Tensor, "T T"]:
    """[i, j]: may an answer begin at i and end at j? Both in the passage, in order, at most `longest` tokens."""
    t = len(inside)
    ordered = torch.ones(t, t, dtype=torch.bool).triu() & ~torch.ones(t, t, dtype=torch.bool).triu(longest)
    return ordered & inside[:, None] & inside[None, :]


def joint(
    start: Float[Tensor, " T"], end: Float[Tensor, " T"], inside: Bool[Tensor, " T"], longest: int = LONGEST
) -> Float[Tensor, "T T"]:
    """The probability of each answer i..j: a softmax of start[i] + end[j] over all that are allowed."""
    total = start.float()[:, None] + end.float()[None, :]
    total = total.masked_fill(~allowed(inside, longest), float("-inf"))
    return total.flatten().softmax(-1).view_as(total)


def best(
    start: Float[Tensor, " T"], end: Float[Tensor, " T"], inside: Bool[Tensor, " T"], longest: int = LONGEST
) -> tuple[int, int]:
    """The answer i..j with the highest start[i] + end[j].

    Raises:
        CourseError: no token lies in the passage.
    """
    if not inside.any():
        raise CourseError("There is no passage to answer from: the question alone fills the input.")
    total = start[:, None] + end[None, :]
    first, last = divmod(int(total.masked_fill(~allowed(inside, longest), float("-inf")).argmax()), len(start))
    return first, last


def inside(row: Row) -> Bool[Tensor, " T"]:
    """Which of a framed row's tokens are the passage's."""
    assert row.context is not None
    return torch.tensor([place is not None for place in row.context[1]])


def answer(row: Row, start: Float[Tensor, " T"], end: Float[Tensor, " T"]) -> str:
    """The best answer as the passage spells it; empty where the passage was cut away.

    start, end: logits of the row's tokens, padding behind them may be there.
    """
    assert row.context is not None
    text, places = row.context
    here = inside(row)
    if not here.any():
        return ""
    first, last = best(start[: len(places)].float().cpu(), end[: len(places)].float().cpu(), here)
    a, b = places[first], places[last]
    return "" if a is None or b is None else text[a[0] : b[1]].strip()


@torch.no_grad()
def read(result: "Result", item: Mapping[str, Any]) -> Reading:
    """Start and end probabilities over one passage.

    Args:
        result: of a fine-tuning on a span task. item: a row of it: text (the question), pair (the passage), answer,
            start.

    Raises:
        CourseError: the model was not trained on spans.
    """
    if result.frame.kind != "span":
        raise CourseError(f"spans.read needs a model fine-tuned on a span task; this one's is {result.frame.kind!r}.")
    (row,) = result.frame.rows([item])
    device = next(result.model.parameters()).device
    batch = {name: value.to(device) for name, value in result.frame.collate([row]).items() if name != "labels"}
    start, end = (logits[0].float().cpu() for logits in result.model(**batch))
    here = inside(row)
    first, last = best(start, end, here)
    words, of = _words(result, row)
    p_start, p_end = probabilities(start, here), probabilities(end, here)
    return Reading(
        question=item["text"],
        tokens=words,
        start=[float(p_start[of == i].sum()) for i in range(len(words))],
        end=[float(p_end[of == i].sum()) for i in range(len(words))],
        best=(int(of[first]), int(of[last])),
        answer=answer(row, start, end),
    )


def _words(result: "Result", row: Row) -> tuple[list[str], Tensor]:
    """The passage's words, and for each token of the input the number of its word, -1 outside the passage."""
    assert row.context is not None
    text, places = row.context
    tokenizer = result.frame.tokenizer
    ids = torch.tensor(row.ids[0]).clamp(max=tokenizer.vocab.size - 1)  # a decoder's marks are not in the vocabulary
    spelled = tokenizer.words(ids).tolist()
    of, before = torch.full((len(places),), -1), None
    bounds: list[list[int]] = []
    for token, (place, word) in enumerate(zip(places, spelled, strict=True)):
        if place is None:
            continue
        if word == before:
            bounds[-1][1] = place[1]
        else:
            bounds.append([*place])
        of[token], before = len(bounds) - 1, word
    return [text[first:last].strip() for first, last in bounds], of
