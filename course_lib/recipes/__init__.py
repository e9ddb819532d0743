"""How the shipped checkpoints are made: each recipe is data, and `build` runs it, resumable at any moment.

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

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.recipes.base import Job, Progress, Training
from course_lib.recipes.documents import DocumentBatches, Recipe, Run
from course_lib.recipes.sentences import SentenceRecipe, SentenceRun
from course_lib.recipes.words import ElmoRecipe, ElmoRun, StaticRecipe, StaticRun

__all__ = [
    "RECIPES",
    "DocumentBatches",
    "ElmoRecipe",
    "Job",
    "Progress",
    "Recipe",
    "Run",
    "SentenceRecipe",
    "StaticRecipe",
    "Training",
    "build",
]

AnyRecipe = Recipe | SentenceRecipe | ElmoRecipe | StaticRecipe
JOBS: dict[type, type[Job[Any]]] = {
    Recipe: Run,
    SentenceRecipe: SentenceRun,
    ElmoRecipe: ElmoRun,
    StaticRecipe: StaticRun,
}

BERT = Recipe(
    "mlm_nsp", lr=2e-3, parent="gpt-mini", pre_norm=True, steps=9_216, primer=(0, 4_096), causal=1_024, replay=0.25,
    rows=24, mask_rate=0.2, pairs=0.2,
)  # fmt: skip
GPT = Recipe("clm", lr=3e-3, steps=10_240, primer=(2_048, 2_816), replay=0.25, rows=24, pairs=0.0)
PLAIN = Recipe("mlm", rows=24, pairs=0.0)

RECIPES: dict[str, AnyRecipe] = {  # in the order of what starts from what
    "gpt-mini": GPT,
    "bert-mini": BERT,
    # The sizes read the same documents in the same order; initial weights as 1 / sqrt(width).
    "gpt-nano": replace(GPT, layers=2, width=64, heads=2, init_std=0.07),
    "gpt-tiny": replace(GPT, layers=3, width=96, heads=3, init_std=0.06),
    "gpt-small": replace(GPT, layers=5, width=192, heads=6, init_std=0.04, lr=2e-3),
    "elmo-mini": ElmoRecipe(steps=3_200, rows=24, lr=3e-3, warmup=100, probe_every=400),
    "roberta-mini": replace(BERT, objective="mlm", pairs=0.0, format="full-sentences"),
    "electra-mini": replace(PLAIN, objective="electra", steps=4_096),
    "t5-mini": replace(
        GPT, objective="span_corruption", layers=3, lr=2e-3, mask_rate=0.15, steps=5_632, primer=(1_280, 1_536),
        mimetic=0.0,
    ),
    "bart-mini": replace(BERT, objective="denoise", mask_rate=0.3, steps=4_608, primer=(0, 1_024), causal=0, pairs=0.0),
    "distilbert-mini": replace(
        PLAIN, objective="distil", teacher="bert-mini", layers=2, mask_rate=0.2, replay=0.25, steps=5_000
    ),
    "sbert-mini": SentenceRecipe(steps=3_000, rows=32, lr=5e-4, warmup=100, decay=0.5),
    "word2vec-mini": StaticRecipe("skip-gram"),
    "glove-mini": StaticRecipe("glove", epochs=50, window=10),
}  # fmt: skip


def build(
    name: str,
    *,
    work: str | Path = "build/checkpoints",
    to: str | Path = zoo.FOLDER,
    steps: int | None = None,
    device: str = "cpu",
) -> Iterator[Progress]:
    """Make a shipped checkpoint: train by its recipe, probe, export to `to`. Resumes what `work` holds.

    Args:
        name: a key of `RECIPES`. work: folder for the unfinished run. to: folder of the finished ones, where those
            that it starts from must be.
        steps: in place of the recipe's; before the decay has begun, the run is the same up to there.

    Raises:
        CourseError: unknown name, or `work` holds a run of another recipe; a checkpoint that it starts from is missing.
    """
    if name not in RECIPES:
        raise CourseError(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    recipe = RECIPES[name]
    if steps is not None and isinstance(recipe, Training):
        recipe = replace(recipe, steps=steps)
    job = JOBS[type(recipe)](name, recipe, Path(work) / name, Path(to))
    job.same()
    return job.build(Path(to), device)
