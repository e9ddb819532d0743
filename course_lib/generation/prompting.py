"""Tasks asked in words, without training: rows worded as questions, given answers scored, free
answers generated.

template = Template("{text} In short, it was {answer}.", words=("bad", "good"))
evaluate(model, tokenizer, rows, template, examples=training_rows, shots=4).score
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.analysis import metrics
from course_lib.data.columns import Row
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation import causal_config, check_positions, generate, left_pad
from course_lib.model.attention import KVCache
from course_lib.model.layers import evaluating
from course_lib.objectives.collate import pad_to_longest

Normalise = Literal["sum", "token", "character", "unconditional"]
SLOT = "{answer}"
# A sentence that begins with one of these has no name in front and may stand inside another.
LOWERED = re.compile(
    r"(a|an|the|this|that|these|those|it|he|she|they|we|you|there|his|her|their|my|our|your|its|in|on|at|by|to|with|from|"
    r"for|of|after|before|during|while|when|last|next|every|some|no|one|two)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Question:
    """A text with a gap; a model reads `left` of it only. choices: the possible answers, of which
    number `label` is right; none if the answer is free. answers: all texts that count as right."""

    left: str
    right: str
    choices: tuple[str, ...]
    answers: tuple[str, ...]
    label: int = -1


@dataclass(frozen=True)
class Template:
    """How a row is worded: one text with the row's columns (`{pair:clause}`: see `clause`) and the
    place of the answer.

    words: what stands for the classes 0, 1, ... Without them the answers are the row's `choices`;
    without these, its `target` or `answer` is free text. between: stands between the instruction,
    the examples and the question.

    >>> Template("{text} It was {answer}.", words=("bad", "good")).show({"text": "I slept.", "label": 0})
    'I slept. It was bad.'
    """

    text: str
    words: tuple[str, ...] = ()
    between: str = " "
    instruction: str = ""

    def __post_init__(self) -> None:
        if self.text.count(SLOT) != 1:
            raise CourseError(
                f"The template {self.text!r} needs the place of the answer, once, by {SLOT}."
            )

    def ask(self, row: Row, examples: Iterable[Row] = ()) -> Question:
        """The row's question, after the instruction and the answered examples (Brown et al. 2020,
        figure 2.1).
        """
        left, right = self._filled(row)
        before = [*([self.instruction] if self.instruction else []), *map(self.show, examples)]
        return Question(self.between.join([*before, left]), right, *self._answers(row))

    def show(self, row: Row) -> str:
        """The row with its right answer, as an example is shown."""
        left, right = self._filled(row)
        return left + self._answers(row)[1][0] + right

    def _answers(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        choices = self.words or tuple(row.get("choices", ()))
        if not choices:
            named = [row[name] for name in ("target", "answer") if name in row][:1]
            answers = tuple(row.get("answers") or named)
            if not answers:
                raise CourseError(
                    "A row has neither choices nor an answer; give the template words for its"
                    " classes."
                )
            return (), answers, -1
        label = row.get("label")
        if not isinstance(label, int) or not 0 <= label < len(choices):
            raise CourseError(
                f"The label {label!r} is none of the {len(choices)} choices {', '.join(choices)}."
            )
        return choices, (choices[label],), label

    def _filled(self, row: Row) -> list[str]:
        """The texts before and after the answer."""
        values = {
            name: _Column(value) if isinstance(value, str) else value for name, value in row.items()
        }
        try:
            return [part.format_map(values) for part in self.text.split(SLOT)]
        except KeyError as error:
            raise CourseError(
                f"The template needs the column {error}; the row has {', '.join(row)}."
            ) from None


class _Column(str):
    """A column's text, which `{name:clause}` turns into a clause."""

    def __format__(self, how: str) -> str:
        return clause(self) if how == "clause" else super().__format__(how)


def clause(sentence: str) -> str:
    """A sentence as a part of another: without its full stop, in lower case where no name begins
    it.
    """
    sentence = sentence.strip().rstrip(".!?")
    return sentence[:1].lower() + sentence[1:] if LOWERED.match(sentence) else sentence


def questions(
    template: Template,
    rows: Iterable[Row],
    *,
    examples: Sequence[Row] = (),
    shots: int = 0,
    seed: int = 0,
) -> list[Question]:
    """The questions of a task, each after `shots` of the examples, drawn anew for each by `seed`
    (Brown et al. 2020, section 2.4); of fewer shots they are the last ones of more."""
    if shots > len(examples):
        raise CourseError(f"{shots} shots cannot be drawn from {len(examples)} examples.")
    asked = []
    for number, row in enumerate(rows):
        rng = random.Random(f"{seed}/{number}")
        drawn: list[int] = []
        while len(drawn) < shots:
            if (i := rng.randrange(len(examples))) not in drawn:
                drawn.append(i)
        asked.append(template.ask(row, [examples[i] for i in reversed(drawn)]))
    return asked


class Score(NamedTuple):
    """Of a continuation."""

    logprob: float  # sum over its tokens, in nats
    tokens: int


def encode(
    tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[str]
) -> list[tuple[list[int], int]]:
    """(tokens of both behind the start token, number of the first that is scored) of each pair,
    tokenized together. White space at the prompt's end goes to the continuation, where byte-level
    tokens have it. A token that straddles the boundary ("boo" + "k") counts whole, as the first of
    the continuation, where evaluation harnesses lose it."""
    start, unknown = _start(tokenizer), tokenizer.vocab.unk
    given = tokenizer.ids([prompt.rstrip() for prompt in prompts], special=False)
    whole = tokenizer.ids(
        [p + c for p, c in zip(prompts, continuations, strict=True)], special=False
    )
    rows = []
    for prompt, continuation, known, ids in zip(prompts, continuations, given, whole, strict=True):
        first = _common([known, ids])
        if not continuation.strip() or first == len(ids):
            raise CourseError(
                f"There is nothing to score after {prompt[-40:]!r}: the continuation is empty."
            )
        if unknown is not None and unknown in ids[first:]:
            raise CourseError(
                f"The tokenizer does not know all of {continuation!r}, so the model cannot"
                " generate it."
            )
        rows.append(([*start, *ids], first + len(start)))
    return rows


@torch.no_grad()
def score(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    *,
    batch: int = 32,
) -> list[list[Score]]:
    """log P(continuation | prompt) of each prompt's continuations, `batch` of them at once (see
    `encode`). What they have in common a causal model (`heads.LM`) reads once, then each
    continuation over the cached keys and values."""
    if not all(map(len, continuations)):
        raise CourseError(
            "A question has no choices to score; a free answer is generated by `complete`."
        )
    config = causal_config(model)
    pairs = [
        (prompt, text)
        for prompt, texts in zip(prompts, continuations, strict=True)
        for text in texts
    ]
    coded = iter(encode(tokenizer, [prompt for prompt, _ in pairs], [text for _, text in pairs]))
    rows = [[next(coded) for _ in texts] for texts in continuations]
    for prompt, some in zip(prompts, rows, strict=True):
        longest = max(len(ids) for ids, _ in some)
        check_positions(
            config, longest - 1, f"The prompt that begins {prompt[:40]!r} and its continuation"
        )
    found: list[list[Score]] = [[] for _ in rows]
    with evaluating(model):
        for numbers in _batches(rows, batch):
            scores = iter(_scores(model, config.layers, [rows[q] for q in numbers]))
            for q in numbers:
                found[q] = [next(scores) for _ in rows[q]]
    return found


def _scores(
    model: nn.Module, layers: int, questions: Sequence[Sequence[tuple[list[int], int]]]
) -> list[Score]:
    """The scores of all rows of some questions, one after the other."""
    device = next(model.parameters()).device
    # Read once: what a question's rows have in common, but for the last given token, from which the
    # first scored one
    # is predicted.
    known = [
        min(_common([ids for ids, _ in rows]), min(first for _, first in rows) - 1)
        for rows in questions
    ]
    given = [rows[0][0][:n] for rows, n in zip(questions, known, strict=True)]
    ids, seen = (x.to(device) for x in pad_to_longest(given, 0, left=True).values())  # Q P
    cache = KVCache(layers)
    if ids.shape[1]:
        model(
            ids, attention_mask=seen, cache=cache, loss_mask=torch.zeros_like(ids, dtype=torch.bool)
        )
    owner = torch.tensor([q for q, rows in enumerate(questions) for _ in rows], device=device)
    cache.reorder(owner)
    # Then the rest of every row.
    tails = [
        (row[n:], first - n)
        for rows, n in zip(questions, known, strict=True)
        for row, first in rows
    ]
    # R T
    ids, real = (x.to(device) for x in pad_to_longest([tail for tail, _ in tails], 0).values())
    firsts = torch.tensor([first for _, first in tails], device=device)
    at = real[:, 1:] & (torch.arange(1, ids.shape[1], device=device) >= firsts[:, None])
    attention_mask = torch.cat([seen[owner], real[:, :-1]], dim=1)
    logits = model(ids[:, :-1], attention_mask=attention_mask, cache=cache, loss_mask=at)  # N V
    picked = logits.float().log_softmax(dim=-1).gather(1, ids[:, 1:][at][:, None])[:, 0]
    return [
        Score(float(part.double().sum()), len(part))
        for part in picked.split(at.sum(dim=1).tolist())
    ]


def rank(
    model: nn.Module,
    tokenizer: Tokenizer,
    asked: Sequence[Question],
    *,
    normalise: Normalise = "sum",
    batch: int = 32,
) -> list[Float[Tensor, " C"]]:
    """How good a causal model finds each choice of each question, in nats. normalise: "sum", the
    log probability; "token" or "character", its mean over those; "unconditional", the log of
    P(choice | question) / P(choice | "Answer:"), without the advantage of frequent ones (Brown et
    al. 2020, section 2.4)."""
    choices = [q.choices for q in asked]
    found = score(model, tokenizer, [q.left for q in asked], choices, batch=batch)
    logprobs = [torch.tensor([s.logprob for s in some]) for some in found]
    if normalise == "sum":
        return logprobs
    if normalise == "unconditional":
        bare = ["Answer:" + q.left[len(q.left.rstrip()) :] for q in asked]
        unasked = score(model, tokenizer, bare, choices, batch=batch)
        return [
            p - torch.tensor([s.logprob for s in some])
            for p, some in zip(logprobs, unasked, strict=True)
        ]
    if normalise == "token":
        sizes = [[s.tokens for s in some] for some in found]
    elif normalise == "character":
        sizes = [[len(choice.strip()) for choice in some] for some in choices]
    else:
        raise CourseError(
            f"There is no normalise={normalise!r}; there are sum, token, character and"
            " unconditional."
        )
    return [p / torch.tensor(size) for p, size in zip(logprobs, sizes, strict=True)]


def complete(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    stop: Sequence[str] = (),
    max_new_tokens: int = 32,
    batch: int = 32,
) -> list[str]:
    """What a causal model says after each prompt (without white space at its end), greedily, up to
    the first of the texts in `stop` or its end token."""
    vocab, device = tokenizer.vocab, next(model.parameters()).device
    rows = [
        [*_start(tokenizer), *ids]
        for ids in tokenizer.ids([p.rstrip() for p in prompts], special=False)
    ]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    said = [""] * len(rows)
    for begin in range(0, len(order), batch):
        numbers = order[begin : begin + batch]
        ids, attention_mask = (
            x.to(device) for x in left_pad([rows[i] for i in numbers], vocab.pad or 0)
        )
        options: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "eos": vocab.eos,
            "pad": vocab.pad,
        }
        new = generate(model, ids, attention_mask=attention_mask, **options)[:, ids.shape[1] :]
        for i, row in zip(numbers, new.tolist(), strict=True):
            said[i] = tokenizer.decode(row)
            for mark in stop:
                said[i] = said[i].split(mark, 1)[0]
    return [text.strip() for text in said]


class PromptResult(NamedTuple):
    """score: accuracy of choices, exact match of free answers. predictions, truth: numbers of
    choices, or texts.
    """

    score: float
    predictions: list[Any]
    truth: list[Any]


def evaluate(
    model: nn.Module,
    tokenizer: Tokenizer,
    rows: Iterable[Row],
    template: Template,
    *,
    max_new_tokens: int = 32,
    **shown: Any,
) -> PromptResult:
    """Ask a causal model every row of a task in words and count its answers (Brown et al. 2020,
    section 2.4): of choices the likeliest; else what it says greedily, up to what stands behind the
    gap in the template or between its examples. shown: examples, shots and seed of `questions`."""
    asked = questions(template, rows, **shown)
    if not asked:
        raise CourseError("There are no rows to ask about.")
    if asked[0].choices:
        predictions: list[Any] = [int(found.argmax()) for found in rank(model, tokenizer, asked)]
        truth: list[Any] = [q.label for q in asked]
        return PromptResult(metrics.accuracy(predictions, truth), predictions, truth)
    stop = [mark for mark in (asked[0].right.strip(), template.between) if mark.strip(" ")]
    predictions = complete(
        model, tokenizer, [q.left for q in asked], stop=stop, max_new_tokens=max_new_tokens
    )
    truth = [list(q.answers) for q in asked]
    return PromptResult(metrics.exact_match(predictions, truth), predictions, truth)


def _start(tokenizer: Tokenizer) -> list[int]:
    """The token that stands before the documents of the course's models."""
    vocab = tokenizer.vocab
    return [i for i in (vocab.bos, vocab.cls, vocab.eos) if i is not None][:1]


def _common(rows: Sequence[list[int]]) -> int:
    """How many tokens the rows have in common at the beginning."""
    return next(
        (i for i, column in enumerate(zip(*rows, strict=False)) if len({*column}) > 1),
        min(map(len, rows)),
    )


def _batches(rows: Sequence[Sequence[tuple[list[int], int]]], batch: int) -> Iterator[list[int]]:
    """Numbers of questions of like length, so many that their rows together are at most `batch` (or
    one question's).
    """
    numbers: list[int] = []
    for q in sorted(range(len(rows)), key=lambda q: max(len(ids) for ids, _ in rows[q])):
        if numbers and sum(len(rows[i]) for i in numbers) + len(rows[q]) > batch:
            yield numbers
            numbers = []
        numbers = [*numbers, q]
    yield numbers
