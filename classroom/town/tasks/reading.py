"""Reading a story: where is a question's answer (after SQuAD), is there one, which passage has it;
the last word, which only the text before decides (after LAMBADA); summaries."""

import random
from typing import ClassVar

from classroom.town.facts import until
from classroom.town.grammar import SentenceTemplate
from classroom.town.tasks.base import Example, balanced
from classroom.town.tasks.scenes import (
    GENRES,
    PART,
    SceneTask,
    answer_to,
    exchange,
    exchangeable,
    find_answer,
)

FACTS = 3
PARTED = ((1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))  # orders that part the first fact


class Questions(SceneTask):
    """Three facts of one form; the question is about one of them, and its answer stands in the text
    once.
    """

    columns: ClassVar[tuple[str, ...]] = ("text", "pair", "answer", "start", "answers")
    labels: ClassVar[tuple[str, ...]] = ()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        return self._ask(rng, split, least=1, answerable=True)

    def _ask(self, rng: random.Random, split: str, least: int, *, answerable: bool) -> Example:
        """A row whose question names at least so many parts; one of them is another fact's if it
        has no answer.
        """
        while True:
            question = self.question(rng, split, least)
            genre = question.genre
            named = exchangeable(genre, question.parts)
            if not answerable and not named:
                continue
            facts = self.casting.scene(rng, split, genre, FACTS)
            asked = rng.choice(facts)
            story = self.story(rng, split, genre, facts)
            context = " ".join(story)
            answer = answer_to(question.use, asked)
            start = find_answer(context, answer)
            if start is None:
                continue
            gold = {"genre": genre, "asks": question.use, "person": asked["X"][""][0][0]}
            if not answerable:
                other = rng.choice([fact for fact in facts if fact is not asked])
                asked = exchange(asked, other, rng.choice(named))
                return _row(question.say(rng, asked), context, "", -1, gold)
            return _row(
                question.say(rng, asked), context, context[start : start + len(answer)], start, gold
            )


class OpenQuestions(Questions):
    """Half of the questions have no answer (after SQuAD 2.0): they bring together what two facts
    tell.

    `label` says whether there is one, so that the task can also be done as one of two texts.
    """

    columns = ("text", "pair", "answer", "start", "answers", "label")
    labels = ("unanswerable", "answerable")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        label, rng = balanced(rng, member, 2)
        return self._ask(rng, split, least=2, answerable=bool(label)) | {"label": label}


class Retrieval(SceneTask):
    """A question and four passages of the same words: in one the facts that it names belong
    together.
    """

    columns = ("query", "positive", "negatives")
    labels = ()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        question = until(
            lambda: self.question(rng, split, least=2), lambda q: exchangeable(q.genre, q.parts)
        )
        genre, named = question.genre, exchangeable(question.genre, question.parts)
        facts = self.casting.scene(rng, split, genre, FACTS)
        part = rng.choice(named)
        passages = []
        for order in ((0, 1, 2), *rng.sample(PARTED, 3)):
            story = self.story(
                rng,
                split,
                genre,
                [exchange(fact, facts[i], part) for fact, i in zip(facts, order, strict=True)],
            )
            rng.shuffle(story)
            passages.append(" ".join(story))
        gold = {"genre": genre, "asks": question.use}
        return {
            "query": question.say(rng, facts[0]),
            "positive": passages[0],
            "negatives": passages[1:],
            "gold": gold,
        }


def _row(text: str, pair: str, answer: str, start: int, gold: dict[str, str]) -> Example:
    answers = [answer] if start >= 0 else []
    return {
        "text": text,
        "pair": pair,
        "answer": answer,
        "start": start,
        "answers": answers,
        "gold": gold,
    }


class Cloze(SceneTask):
    """Three facts and the beginning of a sentence about one of them; the choices are that word of
    each fact.
    """

    columns = ("text", "answer", "choices", "label")
    labels = ("first", "second", "third")

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        while True:
            genre = rng.choice(GENRES)
            saying = self.saying(rng, split, genre, rng.choice(("state", "again")))
            part = _last_part(saying.template)
            if part and len(saying.parts) > 1:
                break
        facts = self.casting.scene(rng, split, genre, FACTS)
        story = self.story(rng, split, genre, facts)
        asked = rng.choice(facts)
        beginning, answer = saying.say(rng, asked).removesuffix(".").rsplit(" ", 1)
        choices = [fact[part][""][0][-1] for fact in facts]
        text = " ".join([*story, beginning])
        gold = {"genre": genre, "part": part}
        return {
            "text": text,
            "answer": answer,
            "choices": choices,
            "label": choices.index(answer),
            "gold": gold,
        }


def _last_part(template: SentenceTemplate) -> str:
    """Which part of the fact ends the template, "" if none does."""
    found = PART.match(template.text.split()[-2])
    return found.group(1) if found else ""


class Summaries(SceneTask):
    """A document, and in one sentence who did what in it."""

    columns = ("text", "target")
    labels = ()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        draft = until(
            lambda: self.writer.draft(rng, split),
            lambda d: d.genre in GENRES and len(d.facts) <= FACTS,
        )
        core = self.saying(rng, split, draft.genre, "core")
        clauses = [core.say(rng, fact) for fact in draft.facts]
        target = f"In short, {', '.join(clauses[:-1])}, and {clauses[-1]}."
        gold = {"genre": draft.genre, "people": [fact["X"][""][0][0] for fact in draft.facts]}
        return {
            "text": " ".join(page.text for page in draft.sentences),
            "target": target,
            "gold": gold,
        }
