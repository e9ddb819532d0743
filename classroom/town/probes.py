"""What a model must be able to do before anything else: look a word up in its context."""

import random
from typing import Any

from classroom.town.facts import DEEDS, Casting
from classroom.town.grammar import Env, SentenceTemplate, write

STATE = (
    "{X} {v.past} the {O} {P.at} .",
    "{T} , {X} {v.past} the {O} {P.at} .",
    "{P.at} , {X} {v.past} the {O} .",
)
AGAIN = {
    "name": ("The {O} was {v.part} by {X} .", "Who {v.past} the {O} ? | {X} did ."),
    "object": ("{X} {v.past} the {O} .", "What did {X} {v.base} ? | The {O} ."),
    "place": ("{X} {v.past} the {O} {P.at} .", "Where did {X} {v.base} the {O} ? | {P.at} ."),
}
ANSWER = {"name": "X", "object": "O", "place": "P"}
SIDES = ("left", "right", "both")


class Probes:
    """The copy probe and the evidence probe, about people and objects that no training document
    brings together.
    """

    def __init__(self, casting: Casting) -> None:
        self.casting = casting
        self.state = [SentenceTemplate(text, casting.lexicon) for text in STATE]
        self.again = {
            kind: [SentenceTemplate(text, casting.lexicon) for text in texts]
            for kind, texts in AGAIN.items()
        }

    def _facts(self, rng: random.Random, k: int) -> list[Env]:
        """`k` facts with one verb; training meets their words, but not their pairs of person and
        object.
        """
        casting, lexicon = self.casting, self.casting.lexicon
        verb = lexicon.pools[rng.choice(DEEDS)].draw(rng)
        people = casting.some(rng, lexicon.people, k, "validation")
        places = casting.some(rng, lexicon.places, k, "validation")
        things: list[int] = []
        for person in people:
            casting.object_for(rng, person, things, "validation", kept=True)
        chosen = zip(people, things, places, strict=True)
        facts = [
            {"X": lexicon.people[p], "O": lexicon.objects[o], "P": lexicon.places[q], "v": verb}
            for p, o, q in chosen
        ]
        return [fact | {"T": lexicon.pools["adv.time"].draw(rng)} for fact in facts]

    def copy(self, rng: random.Random, kind: str, facts: int) -> dict[str, Any]:
        """One item of the copy probe; see World.probe."""
        known = self._facts(rng, facts)
        context = [rng.choice(self.state).render(rng, fact)[0] for fact in known]
        asked = rng.choice(known)
        sentence = write(rng.choice(self.again[kind]).render(rng, asked))
        answer = asked[ANSWER[kind]][""][0][0]
        prefix = sentence[: sentence.rindex(answer)].rstrip()
        return {
            "context": write(context),
            "sentence": sentence,
            "prefix": prefix,
            "answer": answer,
            "kind": kind,
        }

    def evidence(self, rng: random.Random, side: str) -> dict[str, Any]:
        """One item of the evidence probe; see World.evidence."""
        known = self._facts(rng, 2)
        asked = known[rng.random() < 0.5]
        context = write([rng.choice(self.state).render(rng, fact)[0] for fact in known])
        object_last, object_first = self.again["object"][0], self.again["name"][0]
        answer = asked["O"][""][0][0]
        again = (object_first if side == "both" else object_last).render(rng, asked)[0].text
        before, after = again.split(f" {answer}")
        if side == "right":
            after = f"{after} {context}"
        else:
            before = f"{context} {before}"
        return {"text_before": before, "answer": answer, "text_after": after, "side": side}
