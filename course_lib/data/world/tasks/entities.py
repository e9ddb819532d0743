"""Which words name a person, a town, a newspaper or restaurant, a film? Many names are also something else."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.lexicon import Item
from course_lib.data.world.tasks.base import Example, Task, of_split

KINDS = ("PERSON", "LOC", "ORG", "WORK")


class Entities(Task):
    """Half of the rows are sentences of documents, half name people and towns whose names are alike: naming.tsv."""

    columns = ("tokens", "labels")
    labels = ("O", *(f"{mark}-{kind}" for kind in KINDS for mark in "BI"))

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.rows = self.table("naming.tsv", "split", "template")
        self.compiled = {row["template"]: self.template(row["template"]) for row in self.rows}
        towns = {town[""][0][0] for town in self.lexicon.towns}
        self.alike = [person for person in self.lexicon.people if person[""][0][0] in towns]
        people = {person[""][0][0] for person in self.alike}
        self.twins = [town for town in self.lexicon.towns if town[""][0][0] in people]

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Tokens and labels (BIO); gold: where the sentence comes from."""
        if rng.random() < 0.5:
            while True:
                pages = self.writer.draft(rng, split).sentences
                pages = [page for page in pages if any(mark != "O" for mark in page.entities)]
                if pages:
                    page, source = rng.choice(pages), "document"
                    break
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
            page, source = self.compiled[row["template"]].render(rng, fact)[0], row["split"]
        labels = [self.labels.index(mark) for mark in page.entities]
        return {"tokens": page.words, "labels": labels, "gold": {"source": source}}

    @staticmethod
    def _unlike(rng: random.Random, items: list[Item], other: Item) -> Item:
        """One of the items, with another name than `other`."""
        return rng.choice([item for item in items if item[""][0] != other[""][0]])
