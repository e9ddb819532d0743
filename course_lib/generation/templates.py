"""Make prompts of the rows of a task: a template is filled in, after few-shot examples.

    rows       {"text": "I slept.", "label": 0}
    Template   "{text} It was {answer}." with the words bad and good for the labels 0 and 1
    Question   left "I slept. It was ", right ".", choices bad and good, label 0

A language model reads `left`. prompting.py ranks the choices, or lets the model generate the
answer. With one example (one shot), `left` is "I sang. It was good. I slept. It was ".
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from course_lib.data.columns import Row
from course_lib.errors import CourseError

SLOT = "{answer}"
# A sentence that begins with one of these words does not begin with a name. So `clause` can write
# its first letter small. The list is short: a sentence with another first word keeps its capital.
NOT_A_NAME = re.compile(
    r"(a|an|the|this|that|these|those|it|he|she|they|we|you|there"
    r"|his|her|their|my|our|your|its|every|some|no|one|two|last|next"
    r"|in|on|at|by|to|with|from|for|of|after|before|during|while|when)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Question:
    """A prompt that ends before the answer, and the right answer.

    Args:
        left: the text before the answer. The model reads only this.
        right: the text after the answer.
        choices: the possible answers; empty if the model may generate any text.
        answers: all texts that count as right.
        label: the index of the right choice; -1 if there are no choices.
    """

    left: str
    right: str
    choices: tuple[str, ...]
    answers: tuple[str, ...]
    label: int = -1


@dataclass(frozen=True)
class Template:
    """The text that turns a row of a task into a prompt.

    Args:
        text: the prompt, as in "{text} It was {answer}.". A name in braces is replaced by the
            row's column of that name, {answer} by the answer. {pair:clause} turns the sentence in
            the column `pair` into a part of a longer sentence (see `clause`).
        words: the answers for the labels 0, 1, ... Without words, a row's `choices` are its
            answers. A row without choices has a free answer, in the column `answers`, `target` or
            `answer`.
        between: the text between the instruction, the examples and the question.
        instruction: the text at the beginning of every prompt.

    Raises:
        CourseError: {answer} does not occur exactly once in the text.

    >>> template = Template("{text} It was {answer}.", words=("bad", "good"))
    >>> template.show({"text": "I slept.", "label": 0})
    'I slept. It was bad.'
    >>> template.ask({"text": "I sang.", "label": 1}, [{"text": "I slept.", "label": 0}]).left
    'I slept. It was bad. I sang. It was '
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
        """The question of a row, after the instruction and the answered examples.

        Brown et al. 2020, figure 2.1.
        """
        left, right = self._fill(row)
        parts = [self.instruction] if self.instruction else []
        parts += [self.show(example) for example in examples]
        parts.append(left)
        choices, answers, label = self._answers(row)
        return Question(self.between.join(parts), right, choices, answers, label)

    def show(self, row: Row) -> str:
        """The row with its right answer: one few-shot example."""
        left, right = self._fill(row)
        _, answers, _ = self._answers(row)
        return left + answers[0] + right

    def _fill(self, row: Row) -> list[str]:
        """The texts before and after the answer, with the row's values in them."""
        values = {
            name: _Column(value) if isinstance(value, str) else value for name, value in row.items()
        }
        try:
            # Split first, because a row's own text may contain "{answer}".
            return [part.format_map(values) for part in self.text.split(SLOT)]
        except KeyError as error:
            raise CourseError(
                f"The template needs the column {error}; the row has {', '.join(row)}."
            ) from None

    def _answers(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """The choices, the right answers, and the index of the right choice, or -1 without one."""
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
        if row.get("answers"):
            return tuple(row["answers"])
        for name in ("target", "answer"):
            if name in row:
                return (row[name],)
        raise CourseError(
            "A row has neither choices nor an answer; give the template words for its classes."
        )


class _Column(str):
    """A column's text. Python's `format` calls `__format__` for "{name:clause}"."""

    def __format__(self, format_spec: str) -> str:
        return clause(self) if format_spec == "clause" else super().__format__(format_spec)


def clause(sentence: str) -> str:
    """A sentence as a part of a longer sentence.

    It loses its full stop. Its first letter becomes small, unless the first word may be a name.

    >>> clause("The soup was cold.")
    'the soup was cold'
    >>> clause("Anna was cold.")
    'Anna was cold'
    """
    sentence = sentence.strip().rstrip(".!?")
    return sentence[:1].lower() + sentence[1:] if NOT_A_NAME.match(sentence) else sentence


def questions(
    template: Template,
    rows: Iterable[Row],
    *,
    examples: Sequence[Row] = (),
    shots: int = 0,
    seed: int = 0,
) -> list[Question]:
    """The questions of a task, each after its own examples (Brown et al. 2020, section 2.4).

    Args:
        template: the text of each question and example.
        rows: the rows to ask about.
        examples: the labelled rows from which the few-shot examples are drawn.
        shots: the number of examples before each question.
        seed: the seed of the draws. Each question draws its own examples.

    Raises:
        CourseError: there are fewer examples than shots.
    """
    if shots > len(examples):
        raise CourseError(f"{shots} shots cannot be drawn from {len(examples)} examples.")
    prompts = []
    for number, row in enumerate(rows):
        rng = random.Random(f"{seed}/{number}")
        drawn: list[int] = []
        while len(drawn) < shots:
            candidate = rng.randrange(len(examples))
            if candidate not in drawn:
                drawn.append(candidate)
        # The first drawn example is directly before the question. So with two shots, the example
        # before the question is the same as with one shot.
        prompts.append(template.ask(row, [examples[i] for i in reversed(drawn)]))
    return prompts
