"""Entailment in other genres (after MNLI's mismatched part), with two classes (RTE), and of answers (QNLI)."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import Env, Template
from course_lib.data.world.tasks.base import Example, balanced
from course_lib.data.world.tasks.nli import CONTRADICTION, ENTAILMENT, NEUTRAL
from course_lib.data.world.tasks.scenes import GENRES, Saying, SceneTask, exchange, exchangeable

UNSAID = {  # a sentence that leaves a part unsaid -> the part
    "gift": ("The {O} was {v.part} by {X} .", "Y"),
    "trip": ("{X} went to the {P} .", "Y"),
    "help": ("{X} was {P.at} .", "Y"),
    "work": ("{X} is {J.a} .", "L"),
    "keep": ("{X} owns the {O} .", "P"),
}
DENIAL = "It is not true/ADJ that "


class Mismatched(SceneTask):
    """The three classes of `nli`, in genres that it does not have: gifts, trips, help, work, things kept.

    Of the first two facts everything is said, of the third one part is not.
    """

    columns = ("text", "pair", "label")
    labels = ("entailment", "neutral", "contradiction")
    group = 3

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.unsaid = {genre: (self.template(text), part) for genre, (text, part) in UNSAID.items()}
        self.denied: dict[str, Template] = {}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Premise `text`, hypothesis `pair`, label; gold: the genre, whether it is a denial, and the facts."""
        label, rng = balanced(rng, member, 3)
        genre = rng.choice(list(self.unsaid))
        template, part = self.unsaid[genre]
        facts = self.scenes.facts(rng, split, genre, 3)
        premise = self.scenes.story(rng, split, genre, facts[:2])
        premise.append(template.render(rng, facts[2])[0].text)
        rng.shuffle(premise)
        denial = rng.random() < 0.4
        truth = (CONTRADICTION, NEUTRAL, ENTAILMENT)[label] if denial else label
        asked = {
            ENTAILMENT: facts[0],
            CONTRADICTION: exchange(facts[0], facts[1], part),
            NEUTRAL: exchange(facts[2], facts[rng.random() < 0.5], part),
        }[truth]
        saying = self.scenes.saying(rng, split, genre, rng.choice(("state", "again")), frozenset({"X", part}))
        pair = self._deny(saying).render(rng, asked)[0].text if denial else saying.say(rng, asked)
        gold = {"genre": genre, "denial": denial, "truth": truth}
        return {"text": " ".join(premise), "pair": pair, "label": label, "gold": gold}

    def _deny(self, saying: Saying) -> Template:
        text = saying.template.text
        if text not in self.denied:
            plain = text.replace("The ", "the ", 1) if text.startswith("The ") else text
            plain = plain.replace("It ", "it ", 1) if plain.startswith("It ") else plain
            self.denied[text] = self.template(DENIAL + plain)
        return self.denied[text]


class RTE(SceneTask):
    """Entailed or not, in all genres: two facts, one of them said again, half of the time with the other one's part."""

    columns = ("text", "pair", "label")
    labels = ("entailment", "not_entailment")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, pair, label; gold: the genre and the part that was exchanged."""
        label, rng = balanced(rng, member, 2)
        genre = rng.choice(GENRES)
        first, second = self.scenes.facts(rng, split, genre)
        text = self.scenes.story(rng, split, genre, [first, second])
        rng.shuffle(text)
        while True:
            saying = self.scenes.saying(rng, split, genre, "again")
            if len(saying.parts) > 1:
                break
        part = rng.choice(exchangeable(genre, saying.parts))
        pair = saying.say(rng, exchange(first, second, part) if label else first)
        gold = {"genre": genre, "exchanged": part if label else ""}
        return {"text": " ".join(text), "pair": pair, "label": label, "gold": gold}


class QNLI(SceneTask):
    """Does the sentence answer the question?

    Half of the rows have a sentence of two facts, which answers it or has a part of them exchanged; half have a short
    sentence that tells what is asked for or something else (where it was, when who is asked for).
    """

    columns = ("text", "pair", "label")
    labels = ("entailment", "not_entailment")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Question `text`, sentence `pair`, label; gold: the genre, what is asked for, and the kind of row."""
        label, rng = balanced(rng, member, 2)
        while True:
            kind = rng.choice(("two", "short"))
            question = self.scenes.question(rng, split, 2 if kind == "two" else 1)
            genre = question.genre
            facts = self.scenes.facts(rng, split, genre)
            pair = getattr(self, f"_{kind}")(rng, split, question, facts, label)
            if pair:
                break
        gold = {"genre": genre, "asks": question.use, "kind": kind}
        return {"text": question.say(rng, facts[0]), "pair": pair, "label": label, "gold": gold}

    def _two(self, rng: random.Random, split: str, question: Saying, facts: list[Env], label: int) -> str:
        """Two facts in a sentence; what the question names is parted where the sentence does not answer."""
        options = exchangeable(question.genre, question.parts)
        if not options:
            return ""
        part = rng.choice(options)
        first, second = facts
        if label:
            first, second = exchange(first, second, part), exchange(second, first, part)
        if rng.random() < 0.5:
            first, second = second, first
        return self.scenes.saying(rng, split, question.genre, "both").say(rng, first, second)

    def _short(self, rng: random.Random, split: str, question: Saying, facts: list[Env], label: int) -> str:
        """A short sentence with all that the question names, and with what it asks for or not."""
        table = self.scenes.sayings[split == "test"]
        sayings = [s for use in ("state", "again") for s in table[question.genre, use]]
        without = [s for s in sayings if s.parts >= question.parts and question.use not in s.parts]
        found = [s for s in sayings if s.parts >= question.parts and question.use in s.parts]
        if not without or not found:
            return ""
        return rng.choice(without if label else found).say(rng, facts[0])
