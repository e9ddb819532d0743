"""Scenes: facts of one genre that differ in everything but the verb, and the ways to say and to ask each of them.

A false statement exchanges a part with the other fact, so that every word of it stands in the text: only who did what
tells. sayings.tsv has the sentences (use `state`: the whole fact; `again`: a part of it; `both`: two facts; `core`: a
clause without its full stop), questions.tsv the questions, by the part that they ask for.
"""

import random
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import Env, Sentence, Template, write
from course_lib.data.world.tasks.base import Task
from course_lib.errors import CourseError

GENRES = ("deed", "gift", "meal", "trip", "help", "work", "keep", "own")
SWAPS = {"deed": "OP", "gift": "OY", "meal": "FP", "trip": "PY", "help": "YP", "work": "LJ", "keep": "OP", "own": "O"}
ROLES = ("gift", "help")  # genres whose two people can change places
USES = ("state", "again", "both", "core")
PART = re.compile(r"\{([XYOPFJL])(?:\.\w+)?\}")  # a part of the first fact
FORMS = {"O": "", "F": "", "P": "at", "J": "a"}  # of an answer; the others are names


@dataclass(frozen=True)
class Saying:
    """A compiled sentence or question and the parts of a fact that it says."""

    genre: str
    use: str
    template: Template
    parts: frozenset[str]

    def say(self, rng: random.Random, fact: Env, other: Env | None = None) -> str:
        """The sentence about these facts."""
        return write(self.template.render(rng, fact, other))

    def sentence(self, rng: random.Random, fact: Env) -> Sentence:
        """The first sentence, as words, tags and entities."""
        return self.template.render(rng, fact)[0]


class Scenes:
    """The tables sayings.tsv and questions.tsv of one world, and the facts to fill them with."""

    def __init__(self, task: Task) -> None:
        self.casting = task.casting
        self.sayings = _by_split(task, "sayings.tsv", "use", USES)
        self.questions = _by_split(task, "questions.tsv", "asks", tuple("XYOPFJL"))

    def facts(self, rng: random.Random, split: str, genre: str, k: int = 2) -> list[Env]:
        """`k` facts with one verb."""
        facts, everyone, _ = self.casting.facts(rng, genre, k, split)
        for fact in facts:
            fact.update(W=everyone[-1], v=facts[0]["v"], s=facts[0]["s"])
        return facts

    def saying(
        self, rng: random.Random, split: str, genre: str, use: str, parts: frozenset[str] = frozenset()
    ) -> Saying:
        """A sentence of this use that says at least these parts."""
        return rng.choice([s for s in self.sayings[split == "test"][genre, use] if s.parts >= parts])

    def story(self, rng: random.Random, split: str, genre: str, facts: list[Env]) -> list[str]:
        """Each fact in a sentence that says all of it."""
        return [self.saying(rng, split, genre, "state").say(rng, fact) for fact in facts]

    def question(self, rng: random.Random, split: str, least: int = 1) -> Saying:
        """A question, of any genre, that names at least so many parts of the fact."""
        while True:
            genre = rng.choice(GENRES)
            found = [q for use in "XYOPFJL" for q in self.questions[split == "test"].get((genre, use), ())]
            if found := [q for q in found if len(q.parts) >= least]:
                return rng.choice(found)

    def paraphrases(self, rng: random.Random, split: str, genre: str) -> tuple[Saying, Saying]:
        """Two different sentences that say the same parts of a fact."""
        found = [s for use in ("state", "again") for s in self.sayings[split == "test"][genre, use]]
        while True:
            first = rng.choice(found)
            second = rng.choice(found)
            if first.parts == second.parts and first.template.text != second.template.text:
                return first, second


def exchange(fact: Env, other: Env, part: str) -> Env:
    """The fact with this part of the other one."""
    return fact | {part: other[part]}


def reverse(fact: Env) -> Env:
    """The fact with its two people in each other's place."""
    return fact | {"X": fact["Y"], "Y": fact["X"]}


def exchangeable(genre: str, parts: frozenset[str]) -> list[str]:
    """Which of these parts can be exchanged so that the statement becomes false."""
    return [part for part in SWAPS[genre] if part in parts]


def answer_to(asks: str, fact: Env) -> str:
    """The answer as it stands in a sentence: a name, "lamp", "at the mill", "a baker"."""
    return " ".join(fact[asks][FORMS.get(asks, "")][0])


def find_answer(text: str, answer: str) -> int | None:
    """Where the answer's only occurrence starts (whole words, its first letter in either case); else None."""
    found = [m.start() for m in _pattern(answer).finditer(text)]
    return found[0] if len(found) == 1 else None


@cache
def _pattern(answer: str) -> re.Pattern[str]:
    first = f"[{answer[0].lower()}{answer[0].upper()}]" if answer[0].islower() else answer[0]
    return re.compile(rf"\b{first}{re.escape(answer[1:])}\b")


Groups = dict[tuple[str, str], list[Saying]]


def _by_split(task: Task, name: str, column: str, known: tuple[str, ...]) -> dict[bool, Groups]:
    """Whether in the test split -> (genre, use) -> sayings; held-out ones stand as often as all others together."""
    result: dict[bool, Groups] = {False: defaultdict(list), True: defaultdict(list)}
    held: Groups = defaultdict(list)
    for row in task.table(name, "genre", column, "split", "template"):
        if row["genre"] not in GENRES or row[column] not in known:
            raise CourseError(f"{name}: {row} needs a genre of {', '.join(GENRES)} and {column} {', '.join(known)}.")
        template = task.template(row["template"])
        saying = Saying(row["genre"], row[column], template, frozenset(PART.findall(row["template"])))
        group = (row["genre"], row[column])
        if row["split"] == "test":
            held[group].append(saying)
        else:
            result[False][group].append(saying)
    for group in result[False] | held:
        common = result[False].get(group, [])
        result[True][group] = common + held[group] * max(1, len(common) // max(1, len(held[group])))
    return result


class SceneTask(Task):
    """A task about scenes."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.scenes = Scenes(self)
