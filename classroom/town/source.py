"""The town as a data source: `data.corpus("world")`, `data.task("world/nli")`
(course_lib.data.sources).
"""

from functools import cache
from typing import Any

from classroom.town import World

TOWN = 0  # the seed of the world itself; the shipped checkpoints learned this town's words
DOCUMENTS = 2000  # of an endless corpus, if no number is asked for
EXAMPLES = 1000  # of an endless task, if no number is asked for


@cache
def _town() -> World:
    return World(TOWN)


def documents(n: int | None, split: str, seed: int) -> list[dict[str, Any]]:
    """Documents with all their gold annotations (`World.document`)."""
    return _town().documents(DOCUMENTS if n is None else n, split, seed)


def examples(task: str, n: int | None, split: str, seed: int) -> list[dict[str, Any]]:
    """Labelled examples of a task (`World.task`)."""
    return _town().task(task, EXAMPLES if n is None else n, split, seed)


def label_names(task: str) -> tuple[str, ...]:
    """The names of a task's classes."""
    return _town().label_names(task)
