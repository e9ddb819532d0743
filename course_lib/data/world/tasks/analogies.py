"""Word analogies (after Mikolov et al. 2013): king is to queen as uncle is to ... aunt."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.facts import held_out
from course_lib.data.world.lexicon import Item
from course_lib.data.world.tasks.base import Example, Task, order_of
from course_lib.errors import CourseError

NOUNS = ("animal", "job", "object", "plant")
VERBS = ("get", "lose", "fix", "break", "look", "move", "give", "cook", "who", "intr")
VERB_FORMS = {"past": "past", "third": "third", "ing": "ing", "participle": "part"}  # of the base form


class Analogies(Task):
    """a is to b as c is to which word? The wrong choices: c in another form, the right form of another word, and b.

    Inflections come from the lexicon; man and woman, comparatives, opposites and adverbs from analogies.tsv.
    """

    columns = ("text", "choices", "label", "relation")
    labels = ("first", "second", "third", "fourth")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.pairs: dict[str, list[tuple[str, str]]] = {}
        for row in self.table("analogies.tsv", "relation", "split", "a", "b"):
            self.pairs.setdefault(row["relation"], []).append((row["a"], row["b"]))
        pools = self.lexicon.pools
        self.pairs["plural"] = _pairs([item for pool in NOUNS for item in pools[pool].items], "", "pl")
        for relation, form in VERB_FORMS.items():
            self.pairs[relation] = _pairs([item for pool in VERBS for item in pools[pool].items], "base", form)
        for relation, pairs in self.pairs.items():
            if len(pairs) < 4:
                raise CourseError(f"The relation {relation!r} has {len(pairs)} pairs; an analogy needs at least 4.")
        self.other_forms = {
            base: [form for relation in VERB_FORMS for word, form in self.pairs[relation] if word == base]
            for base, _ in self.pairs["past"]
        }

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, four choices, the right one's number, the relation; gold: the two pairs."""
        relation = rng.choice(list(self.pairs))
        pairs = self.pairs[relation]
        while True:
            i, j, k = rng.sample(range(len(pairs)), 3)
            # Held-out pairs are asked for in the test split only, and there half of the time.
            if held_out(j) == (split == "test" and rng.random() < 0.5) and not (held_out(i) or held_out(k)):
                (a, b), (c, d), (_, other) = pairs[i], pairs[j], pairs[k]
                forms = [form for form in self.other_forms.get(c, []) if form != d] or [c]
                choices = [d, other, rng.choice(forms), b]
                if len({*choices, a, c}) == (5 if c in choices else 6):
                    break
        order = order_of(rng, 4)
        gold = {"pairs": [(a, b), (c, d)]}
        text = f"{a} is to {b} as {c} is to"
        return {
            "text": text[0].upper() + text[1:], "choices": [choices[n] for n in order], "label": order.index(0),
            "relation": relation, "gold": gold,
        }  # fmt: skip


def _pairs(items: list[Item], one: str, two: str) -> list[tuple[str, str]]:
    """The words of the two forms, each pair once."""
    found = dict.fromkeys((" ".join(item[one][0]), " ".join(item[two][0])) for item in items)
    return [(a, b) for a, b in found if a != b]
