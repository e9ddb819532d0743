"""Parts of speech: Universal Dependencies' tags of every word."""

import random

from course_lib.data.world.tasks.base import Example, Task
from course_lib.errors import CourseError

TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "VERB",
)  # fmt: skip


class PartsOfSpeech(Task):
    """Half of the rows are a sentence of a document, half one with a word of several senses ("we play", "the play")."""

    columns = ("tokens", "labels")
    labels = TAGS

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Tokens and labels; gold: where the sentence comes from."""
        if rng.random() < 0.5:
            page, source = rng.choice(self.writer.draft(rng, split).sentences), "document"
        else:
            template, source, _ = rng.choice(self.writer.senses)
            person = self.lexicon.people[self.casting.some(rng, self.lexicon.people, 1, split)[0]]
            page = template.render(rng, {"A": person})[0]
        unknown = sorted(set(page.tags) - set(TAGS))
        if unknown:
            raise CourseError(f"The sentence {page.text!r} has the part of speech {unknown[0]!r}; there are {TAGS}.")
        return {"tokens": page.words, "labels": [TAGS.index(tag) for tag in page.tags], "gold": {"source": source}}
