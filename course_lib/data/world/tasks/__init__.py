"""The world's tasks, by name. A new task is a subclass of `Task` in a file of its own and a line here."""

from course_lib.data.world.tasks.acceptability import Acceptability
from course_lib.data.world.tasks.analogies import Analogies
from course_lib.data.world.tasks.arithmetic import Arithmetic, ArithmeticInWords
from course_lib.data.world.tasks.base import Task
from course_lib.data.world.tasks.cloze import Cloze, Summaries
from course_lib.data.world.tasks.continuation import Continuation
from course_lib.data.world.tasks.entailment import QNLI, RTE, Mismatched
from course_lib.data.world.tasks.entities import Entities
from course_lib.data.world.tasks.incontext import InContext, InContextRandom
from course_lib.data.world.tasks.nli import NLI
from course_lib.data.world.tasks.paraphrase import Paraphrase, Similarity
from course_lib.data.world.tasks.pos import PartsOfSpeech
from course_lib.data.world.tasks.pronouns import Pronouns
from course_lib.data.world.tasks.questions import OpenQuestions, Questions, Retrieval
from course_lib.data.world.tasks.sentiment import FilmSentiment, FoodSentiment, Sentiment
from course_lib.data.world.tasks.translation import Translation
from course_lib.data.world.tasks.wic import WordInContext
from course_lib.errors import CourseError

__all__ = ["TASKS", "Task", "find"]

TASKS: dict[str, type[Task]] = {
    "acceptability": Acceptability,
    "sentiment": Sentiment,
    "sentiment-food": FoodSentiment,
    "sentiment-film": FilmSentiment,
    "paraphrase": Paraphrase,
    "similarity": Similarity,
    "nli": NLI,
    "nli-mismatched": Mismatched,
    "rte": RTE,
    "qnli": QNLI,
    "pronouns": Pronouns,
    "wic": WordInContext,
    "continuation": Continuation,
    "cloze": Cloze,
    "questions": Questions,
    "questions-open": OpenQuestions,
    "retrieval": Retrieval,
    "pos": PartsOfSpeech,
    "entities": Entities,
    "summaries": Summaries,
    "translation": Translation,
    "arithmetic": Arithmetic,
    "arithmetic-words": ArithmeticInWords,
    "analogies": Analogies,
    "in-context": InContext,
    "in-context-random": InContextRandom,
}


def find(name: str) -> type[Task]:
    """The task of this name; raises CourseError if there is none."""
    if name not in TASKS:
        raise CourseError(f"The world has no task {name!r}; choose one of {', '.join(TASKS)}.")
    return TASKS[name]
