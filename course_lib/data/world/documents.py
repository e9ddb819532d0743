"""Documents: a cast, two or three facts of one form, and about half of all sentences saying one of them again."""

from __future__ import annotations

import random
from typing import Any

from course_lib.data.world.grammar import Env, Sentence, Template
from course_lib.data.world.lexicon import Item, Lexicon, article, phrase, read_table
from course_lib.errors import CourseError

SPLITS = ("train", "validation", "test")
# What a document may be about, how often, and (for deeds) the classes of verbs.
GENRES = (("deed", 30), ("gift", 12), ("meal", 9), ("trip", 9), ("help", 9), ("work", 9), ("keep", 12), ("foodreview", 8), ("filmreview", 8))
DEEDS = ("get", "lose", "fix", "break", "look", "move")
VERBS = {"gift": "give", "meal": "cook", "help": "who"}
HELD = 12  # one name, object, place in twelve is met in test documents only


class Writer:
    """Writes documents of one world. Everything random comes from the generator that a call is given."""

    def __init__(self, lexicon: Lexicon, seed: int = 0) -> None:
        self.lexicon = lexicon
        self.seed = seed
        self.genres = [g for g, n in GENRES for _ in range(n)]
        self.templates: dict[str, dict[bool, list[Template]]] = {}
        for row in read_table("templates.tsv", lexicon.folder):
            template = Template(row["template"], lexicon)
            group = self.templates.setdefault(row["group"], {False: [], True: []})
            if not row["weight"].isdigit() or row["split"] not in ("all", "test"):
                raise CourseError(f"templates.tsv: {row['template']!r} needs a whole number as weight and all or test as split.")
            for test in (False, True):
                if test or row["split"] == "all":
                    group[test] += [template] * (int(row["weight"]) * (4 if row["split"] == "test" else 1))
        self.sense = [Template(r["sentence"].replace("{X}", "{A}"), lexicon) for r in lexicon.senses]
        self.sense_names = [(r["word"], r["sense"]) for r in lexicon.senses]

    # -- choosing ----------------------------------------------------------------------------------------------
    def some(self, rng: random.Random, items: list[Any], n: int, split: str) -> list[int]:
        """`n` different indices; one item in HELD is kept for the test split, where it has half of the draws."""
        found: list[int] = []
        size = len(items)
        while len(found) < n:
            i = int(rng.random() * size)
            if split == "test":
                if i % HELD and rng.random() < 0.4:
                    continue
            elif i % HELD == 0:
                continue
            if i not in found:
                found.append(i)
        return found

    @staticmethod
    def held(person: int, thing: int) -> bool:
        """Whether this pair of a person and a thing never meets in training documents."""
        return (person + 3 * thing) % 10 == 7

    def pair(self, rng: random.Random, person: int, items: list[Any], taken: list[int], split: str) -> int:
        while True:
            thing = self.some(rng, items, 1, split)[0]
            if thing not in taken and not (split == "train" and self.held(person, thing)):
                taken.append(thing)
                return thing

    # -- facts -------------------------------------------------------------------------------------------------
    def title(self, rng: random.Random) -> Item:
        pools = self.lexicon.pools
        a = pools[rng.choice(("adj.colour", "adj.size", "adj.age", "adj.weather", "adj.person"))].draw(rng)[""][0][0]
        b = pools[rng.choice(("nature", "animal", "job", "object"))].draw(rng)[""][0][0]
        return {"": phrase(f"The {a.title()} {b.title()}", "DET", "PROPN", "PROPN", entity="WORK")}

    def house(self, rng: random.Random) -> Item:
        pools = self.lexicon.pools
        a = pools["adj.colour"].draw(rng)[""][0][0]
        b = pools["animal"].draw(rng)[""][0][0]
        words, tags, ents = phrase(f"{a.title()} {b.title()}", "PROPN", entity="ORG")
        return {"": (("the", *words), ("DET", *tags), ("O", *ents))}

    def paper(self, rng: random.Random) -> Item:
        words, tags, ents = phrase(f"{rng.choice(self.lexicon.towns)[''][0][0]} {rng.choice(('Times', 'News', 'Post', 'Herald'))}", "PROPN", entity="ORG")
        return {"": (("the", *words), ("DET", *tags), ("O", *ents))}

    def facts(self, rng: random.Random, genre: str, k: int, split: str) -> tuple[list[Env], list[int], bool]:
        """`k` facts of one form with different people, things and places; the cast's indices; one verb for all?"""
        lex = self.lexicon
        people = self.some(rng, lex.people, 2 * k + 2, split)
        places = self.some(rng, lex.places, k, split)
        towns = rng.sample(lex.towns, k + 1)
        jobs = rng.sample(lex.jobs, k)
        foods = rng.sample(lex.foods, k)
        things: list[int] = []
        same = rng.random() < 0.6
        verb: Item | None = None
        facts = []
        for i in range(k):
            thing = self.pair(rng, people[i], lex.objects, things, split)
            if verb is None or not same:
                cls = rng.choice(DEEDS) if genre == "deed" else VERBS.get(genre, "get")
                verb = lex.verbs[cls].draw(rng)
            synonym = lex.synonyms.get(cls + "/" + verb["base"][0][0], verb)
            noun = lex.objects[thing][""][0][0]
            adjective = lex.pools[rng.choice(("adj.look", "adj.colour", "adj.age", "adj.size"))].draw(rng)[""][0][0]
            obj = {**lex.objects[thing], "full": phrase(f"{article(adjective)} {adjective} {noun}", "DET", "ADJ", "NOUN")}
            facts.append({
                "X": lex.people[people[i]], "Y": lex.people[people[k + i]], "O": obj, "P": lex.places[places[i]], "v": verb, "s": synonym,
                "T": lex.pools["adv.time"].draw(rng), "F": foods[i], "J": jobs[i], "L": towns[i], "class": {"": phrase(cls, "X")},
            })
        return facts, people, same

    def triples(self, genre: str, facts: list[Env]) -> list[tuple[str, str, str]]:
        """The facts as (subject, relation, object)."""
        def word(fact: Env, key: str, form: str = "") -> str:
            return " ".join(fact[key][form][0])

        result = []
        for f in facts:
            x = word(f, "X")
            if genre in ("deed", "gift"):
                result.append((x, word(f, "v", "base"), word(f, "O")))
                result.append((word(f, "O"), "to", word(f, "Y")) if genre == "gift" else (x, "at", word(f, "P")))
            elif genre == "meal":
                result += [(x, word(f, "v", "base"), word(f, "F")), (x, "at", word(f, "P"))]
            elif genre == "trip":
                result += [(x, "go", word(f, "P")), (x, "with", word(f, "Y"))]
            elif genre == "help":
                result += [(x, word(f, "v", "base"), word(f, "Y")), (x, "at", word(f, "P"))]
            elif genre == "work":
                result += [(x, "is", word(f, "J")), (x, "live", word(f, "L"))]
            elif genre == "keep":
                result += [(x, "own", word(f, "O")), (word(f, "O"), "at", word(f, "P"))]
            else:
                key = "F" if genre == "foodreview" else "M"
                result.append((x, "like" if word(f, "mood") == "likes" else "dislike", word(f, key)))
        return result

    # -- the document ------------------------------------------------------------------------------------------
    def document(self, rng: random.Random, split: str) -> dict[str, Any]:
        """One document as a dictionary: text, sentences, tokens, tags, entities, facts, genre, senses."""
        lex = self.lexicon
        test = split == "test"
        genre = self.genres[int(rng.random() * len(self.genres))]
        review = genre.endswith("review")
        k = 2 if rng.random() < 0.6 else 3
        facts, people, same = self.facts(rng, genre, k, split)
        everyone = [lex.people[i] for i in people]
        town, restaurant, newspaper = rng.choice(lex.towns), self.house(rng), self.paper(rng)
        for fact in facts:
            fact.update(W=everyone[-1], R=restaurant, L0=town, P0=facts[0]["P"], G=newspaper)
            if review:
                fact["M"] = self.title(rng)
            if review or genre == "meal":
                fact["mood"] = {"": phrase(rng.choice(("likes", "dislikes")), "X")}
        sentences: list[Sentence] = []
        senses: list[tuple[str, str]] = []
        count = 0
        used: set[tuple[str, int]] = set()

        def say(group: str, i: int = 0, j: int = 0, template: Template | None = None) -> None:
            nonlocal count
            if template is None:
                options = self.templates[group][test]
                for _ in range(4):
                    template = options[int(rng.random() * len(options))]
                    if (template.text, 0 if review else i) not in used:
                        break
            assert template is not None
            used.add((template.text, 0 if review else i))
            for sentence in template.render(rng, lex, facts[i], facts[j]):
                sentences.append(sentence)
                count += len(sentence.words)

        def aside() -> None:
            a, b = rng.sample(everyone, 2)
            for fact in facts:
                fact["A"], fact["B"] = a, b
            if rng.random() < 0.3:
                index = int(rng.random() * len(self.sense))
                senses.append(self.sense_names[index])
                say("sense", template=self.sense[index])
            else:
                say("colour")

        length = 105 + 25 * rng.random() if rng.random() < 0.04 else min(96.0, max(45.0, rng.gauss(74, 14)))
        if rng.random() < 0.35:
            aside()
        for i in range(k):
            say(genre + ".state", i)
            if review:
                mood = facts[i]["mood"][""][0][0]
                say(genre + (".pos" if mood == "likes" else ".neg"), i)
            elif genre not in ("work", "keep") and rng.random() < 0.15:
                say("next", i)
        while count < length:
            r = rng.random()
            i = int(rng.random() * k)
            j = (i + 1 + int(rng.random() * (k - 1))) % k
            if r < 0.22:
                aside()
            elif review:
                mood = facts[i]["mood"][""][0][0]
                say(genre + (".pos" if mood == "likes" else ".neg") if r < 0.4 else f"{genre}.{mood}", i)
            elif genre == "deed" and r < 0.34:
                say("deed." + facts[i]["class"][""][0][0], i)
            elif genre == "meal" and r < 0.36:
                say("meal." + facts[i]["mood"][""][0][0], i)
            elif genre == "deed" and same and r < 0.48:
                say("deed.same", i, j)
            else:
                say(genre + ".again", i, j)
        texts = [s.text for s in sentences]
        tokens: list[str] = []
        tags: list[str] = []
        entities: list[str] = []
        for s in sentences:
            tokens += s.words
            tags += s.tags
            entities += s.entities
        return {"text": " ".join(texts), "sentences": texts, "tokens": tokens, "tags": tags, "entities": entities,
                "facts": self.triples(genre, facts), "genre": genre, "senses": senses}
