"""Who does what: the casts of documents, tasks and probes, and which words and pairs training never
shows.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from classroom.town.grammar import Env
from classroom.town.lexicon import FOLDER, Item, Lexicon, after_the, article, phrase
from course_lib.errors import CourseError
from course_lib.files import read_json

Triple = tuple[str, str, str]
T = TypeVar("T")

# Of each genre how often it comes, what its facts say (who, how, whom or what; "v" stands for the
# verb), and the parts
# of which another one makes the statement false.
GENRES: dict[str, Any] = read_json(FOLDER / "genres.json")
SPLITS = ("train", "validation", "test")
DEEDS = ("get", "lose", "fix", "break", "look", "move")  # classes of verbs whose object is a thing
VERBS = {"gift": "give", "meal": "cook", "help": "who"}  # genre -> class of its verbs
PAPERS = ("Times", "News", "Post", "Herald")
FEWEST = 50  # people, objects, places
HELD = 12  # one person, object and place in twelve is met in test data only


def check(what: str, value: object, options: Iterable[object]) -> None:
    """Raises CourseError if the world has no such thing."""
    known = tuple(options)
    if value not in known:
        raise CourseError(
            f"The world has no {what} {value!r}; choose one of {', '.join(map(str, known))}."
        )


def until(draw: Callable[[], T], fits: Callable[[T], object]) -> T:
    """Draws until what was drawn fits."""
    while True:
        drawn = draw()
        if fits(drawn):
            return drawn


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
    """Chooses people, things and places, and makes facts of them. A fact is an `Env`: its parts by
    their letters.

    X person, Y second person, O object, P place, T time, F food, J job, L town, v verb, s the
    verb's synonym."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        for name, items in (
            ("names", lexicon.people),
            ("objects", lexicon.objects),
            ("places", lexicon.places),
        ):
            if len(items) < FEWEST:
                raise CourseError(
                    f"{name}.tsv has {len(items)} rows; a world that nobody can guess needs"
                    f" {FEWEST}."
                )

    def some(self, rng: random.Random, items: list[Item], n: int, split: str) -> list[int]:
        """`n` different indices into `items`, uniformly; held-out ones in the test split only, a
        quarter there.
        """
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

    def object_for(
        self,
        rng: random.Random,
        person: int,
        taken: list[int],
        split: str,
        *,
        kept: bool | None = None,
    ) -> int:
        """An object that is not `taken` (and then is); `kept`: whether training keeps it from this
        person.
        """
        thing = until(
            lambda: self.some(rng, self.lexicon.objects, 1, split)[0],
            lambda thing: thing not in taken and kept in (None, held_pair(person, thing)),
        )
        taken.append(thing)
        return thing

    def facts(
        self, rng: random.Random, genre: str, k: int, split: str
    ) -> tuple[list[Env], list[Item], bool]:
        """`k` facts of one form that differ in everything but perhaps the verb.

        Returns the facts, everybody's items (2 k + 2 people: the facts' own, their partners, two
        bystanders) and whether the facts share one verb. The key "class" holds the verb's class as
        a word."""
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
            thing = self.object_for(
                rng, people[i], things, split, kept=False if split == "train" else None
            )
            if not verb or not same:
                kind = rng.choice(DEEDS) if genre in ("deed", "list") else VERBS.get(genre, "get")
                verb = pools[kind].draw(rng)
            adjective = word(
                {
                    "a": (
                        pools[rng.choice(("adj.look", "adj.colour", "adj.age", "adj.size"))].draw(
                            rng
                        )
                    )
                },
                "a",
            )
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

    def scene(self, rng: random.Random, split: str, genre: str, k: int = 2) -> list[Env]:
        """`k` facts with one verb; W is a bystander."""
        facts, everyone, _ = self.facts(rng, genre, k, split)
        return [
            fact | {"W": everyone[-1], "v": facts[0]["v"], "s": facts[0]["s"]} for fact in facts
        ]

    def film(self, rng: random.Random) -> Item:
        """The title of a film: The Bright Wind."""
        pools = self.lexicon.pools
        kind = rng.choice(("adj.colour", "adj.size", "adj.age", "adj.weather", "adj.person"))
        first = word({"a": pools[kind].draw(rng)}, "a")
        second = word(
            {"n": pools[rng.choice(("nature", "animal", "job", "object"))].draw(rng)}, "n"
        )
        return {
            "": phrase(
                f"The {first.title()} {second.title()}", "DET", "PROPN", "PROPN", entity="WORK"
            )
        }

    def restaurant(self, rng: random.Random) -> Item:
        """The name of a restaurant behind its article: the Yellow Weasel."""
        pools = self.lexicon.pools
        first, second = (
            word({"n": pools[kind].draw(rng)}, "n").title() for kind in ("adj.colour", "animal")
        )
        return {"": after_the(phrase(f"{first} {second}", "PROPN", entity="ORG"))}

    def newspaper(self, rng: random.Random) -> Item:
        """The name of a newspaper behind its article: the Stroud News."""
        town = word({"L": rng.choice(self.lexicon.towns)}, "L")
        return {"": after_the(phrase(f"{town} {rng.choice(PAPERS)}", "PROPN", entity="ORG"))}


def triples(genre: str, facts: list[Env]) -> list[Triple]:
    """What a document says, as (subject, relation, object)."""
    result: list[Triple] = []
    for fact in facts:
        for subject, relation, thing in GENRES[genre]["says"]:
            if relation == "v":
                relation = word(fact, "v", "base")
            elif relation == "mood":
                relation = word(fact, "mood").removesuffix("s")
            result.append((word(fact, subject), relation, word(fact, thing)))
    return result
