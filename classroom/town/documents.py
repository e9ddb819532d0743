"""Documents: a cast, two or three competing facts of one form; about half of all sentences say one
of them again.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from classroom.town.facts import GENRES, Casting, Triple, triples, word
from classroom.town.grammar import Env, RenderedSentence, SentenceTemplate
from classroom.town.lexicon import Item, Lexicon, phrase, read_table
from course_lib.errors import CourseError

LISTS = ("list", "own")  # genres that state three to six facts in one form, and then ask for them
SIGN = {"likes": ".pos", "dislikes": ".neg"}


@dataclass
class Draft:
    """A document while it is written."""

    genre: str
    facts: list[Env]
    everyone: list[Item]
    same_verb: bool
    sentences: list[RenderedSentence] = field(default_factory=list)
    senses: list[dict[str, int | str]] = field(default_factory=list)
    used: set[tuple[str, int]] = field(default_factory=set)
    tokens: int = 0

    @property
    def review(self) -> bool:
        """Whether it gives opinions."""
        return self.genre.endswith("review")

    def mood(self, i: int) -> str:
        """Whether the person of fact `i` "likes" or "dislikes" its thing."""
        return word(self.facts[i], "mood")


class Writer:
    """Writes the documents of one world. All chance comes from the generator that a call is
    given.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.casting = Casting(lexicon)
        self.genres = [genre for genre, about in GENRES.items() for _ in range(about["weight"])]
        # group -> whether in the test split
        self.templates: dict[str, dict[bool, list[SentenceTemplate]]] = {}
        columns = ("group", "weight", "split", "template")
        for row in read_table("templates.tsv", columns, lexicon.folder, split=("all", "test")):
            if not row["weight"].isdigit():
                raise CourseError(
                    f"templates.tsv: the weight of {row['template']!r} must be a whole number."
                )
            template = SentenceTemplate(row["template"], lexicon)
            weight = int(row["weight"])
            group = self.templates.setdefault(row["group"], {False: [], True: []})
            if row["split"] == "test":  # held out, and in test documents so much more often
                group[True] += [template] * (4 * weight)
            else:
                group[True] += [template] * weight
                group[False] += [template] * weight
        self.senses: list[tuple[SentenceTemplate, str, str]] = []  # template, word, sense
        for row in read_table("senses.tsv", ("word", "sense", "sentence"), lexicon.folder):
            template = SentenceTemplate(row["sentence"].replace("{X}", "{A}"), lexicon)
            if not any(part.startswith(row["word"] + "/") for part in row["sentence"].split()):
                raise CourseError(
                    f"senses.tsv: the sentence {row['sentence']!r} does not mark {row['word']}/TAG."
                )
            self.senses.append((template, row["word"], row["sense"]))

    def group(self, name: str, test: bool) -> list[SentenceTemplate]:
        """The templates of a group, each as often as its weight; with those held out, if `test`."""
        found = self.templates.get(name, {}).get(test)
        if not found:
            raise CourseError(
                f"templates.tsv has no template for {name} in the split all; add one."
            )
        return found

    def document(self, rng: random.Random, split: str, genre: str = "") -> dict[str, Any]:
        """The columns of docs/world.md; tokens are counted from 0 in the document."""
        draft = self.draft(rng, split, genre)
        heads: list[int] = []
        deprels: list[str] = []
        mentions: list[dict[str, int | str]] = []
        for page in draft.sentences:
            mentions += [
                {"start": a, "end": b, "entity": name} for a, b, name in page.mentions(len(heads))
            ]
            tree = page.tree(len(heads))
            heads += tree[0]
            deprels += tree[1]
        texts = [sentence.text for sentence in draft.sentences]
        opinions = self._opinions(draft)
        return {
            "text": " ".join(texts),
            "sentences": texts,
            "tokens": [w for s in draft.sentences for w in s.words],
            "tags": [t for s in draft.sentences for t in s.tags],
            "heads": heads,
            "deprels": deprels,
            "entities": [e for s in draft.sentences for e in s.entities],
            "mentions": mentions,
            "senses": draft.senses,
            "facts": triples(draft.genre, draft.facts),
            "opinions": opinions,
            "sentiment": _sentiment(opinions),
            "genre": draft.genre,
        }

    def _opinions(self, draft: Draft) -> list[Triple]:
        """Who likes or dislikes what: every fact of a review, and of a meal where a sentence tells
        it.
        """
        if draft.review:
            return triples(draft.genre, draft.facts)
        if draft.genre != "meal":
            return []
        moods = [self.templates[f"meal.{draft.mood(i)}"][True] for i in range(len(draft.facts))]
        opinions = []
        for i, (fact, templates) in enumerate(zip(draft.facts, moods, strict=True)):
            if any((template.text, i) in draft.used for template in templates):
                opinions.append((word(fact, "X"), draft.mood(i)[:-1], word(fact, "F")))
        return opinions

    def draft(self, rng: random.Random, split: str, genre: str = "") -> Draft:
        """A document as sentences, with what it says and in which mood; of this genre, if one is
        named.
        """
        test = split == "test"
        drawn = self.genres[int(rng.random() * len(self.genres))]
        genre = genre or drawn
        count = self._count(rng, genre)
        draft = Draft(genre, *self.casting.facts(rng, genre, count, split))
        self._dress(rng, draft)
        length = self._length(rng)
        if genre in LISTS:
            length = max(length, 16.0 * count)  # room to ask for most of them
            self._list(rng, draft, test)
        else:
            self._thread(rng, draft, test)
        asides = 0.06 if genre in LISTS else 0.22
        while draft.tokens < length:
            r = rng.random()
            i = int(rng.random() * count)
            j = (i + 1 + int(rng.random() * (count - 1))) % count
            if r < asides:
                self._aside(rng, draft, test)
            else:
                self._say(rng, draft, self._group(draft, r, i), test, i, j)
        return draft

    @staticmethod
    def _count(rng: random.Random, genre: str) -> int:
        """How many facts a document has."""
        if genre in LISTS:
            return rng.randint(3, 6)
        return 2 if rng.random() < 0.6 else 3

    @staticmethod
    def _length(rng: random.Random) -> float:
        """Tokens of a document: short enough for a row of 128; now and then a long one."""
        if rng.random() < 0.04:
            return 105 + 25 * rng.random()
        return min(96.0, max(45.0, rng.gauss(74, 14)))

    def _list(self, rng: random.Random, draft: Draft, test: bool) -> None:
        """Facts in one form one after another: who reads it must tell three to six apart."""
        self._say(rng, draft, f"{draft.genre}.open", test, 0)
        options = self.group(f"{draft.genre}.state", test)
        template = options[int(rng.random() * len(options))]
        for i in range(len(draft.facts)):
            self._render(rng, draft, template, i, i)

    def _thread(self, rng: random.Random, draft: Draft, test: bool) -> None:
        """States every fact, now and then with what came before or after."""
        genre = draft.genre
        if rng.random() < 0.35:
            self._aside(rng, draft, test)
        for i in range(len(draft.facts)):
            self._say(rng, draft, f"{genre}.state", test, i)
            if draft.review:
                self._say(rng, draft, genre + SIGN[draft.mood(i)], test, i)
            elif genre not in ("trip", "work", "keep") and rng.random() < 0.15:
                self._say(rng, draft, "next", test, i)

    @staticmethod
    def _group(draft: Draft, r: float, i: int) -> str:
        """Which group of templates says fact `i` again, for a number `r` drawn from 0 (0.22 but for
        lists) to 1.
        """
        genre = draft.genre
        if draft.review:
            return genre + (SIGN[draft.mood(i)] if r < 0.4 else f".{draft.mood(i)}")
        if genre == "deed" and r < 0.34:
            return f"deed.{word(draft.facts[i], 'class')}"
        if genre == "meal" and r < 0.36:
            return f"meal.{draft.mood(i)}"
        return "deed.same" if genre == "deed" and draft.same_verb and r < 0.48 else f"{genre}.again"

    def _dress(self, rng: random.Random, draft: Draft) -> None:
        """Gives every fact what the whole document shares, and reviews their films and moods."""
        town, restaurant = rng.choice(self.lexicon.towns), self.casting.restaurant(rng)
        newspaper = self.casting.newspaper(rng)
        for fact in draft.facts:
            fact.update(
                W=draft.everyone[-1], R=restaurant, L0=town, P0=draft.facts[0]["P"], G=newspaper
            )
            if draft.review:
                fact["M"] = self.casting.film(rng)
            if draft.review or draft.genre == "meal":
                fact["mood"] = {"": phrase(rng.choice(("likes", "dislikes")), "X")}

    def _say(
        self, rng: random.Random, draft: Draft, group: str, test: bool, i: int, j: int = 0
    ) -> None:
        """Renders a template of the group for fact `i` (`j` the other), if possible one not used
        for it before.
        """
        options = self.group(group, test)
        for _ in range(4):
            template = options[int(rng.random() * len(options))]
            if (template.text, 0 if draft.review else i) not in draft.used:
                break
        self._render(rng, draft, template, i, j)

    def _render(
        self, rng: random.Random, draft: Draft, template: SentenceTemplate, i: int, j: int
    ) -> None:
        draft.used.add((template.text, 0 if draft.review else i))
        for sentence in template.render(rng, draft.facts[i], draft.facts[j]):
            draft.sentences.append(sentence)
            draft.tokens += len(sentence.words)

    def _aside(self, rng: random.Random, draft: Draft, test: bool) -> None:
        """A sentence beside the thread: the town's life, or a word in one of its senses."""
        a, b = rng.sample(draft.everyone, 2)
        for fact in draft.facts:
            fact["A"], fact["B"] = a, b
        if rng.random() < 0.4:
            self._sense(rng, draft)
        else:
            self._say(rng, draft, "colour", test, 0)

    def _sense(self, rng: random.Random, draft: Draft) -> None:
        """A word in one of its senses; after a first one rather the same word and sense in another
        sentence.
        """
        choices = self.senses
        if draft.senses and rng.random() < 0.6:
            last = draft.senses[-1]["sense"]
            same = [
                one
                for one in self.senses
                if f"{one[1]}/{one[2]}" == last and (one[0].text, 0) not in draft.used
            ]
            choices = same or choices
        template, target, sense = choices[int(rng.random() * len(choices))]
        start = draft.tokens
        self._render(rng, draft, template, 0, 0)
        words = [w.lower() for w in draft.sentences[-1].words]
        draft.senses.append({"token": start + words.index(target), "sense": f"{target}/{sense}"})


def _sentiment(opinions: list[Triple]) -> str:
    """Which the opinions are: "positive", "negative" or "mixed"; "" without an opinion."""
    signs = {"positive" if mood == "like" else "negative" for _, mood, _ in opinions}
    if len(signs) > 1:
        return "mixed"
    return signs.pop() if signs else ""
