"""Solve tasks by prompts, without training: rank given choices, or generate a free answer.

    template = Template("{text} In short, it was {answer}.", words=("bad", "good"))
    task = questions(template, rows, examples=training_rows, shots=4)
    values = rank(model, tokenizer, task)         a value for "bad" and one for "good" in each row
    answer(model, tokenizer, rows, template)      the better one of each row, beside the right one

`questions` and `Template` are in templates.py: they make prompts of a task's rows. `score` is in
scoring.py: it gives the log probability of any continuation. `complete` generates free answers.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.data.columns import Row
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation.sampling import generate
from course_lib.generation.scoring import Encoded, Score, encode, score
from course_lib.generation.state import left_pad
from course_lib.generation.templates import Question, Template, clause, questions
from course_lib.generation.text import encode_prompts, end_token, until
from course_lib.model.seq2seq import Seq2SeqLM

__all__ = [
    "Answers",
    "Encoded",
    "Normalise",
    "Question",
    "Score",
    "Template",
    "answer",
    "clause",
    "complete",
    "encode",
    "questions",
    "rank",
    "score",
]

Normalise = Literal["sum", "token", "character", "unconditional"]


def rank(
    model: nn.Module,
    tokenizer: Tokenizer,
    task: Sequence[Question],
    *,
    normalise: Normalise = "sum",
    batch: int = 32,
) -> list[Float[Tensor, " C"]]:
    """A value, in nats, for each of the C choices of each question. The largest is the answer.

    Args:
        model: a causal model (`heads.LM`).
        tokenizer: the model's tokenizer.
        task: questions with choices.
        normalise: "sum" is the log probability of the choice. "token" and "character" divide it by
            the choice's number of tokens or characters. "unconditional" subtracts
            log P(choice | "Answer:"), so that a frequent choice has no advantage (Brown et al.
            2020, section 2.4).
        batch: the largest number of choices in a batch.

    Raises:
        CourseError: a question has no choices, or there is no such `normalise`.
    """
    if normalise not in get_args(Normalise):
        raise CourseError(
            f"There is no normalise={normalise!r}; there are sum, token, character and"
            " unconditional."
        )
    choices = [question.choices for question in task]
    lefts = [question.left for question in task]
    scores = score(model, tokenizer, lefts, choices, batch=batch)
    logprobs = [_logprobs(choice_scores) for choice_scores in scores]  # C each
    if normalise == "token":
        sizes = [[choice.tokens for choice in choice_scores] for choice_scores in scores]
        return [p / torch.tensor(size) for p, size in zip(logprobs, sizes, strict=True)]
    if normalise == "character":
        sizes = [[len(choice.strip()) for choice in texts] for texts in choices]
        return [p / torch.tensor(size) for p, size in zip(logprobs, sizes, strict=True)]
    if normalise == "unconditional":
        # `encode` gives white space at the end of a prompt to the choice, so it follows "Answer:"
        # too.
        bare = ["Answer:" + left[len(left.rstrip()) :] for left in lefts]
        priors = score(model, tokenizer, bare, choices, batch=batch)
        return [p - _logprobs(prior) for p, prior in zip(logprobs, priors, strict=True)]
    return logprobs


def complete(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    stop: Sequence[str] = (),
    max_new_tokens: int = 32,
    batch: int = 32,
) -> list[str]:
    """The text that a model generates after each prompt, by greedy decoding.

    Args:
        model: a causal model (`heads.LM`). Or an encoder-decoder, which reads the prompts as its
            sources.
        tokenizer: the model's tokenizer.
        prompts: the texts to read. White space at their ends is removed.
        stop: strings that end a text; the text stops before them. The end token always ends it.
        max_new_tokens: the largest number of tokens to write.
        batch: the largest number of prompts in a batch.
    """
    vocab = tokenizer.vocab
    device = next(model.parameters()).device
    rows = encode_prompts(model, tokenizer, [prompt.rstrip() for prompt in prompts])
    # Prompts of similar length are in one batch, so that there is little padding.
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    texts = [""] * len(rows)
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        ids, attention_mask = left_pad([rows[i] for i in numbers], vocab.padding_id)
        out = generate(
            model,
            ids.to(device),
            attention_mask=attention_mask.to(device),
            max_new_tokens=max_new_tokens,
            eos=end_token(model, tokenizer),
            pad=vocab.pad,
        )
        # A causal model's rows begin with the prompt, an encoder-decoder's with one start token.
        prompt_length = 1 if isinstance(model, Seq2SeqLM) else ids.shape[1]
        new_ids = out[:, prompt_length:].tolist()
        for number, row_ids in zip(numbers, new_ids, strict=True):
            texts[number] = until(tokenizer.decode(row_ids), stop).strip()
    return texts


class Answers(NamedTuple):
    """A model's answers to a task, and the right ones.

    Attributes:
        predictions: for questions with choices, the index of the chosen one; else the model's text.
        truth: for questions with choices, the index of the right one; else all right texts.
    """

    predictions: list[int] | list[str]
    truth: list[int] | list[list[str]]


def answer(
    model: nn.Module,
    tokenizer: Tokenizer,
    rows: Iterable[Row],
    template: Template,
    *,
    examples: Sequence[Row] = (),
    shots: int = 0,
    seed: int = 0,
    max_new_tokens: int = 32,
) -> Answers:
    """A causal model's answers to all rows of a task (Brown et al. 2020, section 2.4).

    With choices, the most probable one is the answer. Without, the answer is what the model
    generates. It ends where the template's text after {answer} begins, or the text between two
    examples.

    Args:
        model: a causal model (`heads.LM`).
        tokenizer: the model's tokenizer.
        rows: the rows of the task, all with choices or all without.
        template: the text of each question and example.
        examples: the labelled rows from which the few-shot examples are drawn.
        shots: the number of examples before each question.
        seed: the seed of the draws.
        max_new_tokens: the largest number of tokens in a free answer.

    Raises:
        CourseError: there are no rows, or `questions`, `rank` or `complete` refuses them.
    """
    task = questions(template, rows, examples=examples, shots=shots, seed=seed)
    if not task:
        raise CourseError("There are no rows to ask about.")
    if task[0].choices:
        chosen = [int(values.argmax()) for values in rank(model, tokenizer, task)]
        return Answers(chosen, [question.label for question in task])

    # `between` is often a newline, after which the model would invent another example. If it is a
    # space, it is no stop string, because every answer would end after its first word. The text
    # after the answer is taken from the first question. All are assumed to have the same.
    candidates = (task[0].right.strip(), template.between)
    stop = [text for text in candidates if text.strip(" ")]
    lefts = [question.left for question in task]
    texts = complete(model, tokenizer, lefts, stop=stop, max_new_tokens=max_new_tokens)
    return Answers(texts, [list(question.answers) for question in task])


def _logprobs(scores: Sequence[Score]) -> Float[Tensor, " C"]:
    return torch.tensor([choice.logprob for choice in scores])
