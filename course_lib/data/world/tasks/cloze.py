"""The last word, which only the text before decides (after LAMBADA), and summaries of a story."""

import random

from course_lib.data.world.grammar import Template
from course_lib.data.world.tasks.base import Example
from course_lib.data.world.tasks.scenes import GENRES, PART, SceneTask

FACTS = 3


class Cloze(SceneTask):
    """Three facts and the beginning of a sentence about one of them; the choices are that word of each fact."""

    columns = ("text", "answer", "choices", "label")
    labels = ("first", "second", "third")

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Text, its last word `answer`, the choices, the right one's number; gold: the genre and the part."""
        while True:
            genre = rng.choice(GENRES)
            saying = self.scenes.saying(rng, split, genre, rng.choice(("state", "again")))
            part = _last_part(saying.template)
            if part and len(saying.parts) > 1:
                break
        facts = self.scenes.facts(rng, split, genre, FACTS)
        story = self.scenes.story(rng, split, genre, facts)
        asked = rng.choice(facts)
        beginning, answer = saying.say(rng, asked).removesuffix(".").rsplit(" ", 1)
        choices = [fact[part][""][0][-1] for fact in facts]
        text = " ".join([*story, beginning])
        gold = {"genre": genre, "part": part}
        return {"text": text, "answer": answer, "choices": choices, "label": choices.index(answer), "gold": gold}


def _last_part(template: Template) -> str:
    """Which part of the fact ends the template, "" if none does."""
    found = PART.match(template.text.split()[-2])
    return found.group(1) if found else ""


class Summaries(SceneTask):
    """A document, and in one sentence who did what in it."""

    columns = ("text", "target")
    labels = ()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Story `text`, summary `target`; gold: the genre and its people."""
        while True:
            draft = self.writer.draft(rng, split)
            if draft.genre in GENRES and len(draft.facts) <= FACTS:
                break
        core = self.scenes.saying(rng, split, draft.genre, "core")
        clauses = [core.say(rng, fact) for fact in draft.facts]
        target = f"In short, {', '.join(clauses[:-1])}, and {clauses[-1]}."
        gold = {"genre": draft.genre, "people": [fact["X"][""][0][0] for fact in draft.facts]}
        return {"text": " ".join(page.text for page in draft.sentences), "target": target, "gold": gold}
