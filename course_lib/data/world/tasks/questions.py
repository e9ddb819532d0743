"""Questions: where in the text is the answer (after SQuAD), is there one, and which passage has it?"""

import random
from typing import ClassVar

from course_lib.data.world.tasks.base import Example, balanced
from course_lib.data.world.tasks.scenes import SceneTask, answer_to, exchange, exchangeable, find_answer

FACTS = 3
PARTED = ((1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))  # orders that part the first fact


class Questions(SceneTask):
    """Three facts of one form; the question is about one of them, and its answer stands in the text once."""

    columns: ClassVar[tuple[str, ...]] = ("text", "pair", "answer", "start", "answers")
    labels: ClassVar[tuple[str, ...]] = ()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Question `text`, context `pair`, the answer, its first character; gold: genre, what is asked, whose fact."""
        return self._ask(rng, split, least=1, answerable=True)

    def _ask(self, rng: random.Random, split: str, least: int, *, answerable: bool) -> Example:
        """A row whose question names at least so many parts; one of them is another fact's if it has no answer."""
        while True:
            question = self.scenes.question(rng, split, least)
            genre = question.genre
            named = exchangeable(genre, question.parts)
            if not answerable and not named:
                continue
            facts = self.scenes.facts(rng, split, genre, FACTS)
            asked = rng.choice(facts)
            story = self.scenes.story(rng, split, genre, facts)
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
            return _row(question.say(rng, asked), context, context[start : start + len(answer)], start, gold)


class OpenQuestions(Questions):
    """Half of the questions have no answer (after SQuAD 2.0): they bring together what two facts tell.

    `label` says whether there is one, so that the task can also be done as one of two texts.
    """

    columns = ("text", "pair", "answer", "start", "answers", "label")
    labels = ("unanswerable", "answerable")
    group = 2

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """As `Questions`; without an answer, `answer` is "", `start` is -1 and `answers` is empty."""
        label, rng = balanced(rng, member, 2)
        return self._ask(rng, split, least=2, answerable=bool(label)) | {"label": label}


class Retrieval(SceneTask):
    """A question and four passages of the same words: in one the facts that it names belong together."""

    columns = ("query", "positive", "negatives")
    labels = ()

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Query, the passage that answers it, three that do not; gold: genre and what is asked."""
        while True:
            question = self.scenes.question(rng, split, least=2)
            genre = question.genre
            if named := exchangeable(genre, question.parts):
                break
        facts = self.scenes.facts(rng, split, genre, FACTS)
        part = rng.choice(named)
        passages = []
        for order in ((0, 1, 2), *rng.sample(PARTED, 3)):
            story = self.scenes.story(
                rng, split, genre, [exchange(fact, facts[i], part) for fact, i in zip(facts, order, strict=True)]
            )
            rng.shuffle(story)
            passages.append(" ".join(story))
        gold = {"genre": genre, "asks": question.use}
        return {"query": question.say(rng, facts[0]), "positive": passages[0], "negatives": passages[1:], "gold": gold}


def _row(text: str, pair: str, answer: str, start: int, gold: dict[str, str]) -> Example:
    answers = [answer] if start >= 0 else []
    return {"text": text, "pair": pair, "answer": answer, "start": start, "answers": answers, "gold": gold}
