"""What a model must be able to do before anything else: look a word up in its context."""

from __future__ import annotations

import random
from typing import Any

from course_lib.data.world.documents import DEEDS, Writer
from course_lib.data.world.grammar import Env, Template
from course_lib.errors import CourseError

KINDS = {
    "name": ("The {O} was {v.part} by {X} .", "Who {v.past} the {O} ? | {X} did ."),
    "object": ("{X} {v.past} the {O} .", "What did {X} {v.base} ? | The {O} ."),
    "place": ("{X} {v.past} the {O} {P.at} .", "Where did {X} {v.base} the {O} ? | {P.at} ."),
}
STATE = ("{X} {v.past} the {O} {P.at} .", "{T} , {X} {v.past} the {O} {P.at} .", "{P.at} , {X} {v.past} the {O} .")
ANSWER = {"name": "X", "object": "O", "place": "P"}


class Probes:
    """The copy probe and the evidence probe of one world. Pairs of person and object that training never shows."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        lexicon = writer.lexicon
        self.state = [Template(t, lexicon) for t in STATE]
        self.again = {kind: [Template(t, lexicon) for t in forms] for kind, forms in KINDS.items()}

    def facts(self, rng: random.Random, k: int) -> list[Env]:
        """`k` facts that share their verb, of people and objects that no training document brings together."""
        writer, lex = self.writer, self.writer.lexicon
        verb = lex.verbs[rng.choice(DEEDS)].draw(rng)
        people = writer.some(rng, lex.people, k, "validation")
        places = writer.some(rng, lex.places, k, "validation")
        things: list[int] = []
        for person in people:
            while True:
                thing = writer.some(rng, lex.objects, 1, "validation")[0]
                if thing not in things and writer.held(person, thing):
                    things.append(thing)
                    break
        return [{"X": lex.people[p], "O": lex.objects[o], "P": lex.places[q], "v": verb, "T": lex.pools["adv.time"].draw(rng)}
                for p, o, q in zip(people, things, places, strict=True)]

    def probe(self, n: int, seed: int, kind: str, facts: int = 2) -> list[dict[str, Any]]:
        """`n` items; see World.probe."""
        if kind not in KINDS:
            raise CourseError(f"The copy probe has no kind {kind!r}; choose one of {', '.join(KINDS)}.")
        if facts < 2:
            raise CourseError(f"The copy probe needs at least 2 competing facts, not {facts}.")
        rng = random.Random(f"probe/{self.writer.seed}/{seed}/{kind}")
        lex = self.writer.lexicon
        result = []
        for _ in range(n):
            known = self.facts(rng, facts)
            context = [rng.choice(self.state).render(rng, lex, fact)[0] for fact in known]
            asked = rng.choice(known)
            sentence = " ".join(s.text for s in rng.choice(self.again[kind]).render(rng, lex, asked))
            answer = asked[ANSWER[kind]][""][0][0]
            prefix = sentence[: sentence.rindex(answer)].rstrip()
            result.append({"context": " ".join(s.text for s in context), "sentence": sentence, "prefix": prefix, "answer": answer, "kind": kind})
        return result
