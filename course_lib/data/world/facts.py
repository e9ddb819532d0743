"""Who does what: the casts of documents, tasks and probes, and which words and pairs training never shows."""

import random
from typing import Any

from course_lib.data.world.grammar import Env
from course_lib.data.world.lexicon import Item, Lexicon, after_the, article, phrase
from course_lib.errors import CourseError

Triple = tuple[str, str, str]

SPLITS = ("train", "validation", "test")
DEEDS = ("get", "lose", "fix", "break", "look", "move")  # classes of verbs whose object is a thing
VERBS = {"gift": "give", "meal": "cook", "help": "who"}  # genre -> class of its verbs
PAPERS = ("Times", "News", "Post", "Herald")
FEWEST = 50  # people, objects, places
HELD = 12  # one person, object and place in twelve is met in test data only


def check_split(split: str) -> None:
    """Raises CourseError if there is no such split."""
    if split not in SPLITS:
        raise CourseError(f"The world has no split {split!r}; choose one of {', '.join(SPLITS)}.")


def check_count(n: int) -> None:
    """Raises CourseError if `n` is no number of rows."""
    if n < 0:
        raise CourseError(f"n is {n}; it says how many rows to make, so it must be 0 or more.")


def held_out(index: int) -> bool:
    """Whether the person, object or place of this index is kept for the test split."""
    return index % HELD == 0


def held_pair(person: int, thing: int) -> bool:
    """Whether this person and this object never meet in a training document (one pair in ten)."""
    return (person + 3 * thing) % 10 == 7


def word(fact: Env, key: str, form: str = "") -> str:
    """A part of a fact as text."""
    return " ".join(fact[key][form][0])


class Casting:
    """Chooses people, things and places, and makes facts of them. A fact is an `Env`: its parts by their letters.

    X person, Y second person, O object, P place, T time, F food, J job, L town, v verb, s the verb's synonym.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        for name, items in (("names", lexicon.people), ("objects", lexicon.objects), ("places", lexicon.places)):
            if len(items) < FEWEST:
                raise CourseError(f"{name}.tsv has {len(items)} rows; a world that nobody can guess needs {FEWEST}.")
        for kind in (*DEEDS, *VERBS.values()):
            if kind not in lexicon.pools:
                raise CourseError(f"verbs.tsv has no verb of the class {kind!r}; add one.")

    def some(self, rng: random.Random, items: list[Item], n: int, split: str) -> list[int]:
        """`n` different indices into `items`, uniformly; held-out ones in the test split only, a quarter there."""
        found: list[int] = []
        while len(found) < n:
            i = int(rng.random() * len(items))
            if split == "test":
                if not held_out(i) and rng.random() < 0.75:
                    continue
            elif held_out(i):
                continue
            if i not in found:
                found.append(i)
        return found

    def object_for(self, rng: random.Random, person: int, taken: list[int], split: str) -> int:
        """An object that is not `taken` (and then is); in training, none that is kept from this person."""
        while True:
            thing = self.some(rng, self.lexicon.objects, 1, split)[0]
            if thing not in taken and not (split == "train" and held_pair(person, thing)):
                taken.append(thing)
                return thing

    def facts(self, rng: random.Random, genre: str, k: int, split: str) -> tuple[list[Env], list[Item], bool]:
        """`k` facts of one form that differ in everything but perhaps the verb.

        Returns the facts, everybody's items (2 k + 2 people: the facts' own, their partners, two bystanders) and
        whether the facts share one verb. The key "class" holds the verb's class as a word.
        """
        lexicon, pools = self.lexicon, self.lexicon.pools
        people = self.some(rng, lexicon.people, 2 * k + 2, split)
        places = self.some(rng, lexicon.places, k, split)
        towns = rng.sample(lexicon.towns, k + 1)
        jobs = rng.sample(lexicon.jobs, k)
        foods = rng.sample(lexicon.foods, k)
        things: list[int] = []
        same = genre == "list" or rng.random() < 0.6
        verb: Item = {}
        kind = ""
        facts: list[Env] = []
        for i in range(k):
            thing = self.object_for(rng, people[i], things, split)
            if not verb or not same:
                kind = rng.choice(DEEDS) if genre in ("deed", "list") else VERBS.get(genre, "get")
                verb = pools[kind].draw(rng)
            adjective = word({"a": pools[rng.choice(("adj.look", "adj.colour", "adj.age", "adj.size"))].draw(rng)}, "a")
            noun = word({"O": lexicon.objects[thing]}, "O")
            full = phrase(f"{article(adjective)} {adjective} {noun}", "DET", "ADJ", "NOUN")
            facts.append(
                {
                    "X": lexicon.people[people[i]],
                    "Y": lexicon.people[people[k + i]],
                    "O": lexicon.objects[thing] | {"full": full},
                    "P": lexicon.places[places[i]],
                    "v": verb,
                    "s": lexicon.synonyms.get(f"{kind}/{verb['base'][0][0]}", verb),
                    "T": pools["adv.time"].draw(rng),
                    "F": foods[i],
                    "J": jobs[i],
                    "L": towns[i],
                    "class": {"": phrase(kind, "X")},
                }
            )
        return facts, [lexicon.people[i] for i in people], same

    def film(self, rng: random.Random) -> Item:
        """The title of a film: The Bright Wind."""
        pools = self.lexicon.pools
        kind = rng.choice(("adj.colour", "adj.size", "adj.age", "adj.weather", "adj.person"))
        first = word({"a": pools[kind].draw(rng)}, "a")
        second = word({"n": pools[rng.choice(("nature", "animal", "job", "object"))].draw(rng)}, "n")
        return {"": phrase(f"The {first.title()} {second.title()}", "DET", "PROPN", "PROPN", entity="WORK")}

    def restaurant(self, rng: random.Random) -> Item:
        """The name of a restaurant behind its article: the Yellow Weasel."""
        pools = self.lexicon.pools
        first, second = (word({"n": pools[kind].draw(rng)}, "n").title() for kind in ("adj.colour", "animal"))
        return {"": after_the(phrase(f"{first} {second}", "PROPN", entity="ORG"))}

    def newspaper(self, rng: random.Random) -> Item:
        """The name of a newspaper behind its article: the Stroud News."""
        town = word({"L": rng.choice(self.lexicon.towns)}, "L")
        return {"": after_the(phrase(f"{town} {rng.choice(PAPERS)}", "PROPN", entity="ORG"))}


def triples(genre: str, facts: list[Env]) -> list[Triple]:
    """What a document says, as (subject, relation, object)."""
    result: list[Triple] = []
    for fact in facts:
        said: dict[str, Any] = {key: word(fact, key) for key in ("X", "Y", "O", "P", "F", "J", "L")}
        x, verb = said["X"], word(fact, "v", "base")
        if genre in ("deed", "list"):
            result += [(x, verb, said["O"]), (x, "at", said["P"])]
        elif genre == "gift":
            result += [(x, verb, said["O"]), (said["O"], "to", said["Y"])]
        elif genre == "meal":
            result += [(x, verb, said["F"]), (x, "at", said["P"])]
        elif genre == "trip":
            result += [(x, "go", said["P"]), (x, "with", said["Y"])]
        elif genre == "help":
            result += [(x, verb, said["Y"]), (x, "at", said["P"])]
        elif genre == "work":
            result += [(x, "is", said["J"]), (x, "live", said["L"])]
        elif genre == "own":
            result.append((x, "own", said["O"]))
        elif genre == "keep":
            result += [(x, "own", said["O"]), (said["O"], "at", said["P"])]
        else:
            liked = word(fact, "F" if genre == "foodreview" else "M")
            result.append((x, "like" if word(fact, "mood") == "likes" else "dislike", liked))
    return result
