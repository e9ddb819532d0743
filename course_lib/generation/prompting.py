"""Tasks asked in words, without training: answers are scored if they are given, else generated.

template = Template("{text} In short, it was {answer}.", words=("bad", "good"))
asked = questions(template, rows, examples=training_rows, shots=4)
rank(model, tokenizer, asked)       the choices' scores, of each question
complete(model, tokenizer, prompts) free answers
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.data.columns import Row
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation.sampling import generate
from course_lib.generation.state import causal_config, check_positions, left_pad
from course_lib.generation.text import encode_prompts, end_token, start_tokens, until
from course_lib.model.cache import KVCache
from course_lib.model.modes import evaluating
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.objectives.collate import pad_to_longest

Normalise = Literal["sum", "token", "character", "unconditional"]
SLOT = "{answer}"
# A sentence that begins with one of these has no name in front and may stand inside another.
LOWERED = re.compile(
    r"(a|an|the|this|that|these|those|it|he|she|they|we|you|there"
    r"|his|her|their|my|our|your|its|every|some|no|one|two|last|next"
    r"|in|on|at|by|to|with|from|for|of|after|before|during|while|when)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Question:
    """A text with a gap.

    Args:
        left: the text before the gap, all that a model reads.
        right: the text behind it.
        choices: the possible answers; none if the answer is free.
        answers: all texts that count as right.
        label: the number of the right choice, -1 without choices.
    """

    left: str
    right: str
    choices: tuple[str, ...]
    answers: tuple[str, ...]
    label: int = -1


@dataclass(frozen=True)
class Template:
    """How a row is worded.

    Args:
        text: names the row's columns and the place of the answer, "{text} It was {answer}.".
            `{pair:clause}` makes a sentence a part of another (`clause`).
        words: what stands for the classes 0, 1, ... Without them the answers are the row's
            `choices`; without these, its `target` or `answer` is free text.
        between: stands between the instruction, the examples and the question.
        instruction: stands in front of all.

    Raises:
        CourseError: if the text has not exactly one place for the answer.

    >>> template = Template("{text} It was {answer}.", words=("bad", "good"))
    >>> template.show({"text": "I slept.", "label": 0})
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
        """The row's question, after the instruction and the answered examples.

        Brown et al. 2020, figure 2.1.
        """
        left, right = self._fill(row)
        parts = [self.instruction] if self.instruction else []
        parts += [self.show(example) for example in examples]
        parts.append(left)
        choices, answers, label = self._answers(row)
        return Question(self.between.join(parts), right, choices, answers, label)

    def show(self, row: Row) -> str:
        """The row with its right answer, as an example is shown."""
        left, right = self._fill(row)
        _, answers, _ = self._answers(row)
        return left + answers[0] + right

    def _answers(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """The choices, the right answers and the right choice's number."""
        choices = self.words or tuple(row.get("choices", ()))
        if not choices:
            return (), self._free_answers(row), -1
        label = row.get("label")
        if not isinstance(label, int) or not 0 <= label < len(choices):
            raise CourseError(
                f"The label {label!r} is none of the {len(choices)} choices {', '.join(choices)}."
            )
        return choices, (choices[label],), label

    def _free_answers(self, row: Row) -> tuple[str, ...]:
        """The right answers of a row without choices."""
        if row.get("answers"):
            return tuple(row["answers"])
        for name in ("target", "answer"):
            if name in row:
                return (row[name],)
        raise CourseError(
            "A row has neither choices nor an answer; give the template words for its classes."
        )

    def _fill(self, row: Row) -> list[str]:
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

    def __format__(self, format_spec: str) -> str:
        return clause(self) if format_spec == "clause" else super().__format__(format_spec)


def clause(sentence: str) -> str:
    """A sentence as a part of another.

    It loses its full stop, and begins in lower case where no name begins it.

    >>> clause("The soup was cold.")
    'the soup was cold'
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
    """The questions of a task, each after some answered examples (Brown et al. 2020, section 2.4).

    Args:
        template: the wording.
        rows: what is asked.
        examples: labelled rows to draw from.
        shots: how many examples stand before each question. Fewer shots are the last ones of more.
        seed: the examples are drawn anew for each question by it.

    Raises:
        CourseError: if there are fewer examples than shots.
    """
    if shots > len(examples):
        raise CourseError(f"{shots} shots cannot be drawn from {len(examples)} examples.")
    worded = []
    for number, row in enumerate(rows):
        rng = random.Random(f"{seed}/{number}")
        drawn: list[int] = []
        while len(drawn) < shots:
            candidate = rng.randrange(len(examples))
            if candidate not in drawn:
                drawn.append(candidate)
        # Reversed, the last examples before the question are the same for any number of shots.
        worded.append(template.ask(row, [examples[i] for i in reversed(drawn)]))
    return worded


class Score(NamedTuple):
    """How probable a continuation is."""

    logprob: float  # sum over its tokens, in nats
    tokens: int


class Encoded(NamedTuple):
    """A prompt with one continuation."""

    ids: list[int]
    first: int  # the place of the first token that is scored


def encode(
    tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[str]
) -> list[Encoded]:
    """The tokens of each prompt and its continuation, tokenized together behind the start token.

    White space at the prompt's end goes to the continuation, where byte-level tokens have it. A
    token that straddles the boundary ("boo" + "k") counts whole, as the first of the continuation;
    evaluation harnesses lose it.

    Raises:
        CourseError: if a continuation is empty, or holds what the tokenizer does not know.
    """
    start = start_tokens(tokenizer)
    unknown = tokenizer.vocab.unk
    known = tokenizer.ids([prompt.rstrip() for prompt in prompts], special=False)
    joined = [prompt + text for prompt, text in zip(prompts, continuations, strict=True)]
    whole = tokenizer.ids(joined, special=False)
    rows = []
    columns = zip(prompts, continuations, known, whole, strict=True)
    for prompt, continuation, prompt_ids, ids in columns:
        first = _common([prompt_ids, ids])
        if not continuation.strip() or first == len(ids):
            raise CourseError(
                f"There is nothing to score after {prompt[-40:]!r}: the continuation is empty."
            )
        if unknown is not None and unknown in ids[first:]:
            raise CourseError(
                f"The tokenizer does not know all of {continuation!r}, so the model cannot"
                " generate it."
            )
        rows.append(Encoded([*start, *ids], first + len(start)))
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
    """log P(continuation | prompt) of each prompt's continuations.

    The model reads once what all continuations of a prompt have in common. Then it reads the rest
    of each, with the cached keys and values.

    Args:
        model: causal (`heads.LM`).
        tokenizer: the model's.
        prompts: one a question; see `encode` for white space at the end.
        continuations: of each prompt, at least one.
        batch: how many texts are read at once.

    Raises:
        CourseError: if a prompt has no continuation, or a text is too long or cannot be encoded.
    """
    if not all(map(len, continuations)):
        raise CourseError(
            "A question has no choices to score; a free answer is generated by `complete`."
        )
    config = causal_config(model)
    groups = _encode_groups(tokenizer, prompts, continuations)
    for prompt, rows in zip(prompts, groups, strict=True):
        longest = max(len(row.ids) for row in rows)
        check_positions(
            config, longest - 1, f"The prompt that begins {prompt[:40]!r} and its continuation"
        )
    scores: list[list[Score]] = [[] for _ in groups]
    with evaluating(model):
        for numbers in _batches(groups, batch):
            of_batch = _score_batch(model, config.layers, [groups[i] for i in numbers])
            for number, of_group in zip(numbers, of_batch, strict=True):
                scores[number] = of_group
    return scores


def _encode_groups(
    tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> list[list[Encoded]]:
    """The rows of each prompt, all tokenized in one call."""
    repeated: list[str] = []
    flat: list[str] = []
    for prompt, texts in zip(prompts, continuations, strict=True):
        repeated += [prompt] * len(texts)
        flat += texts
    rows = iter(encode(tokenizer, repeated, flat))
    return [list(islice(rows, len(texts))) for texts in continuations]


def _score_batch(
    model: nn.Module, layers: int, groups: Sequence[Sequence[Encoded]]
) -> list[list[Score]]:
    """The scores of some groups of rows; a group's rows begin alike. Letters: G groups, R rows."""
    device = next(model.parameters()).device
    cache = KVCache(layers)

    # 1. Read what the rows of a group have in common.
    shared = [_shared_length(rows) for rows in groups]
    beginnings = [rows[0].ids[:length] for rows, length in zip(groups, shared, strict=True)]
    padded = pad_to_longest(beginnings, 0, left=True)
    ids = padded["ids"].to(device)  # G P
    is_read = padded["attention_mask"].to(device)
    if ids.shape[1]:
        no_logits = torch.zeros_like(ids, dtype=torch.bool)
        model(ids, attention_mask=is_read, cache=cache, loss_mask=no_logits)

    # 2. Give every row the keys and values of its group.
    sizes = torch.tensor([len(rows) for rows in groups], device=device)
    owner = torch.arange(len(groups), device=device).repeat_interleave(sizes)  # R: a row's group
    cache.reorder(owner)

    # 3. Read the rest of every row. Position t predicts the token at t + 1.
    tails = []
    firsts = []
    for rows, length in zip(groups, shared, strict=True):
        tails += [row.ids[length:] for row in rows]
        firsts += [row.first - length for row in rows]
    padded = pad_to_longest(tails, 0)
    ids = padded["ids"].to(device)  # R T
    is_token = padded["attention_mask"].to(device)
    places = torch.arange(1, ids.shape[1], device=device)
    is_scored = is_token[:, 1:] & (places >= torch.tensor(firsts, device=device)[:, None])
    attention_mask = torch.cat([is_read[owner], is_token[:, :-1]], dim=1)
    logits = model(ids[:, :-1], attention_mask=attention_mask, cache=cache, loss_mask=is_scored)

    # 4. Add up the log probabilities of each row's scored tokens.
    targets = ids[:, 1:][is_scored]  # N
    log_probs = logits.float().log_softmax(dim=-1).gather(1, targets[:, None])[:, 0]
    by_row = log_probs.split(is_scored.sum(dim=1).tolist())
    row_scores = iter(Score(float(part.double().sum()), len(part)) for part in by_row)
    return [list(islice(row_scores, len(rows))) for rows in groups]


def _shared_length(rows: Sequence[Encoded]) -> int:
    """How many tokens are read once for all rows.

    The last token before the first scored one is read with the rest, for it predicts that one.
    """
    common = _common([row.ids for row in rows])
    return min(common, min(row.first for row in rows) - 1)


def rank(
    model: nn.Module,
    tokenizer: Tokenizer,
    asked: Sequence[Question],
    *,
    normalise: Normalise = "sum",
    batch: int = 32,
) -> list[Float[Tensor, " C"]]:
    """How good a causal model finds each choice of each question, in nats.

    Args:
        model: causal (`heads.LM`).
        tokenizer: the model's.
        asked: questions with choices.
        normalise: "sum", the log probability; "token" or "character", its mean over those;
            "unconditional", the log of P(choice | question) / P(choice | "Answer:"), without the
            advantage of frequent choices (Brown et al. 2020, section 2.4).
        batch: how many texts are read at once.

    Raises:
        CourseError: if a question has no choices, or there is no such `normalise`.
    """
    if normalise not in get_args(Normalise):
        raise CourseError(
            f"There is no normalise={normalise!r}; there are sum, token, character and"
            " unconditional."
        )
    choices = [question.choices for question in asked]
    scores = score(model, tokenizer, [question.left for question in asked], choices, batch=batch)
    logprobs = [_logprobs(of_question) for of_question in scores]  # C each
    if normalise == "token":
        sizes = [[choice.tokens for choice in of_question] for of_question in scores]
        return [p / torch.tensor(size) for p, size in zip(logprobs, sizes, strict=True)]
    if normalise == "character":
        sizes = [[len(choice.strip()) for choice in of_question] for of_question in choices]
        return [p / torch.tensor(size) for p, size in zip(logprobs, sizes, strict=True)]
    if normalise == "unconditional":
        # The white space that the question ends in belongs to the choice.
        bare = ["Answer:" + q.left[len(q.left.rstrip()) :] for q in asked]
        priors = score(model, tokenizer, bare, choices, batch=batch)
        return [p - _logprobs(prior) for p, prior in zip(logprobs, priors, strict=True)]
    return logprobs


def _logprobs(scores: Sequence[Score]) -> Float[Tensor, " C"]:
    """The log probabilities alone."""
    return torch.tensor([choice.logprob for choice in scores])


def complete(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    stop: Sequence[str] = (),
    max_new_tokens: int = 32,
    batch: int = 32,
) -> list[str]:
    """What a model writes after each prompt, greedily.

    Args:
        model: causal (`heads.LM`), or an encoder-decoder, which reads the prompts as its sources.
        tokenizer: the model's.
        prompts: read without white space at their ends.
        stop: texts that end an answer, as the end token does.
        max_new_tokens: of each answer, at most.
        batch: how many texts are read at once.
    """
    vocab = tokenizer.vocab
    device = next(model.parameters()).device
    rows = encode_prompts(model, tokenizer, [prompt.rstrip() for prompt in prompts])
    # Prompts of like length are read together: that takes less padding.
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    texts = [""] * len(rows)
    for begin in range(0, len(order), batch):
        numbers = order[begin : begin + batch]
        ids, attention_mask = left_pad([rows[i] for i in numbers], vocab.pad or 0)
        out = generate(
            model,
            ids.to(device),
            attention_mask=attention_mask.to(device),
            max_new_tokens=max_new_tokens,
            eos=end_token(model, tokenizer),
            pad=vocab.pad,
        )
        begin = 1 if isinstance(model, Seq2SeqLM) else ids.shape[1]  # behind the start, or prompt
        for number, new in zip(numbers, out[:, begin:].tolist(), strict=True):
            texts[number] = until(tokenizer.decode(new), stop).strip()
    return texts


class Answers(NamedTuple):
    """Numbers of choices; or texts, and for each all texts that are right."""

    predictions: list[Any]
    truth: list[Any]


def answer(
    model: nn.Module,
    tokenizer: Tokenizer,
    rows: Iterable[Row],
    template: Template,
    *,
    max_new_tokens: int = 32,
    **shown: Any,
) -> Answers:
    """Ask a causal model every row of a task in words (Brown et al. 2020, section 2.4).

    Args:
        model: causal (`heads.LM`).
        tokenizer: the model's.
        rows: of the task.
        template: their wording. With choices the likeliest is the answer. A free answer is what the
            model writes greedily, up to what stands behind the gap or between the examples.
        max_new_tokens: of a free answer, at most.
        shown: examples, shots and seed of `questions`.

    Raises:
        CourseError: if there are no rows.
    """
    asked = questions(template, rows, **shown)
    if not asked:
        raise CourseError("There are no rows to ask about.")
    if asked[0].choices:
        best = [int(scores.argmax()) for scores in rank(model, tokenizer, asked)]
        return Answers(best, [question.label for question in asked])
    stop = [mark for mark in (asked[0].right.strip(), template.between) if mark.strip(" ")]
    prompts = [question.left for question in asked]
    texts = complete(model, tokenizer, prompts, stop=stop, max_new_tokens=max_new_tokens)
    return Answers(texts, [list(question.answers) for question in asked])


def _common(rows: Sequence[list[int]]) -> int:
    """How many tokens the rows have in common at the beginning."""
    length = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length


def _batches(groups: Sequence[Sequence[Encoded]], batch: int) -> Iterator[list[int]]:
    """Numbers of groups of like length, together at most `batch` rows, or one group's."""
    longest = [max(len(row.ids) for row in rows) for rows in groups]
    numbers: list[int] = []
    size = 0
    for number in sorted(range(len(groups)), key=lambda i: longest[i]):
        if numbers and size + len(groups[number]) > batch:
            yield numbers
            numbers = []
            size = 0
        numbers.append(number)
        size += len(groups[number])
    if numbers:
        yield numbers
