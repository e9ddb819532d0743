"""Documents: a cast, two or three competing facts of one form; about half of all sentences say one of them again."""

import random
from dataclasses import dataclass, field
from typing import Any

from course_lib.data.world.facts import DEEDS, Casting, Triple, triples, word
from course_lib.data.world.grammar import Env, Sentence, Template
from course_lib.data.world.lexicon import Item, Lexicon, phrase, read_table
from course_lib.data.world.parses import unparsed
from course_lib.errors import CourseError

GENRES = {  # what a document is about, and how often
    "deed": 30, "gift": 12, "meal": 9, "trip": 9, "help": 9, "work": 9, "keep": 12, "list": 20, "own": 14,
    "foodreview": 8, "filmreview": 8,
}  # fmt: skip
LISTS = ("list", "own")  # genres that state three to six facts in one form, and then ask for them
SIGN = {"likes": ".pos", "dislikes": ".neg"}
Group = dict[bool, list[Template]]  # whether in the test split -> templates, each as often as its weight


def required_groups() -> list[str]:
    """The groups of templates that a world cannot do without."""
    groups = [
        "colour",
        "next",
        *(f"{genre}.open" for genre in LISTS),
        "deed.same",
        *(f"deed.{kind}" for kind in DEEDS),
        "meal.likes",
        "meal.dislikes",
    ]
    for genre in GENRES:
        said = ("likes", "dislikes", "pos", "neg") if genre.endswith("review") else ("again",)
        groups += [f"{genre}.{part}" for part in ("state", *said)]
    return groups


@dataclass
class Draft:
    """A document while it is written."""

    genre: str
    facts: list[Env]
    everyone: list[Item]
    same_verb: bool
    sentences: list[Sentence] = field(default_factory=list)
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
    """Writes the documents of one world. All chance comes from the generator that a call is given.

    parsed: whether a template without a parse is an error.
    """

    def __init__(self, lexicon: Lexicon, *, parsed: bool = True) -> None:
        self.lexicon = lexicon
        self.casting = Casting(lexicon)
        self.genres = [genre for genre, weight in GENRES.items() for _ in range(weight)]
        self.templates: dict[str, Group] = {}
        for row in read_table("templates.tsv", ("group", "weight", "split", "template"), lexicon.folder):
            if not row["weight"].isdigit() or row["split"] not in ("all", "test"):
                raise CourseError(
                    f"templates.tsv: {row['template']!r} has weight {row['weight']!r} and split {row['split']!r}; it "
                    "needs a whole number, and all or test."
                )
            template, held = Template(row["template"], lexicon), row["split"] == "test"
            group = self.templates.setdefault(row["group"], {False: [], True: []})
            group[True] += [template] * (int(row["weight"]) * (4 if held else 1))
            if not held:
                group[False] += [template] * int(row["weight"])
        missing = sorted(group for group in required_groups() if not self.templates.get(group, {}).get(False))
        if missing:
            raise CourseError(f"templates.tsv has no template for {', '.join(missing)} in the split all; add one.")
        self.senses: list[tuple[Template, str, str]] = []  # template, word, sense
        for row in read_table("senses.tsv", ("word", "sense", "sentence"), lexicon.folder):
            template = Template(row["sentence"].replace("{X}", "{A}"), lexicon)
            if not any(part.startswith(row["word"] + "/") for part in row["sentence"].split()):
                raise CourseError(f"senses.tsv: the sentence {row['sentence']!r} does not mark {row['word']}/TAG.")
            self.senses.append((template, row["word"], row["sense"]))
        lacking = [text for text, known in lexicon.compiled.items() if not known]
        if parsed and lacking:
            raise unparsed(lacking[0])

    def document(self, rng: random.Random, split: str, genre: str = "") -> dict[str, Any]:
        """One document; see World.document."""
        draft = self.draft(rng, split, genre)
        heads: list[int] = []
        deprels: list[str] = []
        mentions: list[dict[str, int | str]] = []
        for page in draft.sentences:
            mentions += [{"start": a, "end": b, "entity": name} for a, b, name in page.mentions(len(heads))]
            tree = page.tree(len(heads))
            heads += tree[0]
            deprels += tree[1]
        texts = [sentence.text for sentence in draft.sentences]
        opinions = self._opinions(draft)
        moods = {"positive" if opinion[1] == "like" else "negative" for opinion in opinions}
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
            "sentiment": "" if not moods else moods.pop() if len(moods) == 1 else "mixed",
            "genre": draft.genre,
        }

    def _opinions(self, draft: Draft) -> list[Triple]:
        """Who likes or dislikes what: every fact of a review, and of a meal where a sentence tells it."""
        if draft.review:
            return triples(draft.genre, draft.facts)
        if draft.genre != "meal":
            return []
        told = {i for i in range(len(draft.facts)) for t in self._moods(draft.mood(i)) if (t.text, i) in draft.used}
        return [(word(draft.facts[i], "X"), draft.mood(i)[:-1], word(draft.facts[i], "F")) for i in sorted(told)]

    def _moods(self, mood: str) -> list[Template]:
        """The templates that tell whether somebody likes a meal."""
        return self.templates[f"meal.{mood}"][True]

    def draft(self, rng: random.Random, split: str, genre: str = "") -> Draft:
        """A document as sentences, with what it says and in which mood; of this genre, if one is named."""
        test = split == "test"
        drawn = self.genres[int(rng.random() * len(self.genres))]
        genre = genre or drawn
        k = rng.randint(3, 6) if genre in LISTS else 2 if rng.random() < 0.6 else 3
        draft = Draft(genre, *self.casting.facts(rng, genre, k, split))
        self._dress(rng, draft)
        # Short enough for a row of 128 tokens; now and then a long one.
        length = 105 + 25 * rng.random() if rng.random() < 0.04 else min(96.0, max(45.0, rng.gauss(74, 14)))
        if genre in LISTS:
            length = max(length, 16.0 * k)  # room to ask for most of them
            self._list(rng, draft, test)
        else:
            self._thread(rng, draft, test)
        while draft.tokens < length:
            r = rng.random()
            i = int(rng.random() * k)
            j = (i + 1 + int(rng.random() * (k - 1))) % k
            if r < (0.06 if genre in LISTS else 0.22):
                self._aside(rng, draft, test)
            else:
                self._say(rng, draft, self._group(draft, r, i), test, i, j)
        return draft

    def _list(self, rng: random.Random, draft: Draft, test: bool) -> None:
        """Facts in one form one after another: who reads it must tell three to six apart."""
        self._say(rng, draft, f"{draft.genre}.open", test, 0)
        options = self.templates[f"{draft.genre}.state"][test]
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
        """Which group of templates says fact `i` again, for a number `r` drawn from 0 (0.22 but for lists) to 1."""
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
            fact.update(W=draft.everyone[-1], R=restaurant, L0=town, P0=draft.facts[0]["P"], G=newspaper)
            if draft.review:
                fact["M"] = self.casting.film(rng)
            if draft.review or draft.genre == "meal":
                fact["mood"] = {"": phrase(rng.choice(("likes", "dislikes")), "X")}

    def _say(self, rng: random.Random, draft: Draft, group: str, test: bool, i: int, j: int = 0) -> None:
        """Renders a template of the group for fact `i` (`j` the other), if possible one not used for it before."""
        options = self.templates[group][test]
        for _ in range(4):
            template = options[int(rng.random() * len(options))]
            if (template.text, 0 if draft.review else i) not in draft.used:
                break
        self._render(rng, draft, template, i, j)

    def _render(self, rng: random.Random, draft: Draft, template: Template, i: int, j: int) -> None:
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
        """A word in one of its senses; after a first one rather the same word and sense in another sentence."""
        choices = list(range(len(self.senses)))
        if draft.senses and rng.random() < 0.6:
            last = draft.senses[-1]["sense"]
            choices = [
                i for i in choices if "/".join(self.senses[i][1:]) == last and not self._said(draft, i)
            ] or choices
        template, target, sense = self.senses[choices[int(rng.random() * len(choices))]]
        start = draft.tokens
        self._render(rng, draft, template, 0, 0)
        words = [w.lower() for w in draft.sentences[-1].words]
        draft.senses.append({"token": start + words.index(target), "sense": f"{target}/{sense}"})

    def _said(self, draft: Draft, sense: int) -> bool:
        return (self.senses[sense][0].text, 0) in draft.used
