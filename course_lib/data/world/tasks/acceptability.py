"""Is this a sentence? Minimal pairs that differ in one word, so that no word by itself tells (after CoLA and BLiMP)."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import write
from course_lib.data.world.lexicon import Item
from course_lib.data.world.tasks.base import Example, Task, of_split, order_of
from course_lib.errors import CourseError


class Acceptability(Task):
    """Agreement past distractors, reflexives, tense, auxiliaries, questions, word order: pairs.tsv."""

    columns = ("text", "label")
    labels = ("unacceptable", "acceptable")
    group = 2

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.pairs = self.table("pairs.tsv", "rule", "split", "good", "bad")
        self.compiled = {text: self.template(text) for row in self.pairs for text in (row["good"], row["bad"])}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text and label; gold: the rule and the other half of the pair."""
        rules = of_split(self.pairs, split)
        label = order_of(rng, 2)[member]
        for _ in range(100):
            row = rng.choice(rules)
            facts, everyone, _ = self.casting.facts(rng, "deed", 1, split)
            fact = facts[0] | {"A": everyone[2], "B": everyone[3]}
            drawn: dict[str, Item] = {}
            good, bad = (write(self.compiled[row[side]].render(rng, fact, drawn=drawn)) for side in ("good", "bad"))
            if good != bad:  # "has run" and "run" are written alike
                gold = {"rule": row["rule"], "split": row["split"], "other": bad if label else good}
                return {"text": good if label else bad, "label": label, "gold": gold}
        raise CourseError(f"pairs.tsv: the good and the bad side of {row['good']!r} come out alike every time.")
