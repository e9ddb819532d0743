"""The world's words: tables of /data/world read into pools of items, each item a dictionary of inflected forms.

A *phrase* is (words, tags, entities): three equally long tuples. An *item* maps a form name ("" the plain form, "pl",
"past", "he", ...) to a phrase. A *pool* is a list of items with a Zipf-weighted draw.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError

FOLDER = Path(__file__).resolve().parents[3] / "data" / "world"

Phrase = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
Item = dict[str, Phrase]


def phrase(text: str, *tags: str, entity: str = "") -> Phrase:
    """A phrase of the words in `text`; `entity` marks all of it as one entity (BIO)."""
    words = tuple(text.split())
    if len(tags) == 1:
        tags = tags * len(words)
    spans = tuple(("B-" if i == 0 else "I-") + entity for i in range(len(words))) if entity else ("O",) * len(words)
    return words, tags, spans


def join(*parts: Phrase) -> Phrase:
    """The phrases one after the other."""
    return tuple(sum((p[i] for p in parts), ()) for i in range(3))  # type: ignore[return-value]


def article(word: str) -> str:
    """"a" or "an"."""
    return "an" if word[0] in "aeiou" and not word.startswith(("uni", "use", "eu")) or word in ("honest", "hourglass") else "a"


def read_table(name: str, folder: Path = FOLDER) -> list[dict[str, str]]:
    """The rows of a TSV table with a header line; raises CourseError on a missing file or a row of another length."""
    path = folder / name
    if not path.is_file():
        raise CourseError(f"The world's table {path} does not exist; restore it from the repository.")
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(header) or not cells[0].strip():
            raise CourseError(f"{path} line {number} has {len(cells)} cells where the header names {len(header)} ({', '.join(header)}); mend the row.")
        rows.append(dict(zip(header, cells, strict=True)))
    return rows


@dataclass
class Pool:
    """Items and how often each is drawn. `flat` draws uniformly (names must not be guessable), else Zipf: 1 / rank ** 0.8."""

    items: list[Item]
    flat: bool = False

    def __post_init__(self) -> None:
        if not self.items:
            raise CourseError("A pool of the world's lexicon is empty; add a row to its table in data/world.")
        n = len(self.items)
        self.table = list(range(n)) if self.flat else [i for i in range(n) for _ in range(max(1, round(4 * n / (i + 1) ** 0.8 / 6)))]

    def draw(self, rng: random.Random) -> Item:
        return self.items[self.table[int(rng.random() * len(self.table))]]


def noun(word: str, plural: str, tag: str = "NOUN") -> Item:
    return {"": phrase(word, tag), "pl": phrase(plural, tag), "a": phrase(f"{article(word)} {word}", "DET", tag)}


def verb(row: dict[str, str]) -> Item:
    return {"base": phrase(row["base"], "VERB"), "third": phrase(row["third"], "VERB"), "past": phrase(row["past"], "VERB"),
            "part": phrase(row["participle"], "VERB"), "ing": phrase(row["ing"], "VERB")}




PRONOUNS = {"m": ("he", "him", "his", "himself"), "f": ("she", "her", "her", "herself")}


def person(name: str, gender: str, surname: str) -> Item:
    he, him, his, himself = PRONOUNS[gender]
    return {"": phrase(name, "PROPN", entity="PERSON"), "full": phrase(f"{name} {surname}", "PROPN", entity="PERSON"),
            "he": phrase(he, "PRON"), "him": phrase(him, "PRON"), "his": phrase(his, "DET"), "himself": phrase(himself, "PRON")}


def plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


class Lexicon:
    """All pools, built once. The order of items is shuffled by the world's seed, so that another seed is another town."""

    def __init__(self, seed: int = 0, folder: Path = FOLDER) -> None:
        rng = random.Random(f"lexicon/{seed}")
        self.folder = folder

        def table(name: str) -> list[dict[str, str]]:
            rows = read_table(name, folder)
            rng.shuffle(rows)
            return rows

        self.tags = {"the": "DET", "a": "DET", "an": "DET", ".": "PUNCT", ",": "PUNCT", "?": "PUNCT"}
        surnames = [r["word"] for r in table("surnames.tsv")]
        names = table("names.tsv")
        self.people = [person(r["word"], r["gender"], surnames[i % len(surnames)]) for i, r in enumerate(names)]
        self.objects = [noun(r["word"], r["plural"]) for r in table("objects.tsv")]
        self.places = [{"": phrase(r["word"], "NOUN"), "pl": phrase(plural(r["word"]), "NOUN"),
                        "at": phrase(f"{r['prep']} the {r['word']}", "ADP", "DET", "NOUN")} for r in table("places.tsv")]
        self.towns = [{"": phrase(r["word"], "PROPN", entity="LOC")} for r in table("towns.tsv")]
        pools: dict[str, Pool] = {}
        jobs = [noun(r["word"], r["plural"]) for r in table("jobs.tsv")]
        for job in jobs:
            job["A"] = job["a"]
        self.jobs = jobs
        pools["job"] = Pool(jobs)
        pools["object"] = Pool(self.objects)
        pools["animal"] = Pool([noun(r["word"], r["plural"]) for r in table("animals.tsv")])
        kin = table("kin.tsv")
        pools["kin"] = Pool([noun(r["word"], r["plural"]) for r in kin if r["word"] not in ("woman", "man", "lady", "gentleman", "girl", "boy", "king", "queen")])
        pools["kinf"] = Pool([noun(r["word"], r["plural"]) for r in kin if r["gender"] == "f"])
        pools["kinm"] = Pool([noun(r["word"], r["plural"]) for r in kin if r["gender"] == "m"])
        self.foods = [{"": phrase(r["word"], "NOUN")} for r in table("foods.tsv")]
        pools["food"] = Pool(self.foods)
        adjectives: dict[str, list[Item]] = {}
        for r in table("adjectives.tsv"):
            item = {"": phrase(r["word"], "ADJ"), "a": phrase(f"{article(r['word'])} {r['word']}", "DET", "ADJ")}
            adjectives.setdefault(r["class"], []).append(item)
        for name, items in adjectives.items():
            pools[f"adj.{name}"] = Pool(items)
        pools["feel"] = pools["adj.feel"]
        good = {"happy", "glad", "relieved", "excited", "grateful", "delighted", "pleased"}
        bad = {"sad", "angry", "disappointed", "bored", "upset", "embarrassed"}
        pools["feel+"] = Pool([i for i in adjectives["feel"] if i[""][0][0] in good])
        pools["feel-"] = Pool([i for i in adjectives["feel"] if i[""][0][0] in bad])
        opinions: dict[str, list[Item]] = {}
        for r in table("opinions.tsv"):
            sign = "+" if r["polarity"] == "positive" else "-"
            for domain in ("food", "film") if r["domain"] == "any" else (r["domain"],):
                opinions.setdefault(domain + sign, []).append({"": phrase(r["word"], "ADJ")})
        for name, items in opinions.items():
            pools[name] = Pool(items)
        adverbs: dict[str, list[Item]] = {}
        for r in table("adverbs.tsv"):
            adverbs.setdefault(r["class"], []).append({"": phrase(r["word"], "ADV")})
        for name, items in adverbs.items():
            pools[f"adv.{name}"] = Pool(items)
        nouns: dict[str, list[Item]] = {}
        for r in table("nouns.tsv"):
            nouns.setdefault(r["class"], []).append(noun(r["word"], r["word"] if r["word"] == "stairs" else plural(r["word"])))
        for name, items in nouns.items():
            pools[name] = Pool(items)
        self.verbs: dict[str, Pool] = {}
        self.synonyms: dict[str, Item] = {}
        verbs: dict[str, list[Item]] = {}
        rows = table("verbs.tsv")
        for r in rows:
            verbs.setdefault(r["class"], []).append(verb(r))
        for r in rows:
            if r["synonym"].strip():
                match = [v for v in verbs[r["class"]] if v["base"][0][0] == r["synonym"]]
                if not match:
                    raise CourseError(f"verbs.tsv: the synonym {r['synonym']!r} of {r['base']!r} has no row of class {r['class']}.")
                self.synonyms[r["class"] + "/" + r["base"]] = match[0]
        for name, items in verbs.items():
            pools[name] = self.verbs[name] = Pool(items)
        self.pools = pools
        self.senses = read_table("senses.tsv", folder)
