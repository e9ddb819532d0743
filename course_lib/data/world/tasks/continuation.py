"""Which sentence goes on? All four choices bring the text's people and things together, one as the text does."""

import random

from course_lib.data.world.documents import Writer
from course_lib.data.world.grammar import write
from course_lib.data.world.tasks.base import Example, Task, order_of

CHOICES = 4
# Genre: the part that the choices exchange, sentences that go on, one more for the test split.
GENRES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "deed": ("O", ("{X} {v.past} the {O} .", "The {O} was {v.part} by {X} .", "It was {X} who {v.past} the {O} ."),
             "What {X} {v.past} was the {O} ."),
    "gift": ("O", ("{X} {v.past} the {O} to {Y} .", "{Y} thanked {X} for the {O} .", "The {O} came from {X} ."),
             "{X} was the one/PRON who {v.past} the {O} to {Y} ."),
    "meal": ("F", ("{X} {v.past} the {F} .", "The {F} was {v.part} by {X} .", "It was {X} who {v.past} the {F} ."),
             "The one/PRON who {v.past} the {F} was {X} ."),
    "trip": ("P", ("{X} went to the {P} .", "{W} said that {X} had gone to the {P} .", "{X} met {Y} {P.at} ."),
             "The {P} was where {X} and {Y} met ."),
    "help": ("Y", ("{X} {v.past} {Y} .", "{Y} was {v.part} by {X} .", "It was {X} who {v.past} {Y} ."),
             "{X} was the one/PRON who {v.past} {Y} ."),
    "work": ("L", ("{X} lives in {L} .", "Who lives in {L} ? | {X} does .", "{W} knows that {X} lives in {L} ."),
             "{L} is where {X} lives ."),
    "keep": ("O", ("The {O} belongs to {X} .", "{X} owns the {O} .", "{X} keeps the {O} {P.at} ."),
             "{X} is the owner of the {O} ."),
}  # fmt: skip


class Continuation(Task):
    """Four facts; the choices say all four people again, and only one with what is their own."""

    columns = ("text", "choices", "label")
    labels = ("first", "second", "third", "fourth")

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.compiled = {
            genre: (part, [self.template(text) for text in texts], self.template(held))
            for genre, (part, texts, held) in GENRES.items()
        }

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, four choices and the right one's number; gold: the genre and whose fact it is."""
        genre = rng.choice(list(self.compiled))
        part, templates, held = self.compiled[genre]
        facts, everyone, _ = self.casting.facts(rng, genre, CHOICES, split)
        for fact in facts:
            fact.update(W=everyone[-1], v=facts[0]["v"], s=facts[0]["s"])
        stated = self.writer.templates[f"{genre}.state"][split == "test"]
        text = write([rng.choice(stated).render(rng, fact)[0] for fact in facts])
        template = held if split == "test" and rng.random() < 0.5 else rng.choice(templates)
        right, *others = order_of(rng, CHOICES)
        owner = {right: right} | dict(zip(others, others[1:] + others[:1], strict=True))
        place = order_of(rng, CHOICES)  # which fact's person each choice is about
        choices = [write(template.render(rng, facts[i] | {part: facts[owner[i]][part]})) for i in place]
        gold = {"genre": genre, "people": [facts[i]["X"][""][0][0] for i in place]}
        return {"text": text, "choices": choices, "label": place.index(right), "gold": gold}
