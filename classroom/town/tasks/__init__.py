"""The world's tasks, by name. A new task is a subclass of `TownTask` and a line here.

base.py          what a task is
labels.py        labels of a text or of its words
pairs.py         two texts: entailment, paraphrase, similarity
choices.py       which ending, which referent, which word
reading.py       questions about a story, summaries
scenes.py        facts of one genre, said and asked
translation.py   into an invented language
prompted.py      what a prompt asks of a language model
"""

from classroom.town.tasks.base import TownTask
from classroom.town.tasks.choices import Analogies, Continuation, Pronouns
from classroom.town.tasks.labels import (
    Acceptability,
    Entities,
    FilmSentiment,
    FoodSentiment,
    PartsOfSpeech,
    Sentiment,
)
from classroom.town.tasks.pairs import (
    NLI,
    QNLI,
    RTE,
    Mismatched,
    Paraphrase,
    Similarity,
    WordInContext,
)
from classroom.town.tasks.prompted import Arithmetic, ArithmeticInWords, InContext, InContextRandom
from classroom.town.tasks.reading import Cloze, OpenQuestions, Questions, Retrieval, Summaries
from classroom.town.tasks.translation import Translation

__all__ = ["TASKS", "TownTask"]

TASKS: dict[str, type[TownTask]] = {
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
