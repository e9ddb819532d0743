"""Do two texts say the same (after MRPC and PAWS), and how much alike are they (after STS-B)?"""

import random
import re

from course_lib.data.world.grammar import Env
from course_lib.data.world.tasks.base import Example, balanced
from course_lib.data.world.tasks.scenes import GENRES, ROLES, Saying, SceneTask, exchange, exchangeable, reverse

GRADED = ("deed", "gift", "meal", "help")  # genres whose verb is a word of the lexicon


class Paraphrase(SceneTask):
    """Two people change places, or two facts exchange a part: both labels have the same words."""

    columns = ("text", "pair", "label")
    labels = ("different", "paraphrase")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, pair, label; gold: the genre and what was exchanged ("" for a paraphrase, "XY" for two people)."""
        label, rng = balanced(rng, member, 2)
        genre = rng.choice(GENRES)
        first, second = self.scenes.facts(rng, split, genre)
        if genre in ROLES and rng.random() < 0.75:
            while True:
                a, b = self.scenes.paraphrases(rng, split, genre)
                if a.parts >= {"X", "Y"}:
                    break
            gold = {"genre": genre, "exchanged": "" if label else "XY"}
            pair = b.say(rng, first if label else reverse(first))
            return {"text": a.say(rng, first), "pair": pair, "label": label, "gold": gold}
        while True:  # what can be exchanged must be said beside what it belongs to
            a, b = self.scenes.paraphrases(rng, split, genre)
            if len(a.parts) > 1 and exchangeable(genre, a.parts):
                break
        part = rng.choice(exchangeable(genre, a.parts))
        others = (first, second) if label else (exchange(first, second, part), exchange(second, first, part))
        text = [a.say(rng, fact) for fact in (first, second)]
        pair_sentences = [b.say(rng, fact) for fact in others]
        rng.shuffle(pair_sentences)
        gold = {"genre": genre, "exchanged": "" if label else part}
        return {"text": " ".join(text), "pair": " ".join(pair_sentences), "label": label, "gold": gold}


class Similarity(SceneTask):
    """How much of what the one says does the other say?

    5: the same fact in other words; 4: the same with a part left out; 3: one part is another; 2: the two people in each
    other's place, or only the thing is the same; 1: only the person is the same; 0: nothing. Texts of grades 5 and 4
    are worded differently, those of 3 and 2 alike, so that shared words do not give the grade.
    """

    columns = ("text", "pair", "label")
    labels = ()
    group = 6

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, pair, and the grade as a float; gold: the genre and the grade."""
        grade, rng = balanced(rng, member, 6)
        genre = rng.choice(GRADED)
        fact, other = self.scenes.facts(rng, split, genre)
        a = self._whole(rng, split, genre)
        pair = {
            5: lambda: self._reworded(rng, split, genre, a).say(rng, fact | {"v": fact["s"]}),
            4: lambda: self._shorter(rng, split, genre, a).say(rng, fact),
            3: lambda: a.say(rng, exchange(fact, other, rng.choice(exchangeable(genre, a.parts)))),
            2: lambda: a.say(rng, reverse(fact) if genre in ROLES else other | {part: fact[part] for part in "OF"}),
            1: lambda: self._elsewhere(rng, split, genre, fact, same_person=True),
            0: lambda: self._elsewhere(rng, split, genre, fact, same_person=False),
        }[grade]()
        gold = {"genre": genre, "grade": grade}
        return {"text": a.say(rng, fact), "pair": pair, "label": float(grade), "gold": gold}

    def _whole(self, rng: random.Random, split: str, genre: str) -> Saying:
        """A sentence that says the whole fact, and so without a synonym."""
        return self.scenes.saying(rng, split, genre, "state")

    def _reworded(self, rng: random.Random, split: str, genre: str, a: Saying) -> Saying:
        while True:
            b = self.scenes.saying(rng, split, genre, "state", a.parts)
            if b.template.text != a.template.text:
                return b

    def _shorter(self, rng: random.Random, split: str, genre: str, a: Saying) -> Saying:
        """A sentence that still says what was done, but not to or by whom, or not where."""
        while True:
            b = self.scenes.saying(rng, split, genre, "again")
            if b.parts < a.parts and re.search(r"\{[vs]\.", b.template.text):
                return b

    def _elsewhere(self, rng: random.Random, split: str, genre: str, fact: Env, *, same_person: bool) -> str:
        """Another deed, with nothing of this one but perhaps its person."""
        other = rng.choice([g for g in GRADED if g != genre])
        while True:
            new = self.scenes.facts(rng, split, other, 1)[0]
            if not any(new[part] is fact[old] for part, old in ("XX", "XY", "YX", "YY", "OO", "PP", "FF")):
                break
        return self._whole(rng, split, other).say(rng, new | {"X": fact["X"]} if same_person else new)
