"""Labels of one text: is this a sentence (after CoLA and BLiMP), does the reviewer like it (after
SST-2)? Labels of its words: parts of speech (Universal Dependencies), and named entities, many of
them other words too."""

import random
import re

from classroom.town.documents import Writer
from classroom.town.grammar import RenderedSentence, write
from classroom.town.lexicon import Item
from classroom.town.tasks.base import Example, TownTask, balanced, of_split, order_of
from course_lib.errors import CourseError

ARTICLE = "~article"


class Acceptability(TownTask):
    """Agreement with and without distractors, reflexives, gender, case, articles, verb forms, word
    order: pairs.tsv.

    Where the bad side is ~article, it is the good one with "a" for "an" or the other way round.
    """

    columns = ("text", "label")
    labels = ("unacceptable", "acceptable")
    group = 2

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.pairs = self.table("pairs.tsv", "rule", "split", "good", "bad")
        self.compile(
            sorted({row[side] for row in self.pairs for side in ("good", "bad")} - {ARTICLE})
        )

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        rules = of_split(self.pairs, split)
        label = order_of(rng, 2)[member]
        for _ in range(100):
            row = rng.choice(rules)
            facts, everyone, _ = self.casting.facts(rng, "deed", 1, split)
            fact = facts[0] | {"A": everyone[2], "B": everyone[3]}
            drawn: dict[str, Item] = {}
            good = write(self.template(row["good"]).render(rng, fact, drawn=drawn))
            bad = wrong_article(good)
            if row["bad"] != ARTICLE:
                bad = write(self.template(row["bad"]).render(rng, fact, drawn=drawn))
            if good != bad:  # "has run" and "run" are written alike
                gold = {"rule": row["rule"], "split": row["split"], "other": bad if label else good}
                return {"text": good if label else bad, "label": label, "gold": gold}
        raise CourseError(
            f"pairs.tsv: the good and the bad side of {row['good']!r} come out alike every time."
        )


def wrong_article(text: str) -> str:
    """The text with its first "a" made "an", or its first "an" made "a"."""
    return re.sub(r"\b(an?)\b", lambda found: "a" if found.group() == "an" else "an", text, count=1)


# What had been expected, by (comparison, label): less bland than feared is praise, less tasty than
# hoped is not.
WISH = {("less", 1): "feared", ("less", 0): "hoped", ("more", 1): "hoped", ("more", 0): "feared"}
# kinds of clauses; an opinion word often misleads
SHARE = {"plain": 0.5, "turned": 0.35, "both": 0.15}


class Sentiment(TownTask):
    """Reviews of food and film: an opening, then one or two opinions that agree."""

    columns = ("text", "label")
    labels = ("negative", "positive")
    group = 2
    domains: tuple[str, ...] = ("food", "film")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        allowed = {"domain": ("food", "film"), "part": ("open", "say")}
        self.rows = self.table("sentiment.tsv", "domain", "part", "split", "template", **allowed)
        for row in self.rows:
            row["kind"] = kind_of(row["template"])
            self.compile(polar(row["template"], row["domain"], label) for label in (0, 1))

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 2)
        domain = rng.choice(self.domains)
        rows = of_split([row for row in self.rows if row["domain"] == domain], split)
        fact = self.casting.facts(rng, "meal", 1, split)[0][0]
        fact |= {"M": self.casting.film(rng), "R": self.casting.restaurant(rng)}
        opening = rng.choice([row["template"] for row in rows if row["part"] == "open"])
        sentences = self.template(polar(opening, domain, label)).render(rng, fact)
        kinds: list[str] = []
        used: set[str] = set()
        for _ in range(rng.choice((1, 1, 2))):
            kind = rng.choices(list(SHARE), list(SHARE.values()))[0]
            kinds.append(kind)
            opinions = [row["template"] for row in rows if row["kind"] == kind]
            text = rng.choice([opinion for opinion in opinions if opinion not in used])
            used.add(text)
            sentences += self.template(polar(text, domain, label)).render(rng, fact)
        return {
            "text": write(sentences),
            "label": label,
            "gold": {"domain": domain, "kinds": kinds},
        }


class FoodSentiment(Sentiment):
    """Reviews of food only."""

    domains = ("food",)


class FilmSentiment(Sentiment):
    """Reviews of films only."""

    domains = ("film",)


def kind_of(template: str) -> str:
    """How a template's opinion words stand to what is meant.

    "plain": they say it; "turned": its opposite; "both": one of each; "": no opinion.
    """
    kinds = {
        (True, False): "plain",
        (False, True): "turned",
        (True, True): "both",
        (False, False): "",
    }
    return kinds["{same}" in template, "{other}" in template]


def polar(template: str, domain: str, label: int) -> str:
    """The template for this label: {same} draws a word of its polarity, {other} one of the
    opposite.
    """
    same, other = ("+", "-") if label else ("-", "+")
    compared = "less" if "less/" in template else "more"
    filled = template.replace("{same}", f"{{{domain}{same}}}").replace(
        "{other}", f"{{{domain}{other}}}"
    )
    return filled.replace("{wish}", f"{WISH[compared, label]}/VERB")


TAGS = (
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
    "SCONJ",
    "VERB",
)


class PartsOfSpeech(TownTask):
    """Half of the rows are a sentence of a document, half one with a word of several senses ("we
    play", "the play").
    """

    columns = ("tokens", "labels")
    labels = TAGS

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        if rng.random() < 0.5:
            page = rng.choice(self.writer.draft(rng, split).sentences)
            source = "document"
        else:
            template, source, _ = rng.choice(self.writer.senses)
            person = self.lexicon.people[self.casting.some(rng, self.lexicon.people, 1, split)[0]]
            page = template.render(rng, {"A": person})[0]
        return {
            "tokens": page.words,
            "labels": [TAGS.index(tag) for tag in page.tags],
            "gold": {"source": source},
        }


ENTITIES = ("PERSON", "LOC", "ORG", "WORK")


class Entities(TownTask):
    """Half of the rows are sentences of documents, half name people and towns whose names are
    alike: naming.tsv.
    """

    columns = ("tokens", "labels")
    labels = ("O", *(f"{mark}-{kind}" for kind in ENTITIES for mark in "BI"))

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.rows = self.table("naming.tsv", "split", "template")
        self.compile(row["template"] for row in self.rows)
        towns = {town[""][0][0] for town in self.lexicon.towns}
        self.alike = [person for person in self.lexicon.people if person[""][0][0] in towns]
        people = {person[""][0][0] for person in self.alike}
        self.twins = [town for town in self.lexicon.towns if town[""][0][0] in people]

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        if rng.random() < 0.5:
            pages: list[RenderedSentence] = []
            while not pages:
                pages = [
                    page
                    for page in self.writer.draft(rng, split).sentences
                    if {*page.entities} != {"O"}
                ]
            page = rng.choice(pages)
            source = "document"
        else:
            row = rng.choice(of_split(self.rows, split))
            facts, everyone, _ = self.casting.facts(rng, "work", 1, split)
            fact = facts[0] | {"M": self.casting.film(rng), "R": self.casting.restaurant(rng)}
            fact["G"] = self.casting.newspaper(rng)
            fact["Y"] = everyone[-1]
            if rng.random() < 0.5:
                fact["X"] = self._unlike(rng, self.alike, fact["L"])
            if rng.random() < 0.5:
                fact["L"] = self._unlike(rng, self.twins, fact["X"])
            page = self.template(row["template"]).render(rng, fact)[0]
            source = row["split"]
        labels = [self.labels.index(mark) for mark in page.entities]
        return {"tokens": page.words, "labels": labels, "gold": {"source": source}}

    @staticmethod
    def _unlike(rng: random.Random, items: list[Item], other: Item) -> Item:
        """One of the items, with another name than `other`."""
        return rng.choice([item for item in items if item[""][0] != other[""][0]])
