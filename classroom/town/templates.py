"""How the town's tasks are worded for a language model: wordings.json, the plainest first."""

from classroom.town.lexicon import FOLDER
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.generation.templates import Template

WORLD: dict[str, tuple[Template, ...]] = {
    task: tuple(
        Template(**wording | {"words": tuple(wording.get("words", ()))}) for wording in wordings
    )
    for task, wordings in read_json(FOLDER / "wordings.json").items()
}


def world_template(task: str, wording: int = 0) -> Template:
    """How a task of the world is worded; `wording` counts the ways from 0."""
    if task not in WORLD:
        raise CourseError(
            f"There is no template for the task {task!r}; there are some for {', '.join(WORLD)}."
        )
    if not 0 <= wording < len(WORLD[task]):
        raise CourseError(
            f"The task {task!r} is worded in {len(WORLD[task])} ways, 0 and up; {wording} is none."
        )
    return WORLD[task][wording]
