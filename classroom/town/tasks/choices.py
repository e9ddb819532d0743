"""Choices: which sentence goes on, whom does the pronoun mean (after the Winograd Schema
Challenge), which word ends an analogy (after Mikolov et al. 2013: king is to queen as uncle is to
... aunt)?"""

import random
from collections import defaultdict

from classroom.town.documents import Writer
from classroom.town.facts import held_out
from classroom.town.grammar import SentenceTemplate, write
from classroom.town.lexicon import Item
from classroom.town.tasks.base import Example, TownTask, of_split, order_of

CHOICES = 4


class Continuation(TownTask):
    """Four facts; the choices say all four people again, and only one with what is their own."""

    columns = ("text", "choices", "label")
    labels = ("first", "second", "third", "fourth")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.parts: dict[str, str] = {}  # of each genre the one that the choices exchange
        self.endings: dict[tuple[str, bool], list[SentenceTemplate]] = defaultdict(list)
        for row in self.table("endings.tsv", "genre", "part", "split", "template"):
            self.parts[row["genre"]] = row["part"]
            self.endings[row["genre"], row["split"] == "test"].append(
                self.template(row["template"])
            )

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        genre, part = rng.choice(list(self.parts.items()))
        facts = self.casting.scene(rng, split, genre, CHOICES)
        stated = self.writer.templates[f"{genre}.state"][split == "test"]
        text = write([rng.choice(stated).render(rng, fact)[0] for fact in facts])
        held = split == "test" and rng.random() < 0.5
        template = self.endings[genre, True][0] if held else rng.choice(self.endings[genre, False])
        right, *others = order_of(rng, CHOICES)
        owner = {right: right} | dict(zip(others, others[1:] + others[:1], strict=True))
        place = order_of(rng, CHOICES)  # which fact's person each choice is about
        choices = [
            write(template.render(rng, facts[i] | {part: facts[owner[i]][part]})) for i in place
        ]
        gold = {"genre": genre, "people": [facts[i]["X"][""][0][0] for i in place]}
        return {"text": text, "choices": choices, "label": place.index(right), "gold": gold}


class Pronouns(TownTask):
    """Two people and a pronoun (pronouns.tsv); the choices say it again with either name.

    In the template {A} and {B} are the two people. Rows "gender": they differ in gender, and the
    pronouns of {W} mean one of them. Rows "giver", "receiver": they are of the same gender, and
    what is said is true of one of them only: who gives something away no longer needs it, who gets
    it needs it."""

    columns = ("text", "choices", "label")
    labels = ("first", "second")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        kinds = ("gender", "giver", "receiver")
        self.rows = self.table("pronouns.tsv", "kind", "split", "text", "reading", kind=kinds)
        self.compile(row[side] for row in self.rows for side in ("text", "reading"))

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        row = rng.choice(
            of_split(
                [r for r in self.rows if (r["kind"] == "gender") == (rng.random() < 0.6)], split
            )
        )
        while True:
            facts, everyone, _ = self.casting.facts(rng, "gift", 1, split)
            a, b = rng.sample(everyone, 2)
            if (a["he"] == b["he"]) == (row["kind"] != "gender"):
                break
        meant = {"giver": a, "receiver": b}.get(row["kind"]) or rng.choice((a, b))
        fact = facts[0] | {"A": a, "B": b, "W": meant}
        drawn: dict[str, Item] = {}
        text = " ".join(s.text for s in self.template(row["text"]).render(rng, fact, drawn=drawn))
        people = [a, b] if rng.random() < 0.5 else [b, a]
        reading = self.template(row["reading"])
        choices = [
            reading.render(rng, fact | {"W": person}, drawn=drawn)[0].text for person in people
        ]
        gold = {"kind": row["kind"], "meant": meant[""][0][0]}
        return {"text": text, "choices": choices, "label": people.index(meant), "gold": gold}


NOUNS = ("animal", "job", "object", "plant")
VERBS = ("get", "lose", "fix", "break", "look", "move", "give", "cook", "who", "intr")
# of the base form
VERB_FORMS = {"past": "past", "third": "third", "ing": "ing", "participle": "part"}


class Analogies(TownTask):
    """a is to b as c is to which word? The wrong choices: c in another form, the right form of
    another word, and b.

    Inflections come from the lexicon; man and woman, comparatives, opposites and adverbs from
    analogies.tsv."""

    columns = ("text", "choices", "label", "relation")
    labels = ("first", "second", "third", "fourth")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.pairs: dict[str, list[tuple[str, str]]] = {}
        for row in self.table("analogies.tsv", "relation", "split", "a", "b"):
            self.pairs.setdefault(row["relation"], []).append((row["a"], row["b"]))
        pools = self.lexicon.pools
        self.pairs["plural"] = _pairs(
            [item for pool in NOUNS for item in pools[pool].items], "", "pl"
        )
        for relation, form in VERB_FORMS.items():
            self.pairs[relation] = _pairs(
                [item for pool in VERBS for item in pools[pool].items], "base", form
            )
        self.other_forms: dict[str, list[str]] = {base: [] for base, _ in self.pairs["past"]}
        for relation in VERB_FORMS:
            for base, form in self.pairs[relation]:
                if base in self.other_forms:
                    self.other_forms[base].append(form)

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        relation = rng.choice(list(self.pairs))
        pairs = self.pairs[relation]
        while True:
            i, j, k = rng.sample(range(len(pairs)), 3)
            # Held-out pairs are asked for in the test split only, and there half of the time.
            if held_out(j) == (split == "test" and rng.random() < 0.5) and not (
                held_out(i) or held_out(k)
            ):
                (a, b), (c, d), (_, other) = pairs[i], pairs[j], pairs[k]
                forms = [form for form in self.other_forms.get(c, []) if form != d] or [c]
                choices = [d, other, rng.choice(forms), b]
                if len({*choices, a, c}) == (5 if c in choices else 6):
                    break
        order = order_of(rng, 4)
        gold = {"pairs": [(a, b), (c, d)]}
        text = f"{a} is to {b} as {c} is to"
        return {
            "text": text[0].upper() + text[1:],
            "choices": [choices[n] for n in order],
            "label": order.index(0),
            "relation": relation,
            "gold": gold,
        }


def _pairs(items: list[Item], one: str, two: str) -> list[tuple[str, str]]:
    """The words of the two forms, each pair once."""
    found = dict.fromkeys((" ".join(item[one][0]), " ".join(item[two][0])) for item in items)
    return [(a, b) for a, b in found if a != b]
