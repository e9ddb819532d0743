"""Scenes: facts of one genre that differ in everything but the verb, and the ways to say and to ask
each of them.

A false statement exchanges a part with the other fact, so that every word of it stands in the text:
only who did what tells. sayings.tsv has the sentences (use `state`: the whole fact; `again`: a part
of it; `both`: two facts; `core`: a clause without its full stop), questions.tsv the questions, by
the part that they ask for."""

import random
import re
from collections import defaultdict
from functools import cache
from typing import NamedTuple

from classroom.town.documents import Writer
from classroom.town.facts import GENRES as GENRES_ALL
from classroom.town.facts import until
from classroom.town.grammar import Env, SentenceTemplate, write
from classroom.town.lexicon import TableRow
from classroom.town.tasks.base import TownTask, of_split

EXCHANGED = {genre: about["exchanged"] for genre, about in GENRES_ALL.items() if about["exchanged"]}
GENRES = tuple(EXCHANGED)
ROLES = ("gift", "help")  # genres whose two people can change places
USES = ("state", "again", "both", "core")
PART = re.compile(r"\{([XYOPFJL])(?:\.\w+)?\}")  # a part of the first fact
FORMS = {"O": "", "F": "", "P": "at", "J": "a"}  # of an answer; the others are names


class Saying(NamedTuple):
    """A compiled sentence or question and the parts of a fact that it says."""

    genre: str
    use: str
    template: SentenceTemplate
    parts: frozenset[str]

    def say(self, rng: random.Random, fact: Env, other: Env | None = None) -> str:
        """The sentence about these facts."""
        return write(self.template.render(rng, fact, other))


def exchange(fact: Env, other: Env, part: str) -> Env:
    """The fact with this part of the other one."""
    return fact | {part: other[part]}


def reverse(fact: Env) -> Env:
    """The fact with its two people in each other's place."""
    return fact | {"X": fact["Y"], "Y": fact["X"]}


def exchangeable(genre: str, parts: frozenset[str]) -> list[str]:
    """Which of these parts can be exchanged so that the statement becomes false."""
    return [part for part in EXCHANGED[genre] if part in parts]


def answer_to(asks: str, fact: Env) -> str:
    """The answer as it stands in a sentence: a name, "lamp", "at the mill", "a baker"."""
    return " ".join(fact[asks][FORMS.get(asks, "")][0])


def find_answer(text: str, answer: str) -> int | None:
    """Where the answer's only occurrence starts (whole words, its first letter in either case);
    else None.
    """
    found = [m.start() for m in _pattern(answer).finditer(text)]
    return found[0] if len(found) == 1 else None


@cache
def _pattern(answer: str) -> re.Pattern[str]:
    first = f"[{answer[0].lower()}{answer[0].upper()}]" if answer[0].islower() else answer[0]
    return re.compile(rf"\b{first}{re.escape(answer[1:])}\b")


class SceneTask(TownTask):
    """A task about scenes."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.sayings = self._by_split("sayings.tsv", "use", USES)
        self.questions = self._by_split("questions.tsv", "asks", tuple("XYOPFJL"))

    def saying(
        self,
        rng: random.Random,
        split: str,
        genre: str,
        use: str,
        parts: frozenset[str] = frozenset(),
    ) -> Saying:
        """A sentence of this use that says at least these parts."""
        return rng.choice(
            [s for s in self.sayings[split == "test"][genre, use] if s.parts >= parts]
        )

    def story(self, rng: random.Random, split: str, genre: str, facts: list[Env]) -> list[str]:
        """Each fact in a sentence that says all of it."""
        return [self.saying(rng, split, genre, "state").say(rng, fact) for fact in facts]

    def question(self, rng: random.Random, split: str, least: int = 1) -> Saying:
        """A question, of any genre, that names at least so many parts of the fact."""
        while True:
            genre = rng.choice(GENRES)
            questions: list[Saying] = []
            for use in "XYOPFJL":
                asked = self.questions[split == "test"].get((genre, use), [])
                questions += [question for question in asked if len(question.parts) >= least]
            if questions:
                return rng.choice(questions)

    def paraphrases(self, rng: random.Random, split: str, genre: str) -> tuple[Saying, Saying]:
        """Two different sentences that say the same parts of a fact."""
        found = [s for use in ("state", "again") for s in self.sayings[split == "test"][genre, use]]
        return until(
            lambda: (rng.choice(found), rng.choice(found)),
            lambda pair: (
                pair[0].parts == pair[1].parts and pair[0].template.text != pair[1].template.text
            ),
        )

    def _by_split(
        self, name: str, column: str, known: tuple[str, ...]
    ) -> dict[bool, dict[tuple[str, str], list[Saying]]]:
        """Whether in the test split -> (genre, use) -> sayings."""
        rows: dict[tuple[str, str], list[TableRow]] = defaultdict(list)
        for row in self.table(
            name, "genre", column, "split", "template", **{"genre": GENRES, column: known}
        ):
            rows[row["genre"], row[column]].append(row)

        def saying(row: TableRow) -> Saying:
            template = self.template(row["template"])
            parts = PART.findall(row["template"])
            return Saying(row["genre"], row[column], template, frozenset(parts))

        return {
            split == "test": {
                group: [saying(row) for row in of_split(own, split)] for group, own in rows.items()
            }
            for split in ("train", "test")
        }
