"""The primer: pages that say a few facts of one form again and again, for a model that learns to
read.

Documents alone do not teach a small model which of two facts is asked for; a few million tokens of
these pages first, small before large (Elman 1993, Cognition 48; Bengio et al. 2009, ICML), and it
looks up the right one (docs/world.md)."""

import random
import re
from typing import Any

from classroom.town.documents import Writer
from classroom.town.facts import GENRES, Triple, triples
from classroom.town.grammar import SentenceTemplate

LEVELS = (1, 2)
DRILL = (
    "{X} {v.past} the {O} .",
    "The {O} was {v.part} by {X} .",
    "{X} 's/PART {O} .",
    "The {O} of {X} .",
)
# Of a made-up word's syllables: what stands before the vowel, the vowel, what ends the word.
ONSETS = (*"bdfghklmnprstvwz", "br", "ch", "cl", "dr", "fl", "gr", "sh", "st", "th", "tr")
NUCLEI = (*"aeiou", "ai", "ea", "oo")
CODAS = ("", "", *"lmnrstx", "ck", "nd", "ng", "rd")
PART = re.compile(r"\{([XYOPFJL])(?:\.\w+)?\}")
# Other facts, bystanders, what a document shares or makes up, and denials.
BEYOND = re.compile(r"\{\w+[02]\b|\{(?:W|kin|event|adj)\b|\bnot\b|\bNo ,|\bNobody\b")


class Primer:
    """Writes pages of two levels with templates of the documents.

    Level 1 drills pairs of a person and a thing in four forms. Level 2 has the facts of nine
    genres, in every sentence or question that says two parts of a fact or more and nothing beside
    it."""

    def __init__(self, writer: Writer) -> None:
        self.casting = writer.casting
        known = {
            t.text: t
            for genre in ("list", "own")
            for t in writer.templates[f"{genre}.state"][False]
        }
        self.drill = [known[text] for text in DRILL]
        self.states = {
            genre: _fit(writer, genre, "state") for genre in GENRES if not genre.endswith("review")
        }
        self.sayings = {
            genre: [*self.states[genre], *_fit(writer, genre, "again")] for genre in self.states
        }

    def page(self, rng: random.Random, level: int, rounds: bool, made_up: float) -> dict[str, Any]:
        """One page; see World.primer."""
        genre = rng.choice(list(self.states)) if level > 1 else "list"
        facts = self.casting.scene(rng, "train", genre, rng.randint(2 if level > 1 else 3, 6))
        states, sayings = (
            (self.states[genre], self.sayings[genre]) if level > 1 else (self.drill, self.drill)
        )
        first = form = rng.choice(states)
        sentences: list[str] = []
        length, tokens = rng.randint(90, 120) if rounds else rng.randint(40, 120), 0
        while tokens < length or len(sentences) <= len(facts):
            again = bool(sentences)
            for fact in (
                rng.sample(facts, len(facts)) if rounds or not again else [rng.choice(facts)]
            ):
                if level == 1 and again:
                    form = first if rng.random() < 0.7 else rng.choice(sayings)
                for sentence in form.render(rng, fact, fact):
                    sentences.append(sentence.text)
                    tokens += len(sentence.words)
                if tokens >= length and len(sentences) > len(facts):
                    break
            form = first if rng.random() < 0.5 else rng.choice(sayings)
        told = triples(genre, facts)
        if made_up:
            sentences, told = _renamed(rng, sentences, told, made_up)
        return {"text": " ".join(sentences), "sentences": sentences, "facts": told, "genre": genre}


def _renamed(
    rng: random.Random, sentences: list[str], facts: list[Triple], share: float
) -> tuple[list[str], list[Triple]]:
    """The page with that share of its names in made-up words."""
    said = sorted({name for subject, _, thing in facts for name in (subject, thing)})
    new = {name: _coin(rng, name) for name in said if rng.random() < share}
    if not new:
        return sentences, facts
    whole = re.compile(rf"\b({'|'.join(map(re.escape, new))})\b")
    told = [
        (new.get(subject, subject), relation, new.get(thing, thing))
        for subject, relation, thing in facts
    ]
    return [whole.sub(lambda found: new[found[0]], sentence) for sentence in sentences], told


def _coin(rng: random.Random, name: str) -> str:
    """A word that nobody has read, of one to three syllables; "a" or "an" stays right, and so does
    a capital.
    """
    first = rng.choice("aeiou") if name[0].lower() in "aeiou" else ""
    syllables = [rng.choice(ONSETS) + rng.choice(NUCLEI) for _ in range(rng.randint(1, 2))]
    coined: str = "".join([first, *syllables, rng.choice(CODAS)])
    return coined.capitalize() if name[0].isupper() else coined


def _fit(writer: Writer, genre: str, group: str) -> list[SentenceTemplate]:
    """The training templates of this group that say parts of one fact and nothing else, each
    once.
    """
    found = {
        t.text: t for t in writer.templates[f"{genre}.{group}"][False] if not BEYOND.search(t.text)
    }
    return [template for text, template in found.items() if len(set(PART.findall(text))) > 1]
