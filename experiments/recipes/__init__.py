"""How the shipped checkpoints are made: each recipe is data in recipes.yaml, and `build` runs it,
resumably.

`python -m course_lib zoo build bert-mini` makes one again, from the world's documents alone.

    documents.py    transformers pretrained on documents       Recipe
    sentences.py    a BERT made into a sentence encoder         SentenceRecipe
    words.py        ELMo; word2vec and GloVe                    ElmoRecipe, StaticRecipe
    base.py         what they share: steps, learning rate, learning curve, stopping and going on
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.training.run_folder import Point
from experiments.engine.arms import Training
from experiments.recipes.base import Job
from experiments.recipes.documents import Recipe, Run
from experiments.recipes.sentences import SentenceRecipe, SentenceRun
from experiments.recipes.words import ElmoRecipe, ElmoRun, StaticRecipe, StaticRun

JOBS: dict[type, type[Job]] = {
    Recipe: Run,
    SentenceRecipe: SentenceRun,
    ElmoRecipe: ElmoRun,
    StaticRecipe: StaticRun,
}
KINDS = dict(zip(("documents", "sentences", "elmo", "static"), JOBS, strict=True))


def _read() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, row in yaml.safe_load(
        Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8")
    ).items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
        }
        start = made.get(fields.pop("of", ""))
        made[name] = replace(start, **fields) if start else KINDS[fields.pop("recipe")](**fields)
    return made


RECIPES = _read()  # in the order of what starts from what


def build(
    name: str,
    *,
    work: str | Path = "build/checkpoints",
    to: str | Path = zoo.FOLDER,
    steps: int | None = None,
    device: str = "cpu",
) -> Iterator[Point]:
    """Make a shipped checkpoint: train by its recipe, probe, export to `to`. Resumes what `work`
    holds.

    to: folder of the finished ones, where those that it starts from must be. steps: in place of the
    recipe's; before the decay has begun, the run is the same up to there."""
    if name not in RECIPES:
        raise CourseError(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    recipe = RECIPES[name]
    if steps is not None and isinstance(recipe, Training):
        recipe = replace(recipe, steps=steps)
    job = JOBS[type(recipe)](name, recipe, Path(work) / name, Path(to))
    job.same()
    return job.build(Path(to), device)
