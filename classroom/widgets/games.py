"""Questions and games: a quiz that explains every choice; replaced words, found by
the reader and by the model.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from classroom import course
from classroom.figures.display import Html
from classroom.widgets.card import card
from course_lib.errors import CourseError
from course_lib.files import read_json

SEED = 59  # of the order of a quiz' choices: with it each place is right about equally often


def quiz(name: str, file: Path | None = None) -> Html:
    """A question whose every choice opens its own explanation. No script, no kernel; works on
    GitHub and on paper.

    name: lesson and question, "09.2". file: {number: {"question": ..., "choices": {choice: why it
        is right, or the mistake behind it}}}, the right choice first; shown in an order drawn by
        the name. Without it, quiz.json in the lesson's folder. Backticks mark code.
    """
    lesson, _, number = name.partition(".")
    file = file or course.folder(lesson) / "quiz.json"
    asked = read_json(file).get(number)
    if asked is None:
        raise CourseError(
            f"There is no quiz {name!r} in {file}; its names are like '09.2', lesson and question."
        )
    choices = list(asked["choices"].items())
    order = random.Random(f"{SEED} {name}").sample(range(len(choices)), len(choices))
    shown = [choices[i] for i in order]
    html = card(
        "quiz",
        "Quiz: choose, then read why",
        question=asked["question"],
        choices=shown,
        answer=order.index(0),
    )
    told = [f"  {letter}. {choice}" for letter, (choice, _) in zip("ABCDEFGH", shown, strict=False)]
    return Html(html, "\n".join([f"Quiz: {asked['question']}", *told]))


class ReplacedText(NamedTuple):
    """Tokens of which a generator wrote some; the original ones; the discriminator's suspicion of
    each, 0 to 1.
    """

    tokens: Sequence[str]
    original: Sequence[str]
    suspicion: Sequence[float]

    @property
    def fates(self) -> list[tuple[bool, bool]]:
        """Of each token whether it was replaced, and whether the discriminator says so."""
        return [(now != then, p > 0.5) for now, then, p in self._rows]

    @property
    def judged(self) -> list[tuple[str, str]]:
        """Each token with its suspicion, and the colour of what became of it, a value of
        `FATES`.
        """
        return [
            (f"{now} {100 * p:.0f}%", FATES[now != then, p > 0.5]) for now, then, p in self._rows
        ]

    @property
    def stood(self) -> str:
        """What stood at the replaced places, in words."""
        changed = [row for row in self._rows if row[0] != row[1]]
        quoted = [
            f"“{then}” for “{now}” (suspected with {100 * p:.0f}%)" for now, then, p in changed
        ]
        return f"In the text stood: {', '.join(quoted)}." if quoted else "Nothing was replaced."

    @property
    def _rows(self) -> list[tuple[str, str, float]]:
        return list(zip(self.tokens, self.original, self.suspicion, strict=True))


FATES = {
    (True, True): "green",
    (True, False): "orange",
    (False, True): "blue",
    (False, False): "plain",
}
LEGEND = [
    ("replaced and found", "green"),
    ("replaced, not found", "orange"),
    ("false alarm", "blue"),
]


def which_replaced(
    texts: Sequence[ReplacedText], title: str = "Which words were replaced?"
) -> Html:
    """Texts whose suspicious words the player marks; the answer and the discriminator's guesses
    stay folded until then.

    Without a script the texts and, folded, the answers are there to read.
    """
    data = [
        {"replaced": [a for a, _ in text.fates], "said": [b for _, b in text.fates]}
        for text in texts
    ]
    items = [(text.tokens, text.judged, text.stood) for text in texts]
    told = [line for text in texts for line in (f"  {' '.join(text.tokens)}", f"    {text.stood}")]
    return Html(
        card("replaced", title, data, items=items, legend=LEGEND), "\n".join([title, *told])
    )
