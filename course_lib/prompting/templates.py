"""From a task's row to a text with a gap: `Template`, zero- and few-shot prompts; templates for the world's tasks."""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from course_lib.errors import CourseError

Row = Mapping[str, Any]
SLOT = "{answer}"
# A sentence that begins with one of these has no name in front and may stand inside another.
LOWERED = re.compile(
    r"(a|an|the|this|that|these|those|it|he|she|they|we|you|there|his|her|their|my|our|your|its|in|on|at|by|to|with|from|"
    r"for|of|after|before|during|while|when|last|next|every|some|no|one|two)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Question:
    """A text with a gap. left, right: what stands before and after it; a decoder reads `left` only.

    choices: the possible answers, of which number `label` is right; none if the answer is free. answers: all texts that
    count as right.
    """

    left: str
    right: str
    choices: tuple[str, ...]
    answers: tuple[str, ...]
    label: int = -1


@dataclass(frozen=True)
class Template:
    """How a row is worded: one text with the row's columns and the place of the answer.

    Args:
        text: "{text} In short, it was {answer}."; `{pair:clause}` is the column as a part of a sentence: without its
            full stop, in lower case where no name begins it.
        words: what stands for the classes 0, 1, ... Without them the answers are the row's `choices`; without these,
            its `target` or `answer` is free text.
        between: stands between the instruction, the examples and the question.
        instruction: stands before everything, once.

    Raises:
        CourseError: no or several answers in the text; braces that hold no name.

    >>> Template("{text} It was {answer}.", words=("bad", "good")).show({"text": "I slept.", "label": 0})
    'I slept. It was bad.'
    """

    text: str
    words: tuple[str, ...] = ()
    between: str = " "
    instruction: str = ""

    def __post_init__(self) -> None:
        if self.text.count(SLOT) != 1:
            raise CourseError(f"A template says where the answer stands, once, by {SLOT}; {self.text!r} does not.")
        try:
            named = all(name is None or name.isidentifier() for _, name, _, _ in Formatter().parse(self.text))
        except ValueError:
            named = False
        if not named:
            raise CourseError(f"In the template {self.text!r} braces hold a column's name; write a brace itself twice.")

    def ask(self, row: Row, examples: Iterable[Row] = ()) -> Question:
        """The row's question, after the instruction and the answered examples (Brown et al. 2020, figure 2.1).

        Raises:
            CourseError: a column is missing, a label has no word.
        """
        left, right = (self._fill(part, row) for part in self.text.split(SLOT))
        before = [self.instruction] if self.instruction else []
        shown = [self.show(example) for example in examples]
        choices, answers, label = self._answers(row)
        return Question(self.between.join([*before, *shown, left]), right, choices, answers, label)

    def show(self, row: Row) -> str:
        """The row with its right answer, as an example is shown."""
        left, right = (self._fill(part, row) for part in self.text.split(SLOT))
        return left + self._answers(row)[1][0] + right

    def _answers(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        choices = self.words or tuple(row.get("choices", ()))
        if not choices:
            named = next((row[name] for name in ("target", "answer") if name in row), None)
            answers = tuple(row.get("answers") or ([] if named is None else [named]))
            if not answers:
                raise CourseError("A row has neither choices nor an answer; give the template words for its classes.")
            return (), answers, -1
        label = row.get("label")
        if not isinstance(label, int) or not 0 <= label < len(choices):
            raise CourseError(f"The label {label!r} is none of the {len(choices)} choices {', '.join(choices)}.")
        return choices, (choices[label],), label

    def _fill(self, part: str, row: Row) -> str:
        try:
            return part.format_map(
                {name: _Column(value) if isinstance(value, str) else value for name, value in row.items()}
            )
        except KeyError as error:
            raise CourseError(f"The template needs the column {error}; the row has {', '.join(row)}.") from None


class _Column(str):
    """A column's text, which `{name:clause}` turns into a clause."""

    def __format__(self, how: str) -> str:
        return clause(self) if how == "clause" else super().__format__(how)


def clause(sentence: str) -> str:
    """A sentence as a part of another.

    >>> clause("The boat was lost."), clause("Anna lost the boat.")
    ('the boat was lost', 'Anna lost the boat')
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
    random_labels: bool = False,
) -> list[Question]:
    """The questions of a task: zero-, one- or few-shot.

    Args:
        examples, shots: each question is preceded by so many of these rows, drawn anew for each by `seed` (Brown et
            al. 2020, section 2.4); of fewer shots they are the last ones of more.
        random_labels: the examples' answers are drawn from the choices: the control of Min et al. 2022.

    Raises:
        CourseError: no rows, fewer examples than shots, random labels where there are no choices.
    """
    rows = list(rows)
    if not rows:
        raise CourseError("There are no rows to ask about.")
    if not 0 <= shots <= len(examples):
        raise CourseError(f"{shots} shots cannot be drawn from {len(examples)} examples.")
    asked = []
    for number, row in enumerate(rows):
        rng = random.Random(f"{seed}/{number}")
        drawn: list[int] = []
        while len(drawn) < shots:
            if (i := rng.randrange(len(examples))) not in drawn:
                drawn.append(i)
        shown = [examples[i] for i in reversed(drawn)]
        if random_labels:
            shown = [_mislabelled(template, row, rng) for row in shown]
        asked.append(template.ask(row, shown))
    return asked


def _mislabelled(template: Template, row: Row, rng: random.Random) -> Row:
    choices = template.words or row.get("choices", ())
    if not choices:
        raise CourseError("Random labels need choices to draw from; the answers of this task are free.")
    return {**row, "label": rng.randrange(len(choices))}


YES_NO = ("Yes", "No")
_SENTIMENT = tuple(
    Template(text, words)
    for text in ("{text} In short, it was {answer}.", "{text} It was {answer}.", "{text} They found it {answer}.")
    for words in (("bad", "good"), ("terrible", "wonderful"))
)
_NLI = (
    Template("{text} Is it true that {pair:clause}? {answer}.", ("Yes", "Perhaps", "No")),
    Template("{text} {pair} {answer}.", ("That is true", "That may be", "That is not true")),
)
_RTE = (
    Template("{text} Is it true that {pair:clause}? {answer}.", YES_NO),
    Template("{text} {pair} {answer}.", ("That is true", "That is not true")),
)
_NEXT = (Template("{text} {answer}"),)
_WORD = (Template("{text} {answer}."),)

# Ways to word the world's tasks, the plainest first.
WORLD: dict[str, tuple[Template, ...]] = {
    "acceptability": (Template("{text} This sentence is {answer}.", ("wrong", "right")),),
    "sentiment": _SENTIMENT,
    "sentiment-food": _SENTIMENT,
    "sentiment-film": _SENTIMENT,
    "paraphrase": (
        Template("{text} {pair} They say {answer}.", ("different things", "the same")),
        Template("{text} In other words, {pair:clause}? {answer}.", ("No", "Yes")),
    ),
    "nli": _NLI,
    "nli-mismatched": _NLI,
    "rte": _RTE,
    "qnli": (Template("{text} {pair} Is that an answer? {answer}.", YES_NO),),
    "wic": (Template("{text} {pair} Here {word} means {answer}.", ("different things", "the same")),),
    "pronouns": _NEXT,
    "continuation": _NEXT,
    "cloze": _WORD,
    "analogies": _WORD,
    "in-context": _WORD,
    "in-context-random": _WORD,
    "questions": (Template("{pair} {text} {answer}."), Template("{pair} Question: {text} Answer: {answer}.")),
    "arithmetic": (Template("{text} {answer}."), Template("Question: {text} Answer: {answer}.")),
    "arithmetic-words": (Template("{text} {answer}."), Template("Question: {text} Answer: {answer}.")),
    "translation": (Template("{text} = {answer}", between="\n"),),  # as Radford et al. 2019, section 3.7
    "summaries": _NEXT,  # the targets begin with the world's own hint, "In short,"
}


def world_template(task: str, wording: int = 0) -> Template:
    """How a task of the world is worded; `wording` counts the ways from 0.

    Raises:
        CourseError: there is no such wording.
    """
    if task not in WORLD:
        raise CourseError(f"There is no template for the task {task!r}; there are some for {', '.join(WORLD)}.")
    if not 0 <= wording < len(WORLD[task]):
        raise CourseError(f"The task {task!r} is worded in {len(WORLD[task])} ways, 0 and up; {wording} is none.")
    return WORLD[task][wording]
