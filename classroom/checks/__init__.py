"""The students' checks: `checks.softmax_attention(fn)` prints what is right or names the likely
mistake.

Each is an `Exercise`, declared in `classroom/lessons/<name>/exercises.py`; calling it returns a
`CheckResult`, true if the answer is right. Nobody lists them: the first question for a name imports
the exercises of all lessons, and `dir(checks)` has their names.

    exercise.py   how an exercise is declared
    base.py       how a check decides and what it says
    homework.py   the checks of the homework
"""

from functools import cache
from importlib import import_module

from classroom import course
from classroom.checks.base import CheckResult
from classroom.checks.exercise import Exercise
from course_lib.errors import CourseError

__all__ = ["CheckResult", "exercises"]


@cache
def exercises() -> dict[str, Exercise]:
    """The exercises of all lessons by their names, in the order of the course."""
    found: dict[str, Exercise] = {}
    for lesson in course.names():
        if not (course.folder(lesson) / "exercises.py").exists():
            continue
        module = import_module(f"classroom.lessons.{course.folder(lesson).name}.exercises")
        for name, value in vars(module).items():
            if not isinstance(value, Exercise):
                continue
            # a lesson may import another's exercise, but none may take its name
            if found.setdefault(name, value) is not value:
                raise CourseError(f"Two lessons have an exercise {name}; rename one of them.")
    return found


def __getattr__(name: str) -> Exercise:
    """`checks.mask_tokens` is the exercise of this name."""
    if not name.startswith("_") and name in exercises():
        return exercises()[name]
    raise AttributeError(f"There is no exercise {name!r}.")


def __dir__() -> list[str]:
    """The exercises' names, for an editor's list of what may follow the dot."""
    return [*__all__, *exercises()]
