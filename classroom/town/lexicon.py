"""The world's words: the tables of /data/world as pools of items, each item a dictionary of
inflected forms.

A *phrase* is (words, tags, entities, shape): three equally long tuples, and how the words hang
together. An *item* maps the name of a form ("" the plain one, "pl", "past", "he", ...) to a phrase.
A *pool* is a list of items with a draw that follows Zipf's law."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from course_lib.errors import CourseError
from course_lib.files import DATA

FOLDER = DATA / "world"


class Shape(NamedTuple):
    """The inner parse of a phrase, in Universal Dependencies."""

    # counted from 0 in the phrase; a word whose head is outside has its own number
    heads: tuple[int, ...]
    relations: tuple[str, ...]  # "" at the phrase's head, whose relation the template gives
    head: int
    name: int  # where the noun phrase begins, behind a preposition


Phrase = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Shape]
Item = dict[str, Phrase]
TableRow = dict[str, str]

MODIFIERS = {  # the relation of a word before its noun
    "ADP": "case",
    "DET": "det",
    "ADJ": "amod",
    "NUM": "nummod",
    "NOUN": "compound",
    "PROPN": "compound",
    "PRON": "nmod:poss",
    "ADV": "advmod",
}
PRONOUNS = {"m": ("he", "him", "his", "himself"), "f": ("she", "her", "her", "herself")}
AN = {"honest", "hourglass"}
GLAD = {"happy", "glad", "relieved", "excited", "grateful", "delighted", "pleased"}
SORRY = {"sad", "angry", "disappointed", "bored", "upset", "embarrassed"}
# nobody's brother or aunt
RANK = {"woman", "man", "lady", "gentleman", "girl", "boy", "king", "queen"}


@cache
def shape(tags: tuple[str, ...], free: bool = False) -> Shape:
    """How the words of a phrase with these tags hang together.

    The last word is the head ("in the old mill"), but the first of a name ("Anna Miller"). A `free`
    phrase, an adverb ("yesterday", "last week", "in March"), has a relation of its own wherever it
    stands."""
    n = len(tags)
    if tags == ("DET", "ADJ"):  # a large, before a noun
        return Shape((0, 1), ("det", ""), 1, 0)
    if n > 1 and set(tags) == {"PROPN"}:
        return Shape((0,) * n, ("", *("flat",) * (n - 1)), 0, 0)
    own = _adverb_relation(tags) if free else ""
    if n > 1 and tags[-1] == "ADV":  # two days ago
        inner = shape(tags[:-1])
        heads = tuple(n - 1 if i == inner.head else head for i, head in enumerate(inner.heads))
        return Shape((*heads, n - 1), (*inner.relations[:-1], "obl:unmarked", own), n - 1, 0)
    relations = tuple(MODIFIERS.get(tag, "dep") for tag in tags[:-1])
    return Shape((n - 1,) * n, (*relations, own), n - 1, int(tags[0] == "ADP"))


def _adverb_relation(tags: tuple[str, ...]) -> str:
    """The relation of an adverb or of a phrase in its place: yesterday, in March, last week."""
    if tags[-1] == "ADV":
        return "advmod"
    return "obl" if "ADP" in tags else "obl:unmarked"


def phrase(text: str, *tags: str, entity: str = "", free: bool = False) -> Phrase:
    """A phrase of the words of `text`.

    Args:
        text: words between spaces.
        tags: their parts of speech; one serves all.
        entity: marks all words as one entity, in BIO.
        free: whether it is an adverb; see `shape`.
    """
    words = tuple(text.split())
    marks = ("O",) * len(words)
    if entity:
        marks = (f"B-{entity}", *[f"I-{entity}"] * (len(words) - 1))
    if len(tags) == 1:
        tags = tags * len(words)
    return words, tags, marks, shape(tags, free)


def after_the(inner: Phrase) -> Phrase:
    """The name behind "the", which is no part of an entity."""
    tags = ("DET", *inner[1])
    return ("the", *inner[0]), tags, ("O", *inner[2]), shape(tags)


def article(word: str) -> str:
    """The indefinite article that stands before `word`."""
    return (
        "an"
        if word in AN or (word[0] in "aeiou" and not word.startswith(("uni", "use", "eu")))
        else "a"
    )


def plural(word: str) -> str:
    """The regular plural."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def same_form(text: str) -> str:
    """A template as parses.tsv is asked for it: the bystanders A and B parse like X and Y."""
    return text.replace("{A", "{X").replace("{B", "{Y")


def read_table(
    name: str, columns: Sequence[str], folder: Path = FOLDER, **allowed: Sequence[str]
) -> list[TableRow]:
    """The rows of a TSV table that has these columns; `allowed` says which cells a column may
    have.
    """
    path = folder / name
    if not path.is_file():
        raise CourseError(f"The world's table {path} is missing; restore it from the repository.")
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t") if lines else []
    if header != list(columns):
        raise CourseError(
            f"{path} starts with the columns {header}; it needs {list(columns)}, tab-separated."
        )
    rows = []
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if len(cells) != len(header) or not cells[0].strip():
            raise CourseError(
                f"{path}, line {number}, has {len(cells)} cells {cells} where the columns are"
                f" {header}."
            )
        row = dict(zip(header, cells, strict=True))
        for column, options in allowed.items():
            if row[column] not in options:
                raise CourseError(
                    f"{path}, line {number}: the {column} of {cells} must be"
                    f" {' or '.join(options)}."
                )
        rows.append(row)
    return rows


@dataclass
class WordPool:
    """Items drawn by Zipf's law: the item of rank r about in proportion to r ** -0.8."""

    items: list[Item]

    def __post_init__(self) -> None:
        n = len(self.items)
        self.table = [i for i in range(n) for _ in range(max(1, round(4 * n / (i + 1) ** 0.8 / 6)))]

    def draw(self, rng: random.Random) -> Item:
        """One item."""
        return self.items[self.table[int(rng.random() * len(self.table))]]


def noun(row: TableRow) -> Item:
    """Forms "", pl, a."""
    one = phrase(f"{article(row['word'])} {row['word']}", "DET", "NOUN")
    return {"": phrase(row["word"], "NOUN"), "pl": phrase(row["plural"], "NOUN"), "a": one}


def adjective(row: TableRow) -> Item:
    """Forms "", a."""
    return {
        "": phrase(row["word"], "ADJ"),
        "a": phrase(f"{article(row['word'])} {row['word']}", "DET", "ADJ"),
    }


def verb(row: TableRow) -> Item:
    """Forms base, third, past, part, ing."""
    names = {"base": "base", "third": "third", "past": "past", "part": "participle", "ing": "ing"}
    return {form: phrase(row[column], "VERB") for form, column in names.items()}


def place(row: TableRow) -> Item:
    """Forms "", pl, at (with its preposition)."""
    at = phrase(f"{row['prep']} the {row['word']}", "ADP", "DET", "NOUN")
    return {"": phrase(row["word"], "NOUN"), "pl": phrase(plural(row["word"]), "NOUN"), "at": at}


def person(row: TableRow, surname: str) -> Item:
    """Forms "", full (with surname), he, him, his, himself."""
    names = {"": row["word"], "full": f"{row['word']} {surname}"}
    pronouns = zip(PRONOUNS["m"], PRONOUNS[row["gender"]], strict=True)
    item = {form: phrase(name, "PROPN", entity="PERSON") for form, name in names.items()}
    return item | {form: phrase(pronoun, "PRON") for form, pronoun in pronouns}


class Lexicon:
    """All pools. The world's seed shuffles them, so that another seed is another town with other
    common words.
    """

    def __init__(self, seed: int = 0, folder: Path = FOLDER) -> None:
        rng = random.Random(f"lexicon/{seed}")
        self.folder = folder
        self.tags = {
            row["word"]: row["tag"] for row in read_table("words.tsv", ("word", "tag"), folder)
        }

        parses = read_table("parses.tsv", ("template", "heads", "relations", "refers"), folder)
        self.parses = {same_form(row["template"]): row for row in parses}
        # the templates that were compiled with these words; which have a parse
        self.compiled: dict[str, bool] = {}

        def table(name: str, *columns: str, **allowed: Sequence[str]) -> list[TableRow]:
            rows = read_table(name, columns, folder, **allowed)
            rng.shuffle(rows)  # the order of these calls is part of what a seed means
            return rows

        def classes(
            rows: list[TableRow], make: Callable[[TableRow], Item]
        ) -> dict[str, list[Item]]:
            found: dict[str, list[Item]] = {}
            for row in rows:
                found.setdefault(row["class"], []).append(make(row))
            return found

        surnames = [row["word"] for row in table("surnames.tsv", "word")]
        names = table("names.tsv", "word", "gender", gender=tuple(PRONOUNS))
        self.people = [person(row, surnames[i % len(surnames)]) for i, row in enumerate(names)]
        self.objects = [noun(row) for row in table("objects.tsv", "word", "plural")]
        self.places = [place(row) for row in table("places.tsv", "word", "prep")]
        self.towns = [
            {"": phrase(row["word"], "PROPN", entity="LOC")} for row in table("towns.tsv", "word")
        ]
        self.jobs = [noun(row) for row in table("jobs.tsv", "word", "plural")]
        pools = {"job": self.jobs, "object": self.objects}
        pools["animal"] = [noun(row) for row in table("animals.tsv", "word", "plural")]
        kin = table("kin.tsv", "word", "plural", "gender")
        pools["kin"] = [noun(row) for row in kin if row["word"] not in RANK]
        pools["kinf"] = [noun(row) for row in kin if row["gender"] == "f"]
        pools["kinm"] = [noun(row) for row in kin if row["gender"] == "m"]
        pools["food"] = self.foods = [
            {"": phrase(row["word"], "NOUN")} for row in table("foods.tsv", "word")
        ]
        adjectives = classes(table("adjectives.tsv", "word", "class"), adjective)
        pools |= {f"adj.{name}": items for name, items in adjectives.items()}
        pools["feel"] = adjectives["feel"]
        pools["feel+"] = [item for item in adjectives["feel"] if item[""][0][0] in GLAD]
        pools["feel-"] = [item for item in adjectives["feel"] if item[""][0][0] in SORRY]
        opinions = {"domain": ("food", "film", "any"), "polarity": ("positive", "negative")}
        for row in table("opinions.tsv", "word", *opinions, **opinions):
            sign = "+" if row["polarity"] == "positive" else "-"
            for domain in ("food", "film") if row["domain"] == "any" else (row["domain"],):
                pools.setdefault(domain + sign, []).append({"": phrase(row["word"], "ADJ")})
        adverbs = classes(table("adverbs.tsv", "word", "class"), self._adverb)
        pools |= {f"adv.{name}": items for name, items in adverbs.items()}
        pools |= classes(table("nouns.tsv", "word", "plural", "class"), noun)
        verbs = table("verbs.tsv", "base", "third", "past", "participle", "ing", "class", "synonym")
        pools |= classes(verbs, verb)
        self.pools = {name: WordPool(items) for name, items in pools.items()}
        self.synonyms = self._synonyms(verbs)

    def _adverb(self, row: TableRow) -> Item:
        """Form "": an adverb, or a phrase ("in the morning") whose words have the tags of words.tsv
        or word/TAG.
        """
        parts = [part.partition("/") for part in row["word"].split()]
        words = [word for word, _, _ in parts]
        if len(words) == 1:
            return {"": phrase(words[0], "ADV", free=True)}
        tags = [tag or self.tags.get(word, "") for word, _, tag in parts]
        if not all(tags):
            raise CourseError(
                f"adverbs.tsv: a word of {row['word']!r} is not in words.tsv; add it or write it"
                " /TAG."
            )
        return {"": phrase(" ".join(words), *tags, free=True)}

    def _synonyms(self, rows: list[TableRow]) -> dict[str, Item]:
        """Class/base of a verb -> its synonym."""
        result = {}
        for row in (row for row in rows if row["synonym"]):
            found = [v for v in self.pools[row["class"]].items if v["base"][0][0] == row["synonym"]]
            if not found:
                raise CourseError(
                    f"verbs.tsv: {row['synonym']!r}, synonym of {row['base']!r}, has no row there."
                )
            result[f"{row['class']}/{row['base']}"] = found[0]
        return result
