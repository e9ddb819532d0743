"""The world's tasks, by name. A new task is a subclass of `Task` in a file of its own and a line here."""

from course_lib.data.world.tasks.acceptability import Acceptability
from course_lib.data.world.tasks.base import Task
from course_lib.data.world.tasks.continuation import Continuation
from course_lib.data.world.tasks.entities import Entities
from course_lib.data.world.tasks.nli import NLI
from course_lib.data.world.tasks.sentiment import FilmSentiment, FoodSentiment, Sentiment
from course_lib.errors import CourseError

__all__ = ["TASKS", "Task", "find"]

TASKS: dict[str, type[Task]] = {
    "acceptability": Acceptability,
    "sentiment": Sentiment,
    "sentiment-food": FoodSentiment,
    "sentiment-film": FilmSentiment,
    "nli": NLI,
    "entities": Entities,
    "continuation": Continuation,
}


def find(name: str) -> type[Task]:
    """The task of this name; raises CourseError if there is none."""
    if name not in TASKS:
        raise CourseError(f"The world has no task {name!r}; choose one of {', '.join(TASKS)}.")
    return TASKS[name]
