"""Does the second text follow from the first? Every label has the same premises and the same hypotheses.

The world's rule: a thing is done once, by one person at one place. Three sentences make the premise; which people,
things and places the hypothesis brings together decides, and nothing in either text alone does.
"""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.facts import DEEDS, word
from course_lib.data.world.grammar import Env, write
from course_lib.data.world.lexicon import phrase
from course_lib.data.world.tasks.base import Example, Task, of_split, order_of
from course_lib.errors import CourseError

WITH_PLACE = (
    "{X} {v.past} the {O} {P.at} .",
    "{T} , {X} {v.past} the {O} {P.at} .",
    "{P.at} , {X} {v.past} the {O} .",
    "The {O} was {v.part} {P.at} by {X} .",
)
WITHOUT_PLACE = (
    "{X} {v.past} the {O} .",
    "{T} , {X} {v.past} the {O} .",
    "The {O} was {v.part} by {X} .",
    "It was {X} who {v.past} the {O} .",
)
NOISE = ("The {O} was {adj.look} .", "{X} likes the {O} .", "{X} told {Y} about the {O} .", "{X} saw the {O} {P.at} .")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)


class NLI(Task):
    """Hypotheses about who did it to what, where it was done, and who has the thing now: hypotheses.tsv."""

    columns = ("text", "pair", "label")
    labels = ("entailment", "neutral", "contradiction")
    group = 3

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.rows = self.table("hypotheses.tsv", "about", "polarity", "split", "template")
        for row in self.rows:
            if row["about"] not in ("thing", "place", "owner") or row["polarity"] not in ("yes", "no"):
                raise CourseError(f"hypotheses.tsv: {row} needs about thing, place or owner, and polarity yes or no.")
        self.compiled = {row["template"]: self.template(row["template"]) for row in self.rows}
        self.stated = {True: [self.template(t) for t in WITH_PLACE], False: [self.template(t) for t in WITHOUT_PLACE]}
        self.noise = [self.template(t) for t in NOISE]

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Premise `text`, hypothesis `pair`, label; gold: what is asked, its polarity, and the facts."""
        label = order_of(rng, 3)[member]
        rng = random.Random(f"{rng.random()}/{member}")
        row = rng.choice(of_split(self.rows, split))
        # What the hypothesis says without its "not": a denial swaps entailment and contradiction.
        truth = label if row["polarity"] == "yes" else (CONTRADICTION, NEUTRAL, ENTAILMENT)[label]
        facts, _, _ = self.casting.facts(rng, "deed", 3, split)
        premise, asked = getattr(self, f"_{row['about']}")(rng, facts, truth)
        rng.shuffle(premise)
        gold = {
            "about": row["about"],
            "polarity": row["polarity"],
            "split": row["split"],
            "facts": [(word(f, "X"), word(f, "v", "base"), word(f, "O"), word(f, "P")) for f in facts],
            "asked": (word(asked, "X"), word(asked, "v", "base"), word(asked, "O"), word(asked, "P")),
        }
        hypothesis = self.compiled[row["template"]].render(rng, asked)
        return {"text": " ".join(premise), "pair": write(hypothesis), "label": label, "gold": gold}

    def _state(self, rng: random.Random, fact: Env, *, place: bool) -> str:
        return write(rng.choice(self.stated[place]).render(rng, fact))

    def _thing(self, rng: random.Random, facts: list[Env], truth: int) -> tuple[list[str], Env]:
        """Two people did the same to two things; of a third thing it is not said who did."""
        share_verb(facts)
        first, second, third = facts
        premise = [self._state(rng, fact, place=rng.random() < 0.5) for fact in (first, second)]
        premise.append(write(rng.choice(self.noise).render(rng, third)))
        thing = {ENTAILMENT: first, CONTRADICTION: second, NEUTRAL: third}[truth]["O"]
        return premise, first | {"O": thing}

    def _place(self, rng: random.Random, facts: list[Env], truth: int) -> tuple[list[str], Env]:
        """Of two deeds the place is said, of the third it is not."""
        share_verb(facts)
        first, second, third = facts
        premise = [self._state(rng, fact, place=fact is not third) for fact in facts]
        if truth == NEUTRAL:
            return premise, third | {"P": rng.choice((first, second))["P"]}
        return premise, first | {"P": (first if truth == ENTAILMENT else second)["P"]}

    def _owner(self, rng: random.Random, facts: list[Env], truth: int) -> tuple[list[str], Env]:
        """One got a thing, one got rid of one, one did something else."""
        kinds = ("get", "lose", rng.choice([kind for kind in DEEDS if kind not in ("get", "lose")]))
        for fact, kind in zip(facts, kinds, strict=True):
            fact["v"] = self.lexicon.pools[kind].draw(rng)
            fact["class"] = {"": phrase(kind, "X")}
        premise = [self._state(rng, fact, place=rng.random() < 0.5) for fact in facts]
        return premise, facts[{ENTAILMENT: 0, CONTRADICTION: 1, NEUTRAL: 2}[truth]]


def share_verb(facts: list[Env]) -> None:
    """Gives all facts the first one's verb, so that the verb does not tell which fact is asked for."""
    for fact in facts[1:]:
        fact.update(v=facts[0]["v"], s=facts[0]["s"])
