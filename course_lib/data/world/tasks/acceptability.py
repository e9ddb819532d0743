"""Is this a sentence? Minimal pairs that differ in one word, so that no word by itself tells (after CoLA and BLiMP)."""

import random
import re

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import write
from course_lib.data.world.lexicon import Item
from course_lib.data.world.tasks.base import Example, Task, of_split, order_of
from course_lib.errors import CourseError

ARTICLE = "~article"


class Acceptability(Task):
    """Agreement with and without distractors, reflexives, gender, case, articles, verb forms, word order: pairs.tsv.

    Where the bad side is ~article, it is the good one with "a" for "an" or the other way round.
    """

    columns = ("text", "label")
    labels = ("unacceptable", "acceptable")
    group = 2

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.pairs = self.table("pairs.tsv", "rule", "split", "good", "bad")
        texts = {row[side] for row in self.pairs for side in ("good", "bad")} - {ARTICLE}
        self.compiled = {text: self.template(text) for text in sorted(texts)}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text and label; gold: the rule and the other half of the pair."""
        rules = of_split(self.pairs, split)
        label = order_of(rng, 2)[member]
        for _ in range(100):
            row = rng.choice(rules)
            facts, everyone, _ = self.casting.facts(rng, "deed", 1, split)
            fact = facts[0] | {"A": everyone[2], "B": everyone[3]}
            drawn: dict[str, Item] = {}
            good = write(self.compiled[row["good"]].render(rng, fact, drawn=drawn))
            bad = wrong_article(good)
            if row["bad"] != ARTICLE:
                bad = write(self.compiled[row["bad"]].render(rng, fact, drawn=drawn))
            if good != bad:  # "has run" and "run" are written alike
                gold = {"rule": row["rule"], "split": row["split"], "other": bad if label else good}
                return {"text": good if label else bad, "label": label, "gold": gold}
        raise CourseError(f"pairs.tsv: the good and the bad side of {row['good']!r} come out alike every time.")


def wrong_article(text: str) -> str:
    """The text with its first "a" made "an", or its first "an" made "a"."""
    return re.sub(r"\b(an?)\b", lambda found: "a" if found.group() == "an" else "an", text, count=1)
