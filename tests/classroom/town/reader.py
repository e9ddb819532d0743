"""A reader of the town's sentences: regular expressions and the lexicon, none of the grammar's
templates.

A sentence is read as the set of the lexicon's people, things and places in it and, where two people
are in it, who did it to whom. What a hypothesis, a question or a paraphrase says is true if some
sentence says at least that."""

import re
from typing import NamedTuple

from classroom.town import World


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?]) ", text)


class Fact(NamedTuple):
    """What a sentence says: the words of the lexicon in it, and who did it."""

    words: frozenset[str]
    agent: str


class Reader:
    """Reads sentences with the lexicon of a world."""

    def __init__(self, world: World) -> None:
        lexicon = world.lexicon
        pools = {"X": lexicon.people, "O": lexicon.objects, "P": lexicon.places, "F": lexicon.foods}
        pools |= {"L": lexicon.towns, "J": lexicon.jobs}
        self.kinds = {
            kind: {" ".join(item[""][0]) for item in items} for kind, items in pools.items()
        }
        self.kinds["Y"] = self.kinds["X"]
        self.towns, self.kinds["L"] = self.kinds["L"], {f"in {town}" for town in self.kinds["L"]}
        self.known = set().union(*self.kinds.values())
        times = sorted(
            (" ".join(item[""][0]) for item in lexicon.pools["adv.time"].items),
            key=len,
            reverse=True,
        )
        self.time = re.compile(
            rf"(^|, while )(?:{'|'.join(map(re.escape, times))}), ", re.IGNORECASE
        )

    def plain(self, sentence: str) -> str:
        """The sentence without when it was."""
        return self.time.sub(r"\1", sentence)

    def meant(self, before: str, word: str) -> str:
        """A town as "in Florence", for there are people of that name; not the verb of "did he
        cook".
        """
        if before == "in" and word in self.towns:
            return f"in {word}"
        verb = word in self.kinds["J"] - self.kinds["O"] and before.lower() not in (
            "a",
            "an",
            "the",
        )
        return "" if verb else word

    def fact(self, sentence: str) -> Fact:
        sentence = self.plain(sentence)
        tokens = re.findall(r"\w+", sentence)
        words = [
            self.meant(before, word) for before, word in zip(["", *tokens], tokens, strict=False)
        ]
        words = [word for word in words if word in self.known]
        people = [w for w in words if w in self.kinds["X"]]
        agent = people[0] if people else ""
        if found := re.search(r"\bby (\w+)(?:[.,]| (?:in|at|on|by|for)\b)|\bwhom (\w+)", sentence):
            agent = next(name for name in found.groups() if name)
        elif re.search(r"\bthanked (\w+) for the ", sentence):
            agent = people[1]
        return Fact(frozenset(words), agent)

    def facts(self, text: str) -> list[Fact]:
        """Of every sentence, and of both halves of one that says two facts."""
        return [
            self.fact(part)
            for s in sentences(text)
            for part in re.split(r", (?:and|while|but) (?=\w+ .*\w)", s)
        ]
