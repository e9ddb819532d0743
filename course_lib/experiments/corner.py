"""A corner of the town, lesson 16's language of seconds: twelve people, four kinds of things, verbs of one kind."""

import random
from typing import Any

PEOPLE = ("Mara", "Theo", "Paul", "Nadia", "Olga", "Ivan", "Rosa", "Hugo", "Lena", "Omar", "Vera", "Karl")
KINDS = (
    (("ate", "baked", "tasted"), ("soup", "bread", "cake", "stew")),
    (("sold", "mended", "bought"), ("lamp", "clock", "chair", "radio")),
    (("read", "wrote", "burned"), ("letter", "novel", "poem", "diary")),
    (("fed", "chased", "washed"), ("goat", "cat", "hen", "pony")),
)
PLACES = ("hall", "yard", "kitchen", "garden")
ASIDES = ("It rained and rained .", "The night was cold .", "The bells rang .", "Nobody saw it .")


def event(rng: random.Random, who: str, kind: int) -> list[str]:
    """One sentence."""
    verbs, things = KINDS[kind]
    return [who, rng.choice(verbs), "the", rng.choice(things), "in", "the", rng.choice(PLACES), "."]


def story(rng: random.Random) -> dict[str, Any]:
    """Two events and an aside; its summary, without the aside and the places; the kind of each event."""
    kinds = [rng.randrange(len(KINDS)) for _ in range(2)]
    events = [event(rng, who, kind) for who, kind in zip(rng.sample(PEOPLE, 2), kinds, strict=True)]
    parts = [" ".join(words) for words in events]
    parts.insert(rng.randrange(3), rng.choice(ASIDES))
    return {
        "text": " ".join(parts),
        "target": " and ".join(" ".join(words[:4]) for words in events) + " .",
        "kinds": kinds,
    }


def told_apart(rng: random.Random, n: int) -> list[dict[str, Any]]:
    """Stories whose events are of two kinds, with the kind of the first: who only knows the words is right half of the
    time."""
    rows = (story(rng) for _ in range(20 * n))
    return [{"text": row["text"], "label": row["kinds"][0]} for row in rows if len(set(row["kinds"])) == 2][:n]


def translated(rng: random.Random, n: int) -> list[dict[str, str]]:
    """Single events, each once, as `target`; as `text` in a tongue that spells backwards, without articles, the place
    first and the verb last."""
    events = [event(rng, rng.choice(PEOPLE), rng.randrange(len(KINDS))) for _ in range(n)]
    return [
        {"text": " ".join(word[::-1].lower() for word in (place, thing, who, verb)) + " .", "target": " ".join(words)}
        for words in dict.fromkeys(map(tuple, events))
        for who, verb, _, thing, _, _, place, _ in [words]
    ]
