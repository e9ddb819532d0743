"""Tasks asked in words, without training: prompts, given answers scored, free answers said.

    template = Template("{text} In short, it was {answer}.", words=("bad", "good"))
    result = evaluate(model, tokenizer, rows, template, examples=training_rows, shots=4)
    result.score, result.predictions

`templates.py` words rows as questions; `scoring.py` says how likely a continuation is; this file decides and counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib import metrics
from course_lib.errors import CourseError
from course_lib.generate import generate, left_pad
from course_lib.prompting.scoring import Score, Unit, fill, score
from course_lib.prompting.templates import Question, Row, Template, clause, questions, world_template
from course_lib.seq2seq import Seq2SeqLM
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer

__all__ = [
    "Prompted",
    "Question",
    "Score",
    "Template",
    "clause",
    "complete",
    "evaluate",
    "fill",
    "label_words",
    "questions",
    "rank",
    "score",
    "world_template",
]
Normalise = Literal[Unit, "unconditional"]


@dataclass(frozen=True)
class Prompted:
    """What a model answered. predictions, truth: numbers of choices, or texts (truth: all that count). ranks: of each
    question the choices' scores, as `rank` gives them; none where answers are free."""

    score: float
    metric: str
    predictions: list[Any]
    truth: list[Any]
    questions: list[Question] = field(repr=False)
    ranks: list[Tensor] = field(repr=False)

    def by(self, metric: str) -> float:
        """The score by another of `metrics.METRICS`: "bleu" for a translation, for instance."""
        return metrics.METRICS[_metric(metric)](self.predictions, self.truth)


def evaluate(
    model: nn.Module,
    tokenizer: Tokenizer,
    rows: Iterable[Row],
    template: Template,
    *,
    examples: Sequence[Row] = (),
    shots: int = 0,
    seed: int = 0,
    random_labels: bool = False,
    normalise: Normalise = "sum",
    answer_context: str = "Answer:",
    metric: str | None = None,
    batch: int = 32,
    start: bool = True,
    max_new_tokens: int = 32,
) -> Prompted:
    """Ask a model every row of a task in words and count its answers (Brown et al. 2020, section 2.4).

    Where there are choices, the likeliest is the answer. Otherwise the model continues the prompt greedily, up to what
    stands behind the gap in the template or between its examples; an answer can therefore not hold that.

    Args:
        model: `heads.LM`, `seq2seq.Seq2SeqLM`, or, for choices, `heads.MLM` or `heads.Pretraining`.
        rows: a `datasets.Dataset` or a list, with the columns that the template names.
        examples, shots, seed, random_labels: see `questions`.
        normalise, answer_context: see `rank`. batch, start: see `score`.
        metric: a name in `metrics.METRICS`; by default accuracy of choices, exact match of free answers.
        max_new_tokens: the longest free answer.

    Raises:
        CourseError: rows that the template does not fit, too many shots for the model's positions.
    """
    asked = questions(template, rows, examples=examples, shots=shots, seed=seed, random_labels=random_labels)
    free = not asked[0].choices
    name = _metric(metric or ("exact_match" if free else "accuracy"))
    if free:
        stop = [mark for mark in (asked[0].right.strip(), template.between) if mark.strip(" ")]
        prompts = [q.left for q in asked]
        predictions: list[Any] = complete(
            model, tokenizer, prompts, stop=stop, max_new_tokens=max_new_tokens, batch=batch, start=start
        )
        truth: list[Any] = [list(q.answers) for q in asked]
        ranks = []
    else:
        options: dict[str, Any] = {"normalise": normalise, "answer_context": answer_context}
        ranks = rank(model, tokenizer, asked, **options, batch=batch, start=start)
        predictions, truth = [int(scores.argmax()) for scores in ranks], [q.label for q in asked]
    return Prompted(metrics.METRICS[name](predictions, truth), name, predictions, truth, asked, ranks)


def rank(
    model: nn.Module,
    tokenizer: Tokenizer,
    asked: Sequence[Question],
    *,
    normalise: Normalise = "sum",
    answer_context: str = "Answer:",
    batch: int = 32,
    start: bool = True,
) -> list[Float[Tensor, " C"]]:
    """How good the model finds each choice of each question, in nats; the highest is its answer.

    A causal model reads what stands before the gap, a masked one both sides.

    Args:
        normalise: "sum", the log probability; "token" or "character", its mean over those, so that long choices are not
            at a disadvantage; "unconditional", the log of P(choice | question) / P(choice | answer_context), so that
            frequent ones are not at an advantage (Brown et al. 2020, section 2.4).

    Raises:
        CourseError: a question without choices; what `score` and `fill` raise.
    """
    if not asked or not all(q.choices for q in asked):
        raise CourseError("Choices are ranked; a question has none. Free answers are said by `complete`.")
    found = _scores(model, tokenizer, asked, batch, start)
    if normalise != "unconditional":
        return [torch.tensor([choice.per(normalise) for choice in some]) for some in found]
    gaps = [q.left[len(q.left.rstrip()) :] for q in asked]
    pairs = sorted({(gap, choice) for gap, q in zip(gaps, asked, strict=True) for choice in q.choices})
    bare = [Question(answer_context + gap, "", (choice,), ()) for gap, choice in pairs]
    expected = dict(
        zip(pairs, (some[0].logprob for some in _scores(model, tokenizer, bare, batch, start)), strict=True)
    )
    return [
        torch.tensor([s.logprob - expected[gap, choice] for s, choice in zip(some, q.choices, strict=True)])
        for some, q, gap in zip(found, asked, gaps, strict=True)
    ]


def label_words(
    model: nn.Module, tokenizer: Tokenizer, asked: Sequence[Question], *, normalise: Normalise = "sum", batch: int = 32,
    start: bool = True,
) -> Float[Tensor, "N C"]:  # fmt: skip
    """Class probabilities from the words that stand for the classes: what the model thinks if it must say one of them.

    The softmax of `rank` over the choices, of which all questions have the same number (Schick and Schütze 2021,
    section 3.1, for masked models).
    """
    if len({len(q.choices) for q in asked}) > 1:
        raise CourseError("Label words are the same number for all questions; some have more choices than others.")
    return torch.stack(rank(model, tokenizer, asked, normalise=normalise, batch=batch, start=start)).softmax(dim=-1)


def complete(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    stop: Sequence[str] = (),
    max_new_tokens: int = 32,
    batch: int = 32,
    start: bool = True,
) -> list[str]:
    """What the model says after each prompt, greedily, up to the first of the texts in `stop` or its end token.

    Args:
        model: `heads.LM` or `seq2seq.Seq2SeqLM`. prompts: white space at the end is left out, because byte-level tokens
            begin with their space. start: the vocabulary's start token stands in front, as in `score`.

    Raises:
        CourseError: an empty prompt where no start token stands in front; more positions than the model has.
    """
    if batch < 1:
        raise CourseError(f"batch is {batch}; it must be at least 1.")
    vocab, sources = tokenizer.vocab, isinstance(model, Seq2SeqLM)
    rows = tokenizer.ids([prompt.rstrip() for prompt in prompts], special=sources)
    first = next((i for i in (vocab.bos, vocab.cls, vocab.eos) if i is not None), None)
    if start and first is not None and not sources:
        rows = [[first, *row] for row in rows]
    device = next(model.parameters()).device
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    said = [""] * len(rows)
    for begin in range(0, len(order), batch):
        numbers = order[begin : begin + batch]
        ids, keep = (x.to(device) for x in left_pad([rows[i] for i in numbers], vocab.pad or 0))
        new = generate(model, ids, keep=keep, max_new_tokens=max_new_tokens, eos=vocab.eos, pad=vocab.pad)
        for i, row in zip(numbers, new[:, 1 if sources else ids.shape[1] :].tolist(), strict=True):
            said[i] = _until(tokenizer.decode(row), stop)
    return said


def _scores(
    model: nn.Module, tokenizer: Tokenizer, asked: Sequence[Question], batch: int, start: bool
) -> list[list[Score]]:
    choices, stack = [q.choices for q in asked], getattr(model, "stack", None)
    if isinstance(stack, Stack) and not stack.config.causal:
        return fill(model, tokenizer, [(q.left, q.right) for q in asked], choices, batch=batch)
    return score(model, tokenizer, [q.left for q in asked], choices, batch=batch, start=start)


def _until(text: str, stop: Sequence[str]) -> str:
    for mark in stop:
        text = text.split(mark, 1)[0]
    return text.strip()


def _metric(name: str) -> str:
    if name not in metrics.METRICS:
        raise CourseError(f"There is no metric {name!r}; there are {', '.join(metrics.METRICS)}.")
    return name
