"""Whom does the pronoun mean (after the Winograd Schema Challenge)? Both people stand in both readings."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.lexicon import Item
from course_lib.data.world.tasks.base import Example, Task, of_split
from course_lib.errors import CourseError


class Pronouns(Task):
    """Two people and a pronoun (pronouns.tsv); the choices say it again with either name.

    In the template {A} and {B} are the two people. Rows "gender": they differ in gender, and the pronouns of {W} mean
    one of them. Rows "giver", "receiver": they are of the same gender, and what is said is true of one of them only:
    who gives something away no longer needs it, who gets it needs it.
    """

    columns = ("text", "choices", "label")
    labels = ("first", "second")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.rows = self.table("pronouns.tsv", "kind", "split", "text", "reading")
        for row in self.rows:
            if row["kind"] not in ("gender", "giver", "receiver"):
                raise CourseError(f"pronouns.tsv: {row} needs the kind gender, giver or receiver.")
        self.compiled = {text: self.template(text) for row in self.rows for text in (row["text"], row["reading"])}

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, the two readings, the number of the right one; gold: the kind and the name that is meant."""
        row = rng.choice(of_split([r for r in self.rows if (r["kind"] == "gender") == (rng.random() < 0.6)], split))
        while True:
            facts, everyone, _ = self.casting.facts(rng, "gift", 1, split)
            a, b = rng.sample(everyone, 2)
            if (a["he"] == b["he"]) == (row["kind"] != "gender"):
                break
        meant = {"giver": a, "receiver": b}.get(row["kind"]) or rng.choice((a, b))
        fact = facts[0] | {"A": a, "B": b, "W": meant}
        drawn: dict[str, Item] = {}
        text = " ".join(s.text for s in self.compiled[row["text"]].render(rng, fact, drawn=drawn))
        people = [a, b] if rng.random() < 0.5 else [b, a]
        reading = self.compiled[row["reading"]]
        choices = [reading.render(rng, fact | {"W": person}, drawn=drawn)[0].text for person in people]
        gold = {"kind": row["kind"], "meant": meant[""][0][0]}
        return {"text": text, "choices": choices, "label": people.index(meant), "gold": gold}
