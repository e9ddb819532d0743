"""How the shipped checkpoints are made: each recipe is data in recipes.yaml, and `build` runs it,
resumably.

`python -m course_lib zoo build bert-mini` makes one again, from the world's documents alone.

    documents.py    transformers pretrained on documents       Recipe
    sentences.py    a BERT made into a sentence encoder         SentenceRecipe
    words.py        ELMo; word2vec and GloVe                    ElmoRecipe, StaticRecipe
    primer.py       what the minis learn first, from pages of the world
    warm_starts.py  models that take over what another kind has learned
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
from lab.engine.arms import Training
from lab.recipes.base import Job
from lab.recipes.documents import Documents, Primer, Recipe, Run, Size, Start
from lab.recipes.sentences import SentenceRecipe, SentenceRun
from lab.recipes.words import ElmoRecipe, ElmoRun, StaticRecipe, StaticRun

JOBS: dict[type, type[Job]] = {
    Recipe: Run,
    SentenceRecipe: SentenceRun,
    ElmoRecipe: ElmoRun,
    StaticRecipe: StaticRun,
}
KINDS = dict(zip(("documents", "sentences", "elmo", "static"), JOBS, strict=True))


# Fields of a recipe that are records of their own.
PARTS = {"size": Size, "start": Start, "primer": Primer, "documents": Documents}


def _read() -> dict[str, Any]:
    path = Path(__file__).with_name("recipes.yaml")
    recipes: dict[str, Any] = {}
    for name, row in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        base = recipes.get(row.pop("of", ""))
        fields = {key: _value(key, value, base) for key, value in row.items()}
        if base is None:
            recipes[name] = KINDS[fields.pop("recipe")](**fields)
        else:
            recipes[name] = replace(base, **fields)
    return recipes


def _value(key: str, value: Any, base: Any) -> Any:
    """A field's value: lists are tuples, and a mapping changes the base's record."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    record = PARTS[key]() if base is None else getattr(base, key)
    return replace(record, **{name: _value(name, part, None) for name, part in value.items()})


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
