"""A sentence encoder from a pretrained BERT, as Sentence-BERT was made: inference first, then
graded similarity.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from course_lib import zoo
from course_lib.analysis.sts import sts
from course_lib.data import tokenizers
from course_lib.data.embedders import SentenceEncoder
from course_lib.data.text_batches import TextBatches
from course_lib.families.sentence import (
    PairClassifier,
    Sentence,
    cosine_regression,
)
from course_lib.model.config import Pool
from course_lib.objectives import losses
from lab.engine.lab import Made
from lab.recipes.base import RecipeTraining, Scores, TrainingJob

BEST = 5.0  # the grade of two texts that say the same
ASKED = 1000


@dataclass(frozen=True)
class SentenceRecipe(RecipeTraining):
    """A pretrained encoder, and what it is fine-tuned on (Reimers and Gurevych 2019, section 4.2:
    NLI, then STS).

    rows: pairs a batch. parent: the checkpoint it starts from. inference: so many of the steps
    classify the pairs of the task "nli" by (u, v, |u - v|); the rest make the cosine that of the
    graded pairs of "similarity". pairs: of each of the two tasks. length: most tokens of a text.
    """

    parent: str = "bert-mini"
    inference: int = 1000
    pairs: int = 20_000
    pool: Pool = "mean"
    length: int = 96


@dataclass(frozen=True)
class SentenceRun(TrainingJob):
    """A sentence encoder's recipe at work in its folder."""

    recipe: SentenceRecipe

    @property
    def data(self) -> str:
        return (
            f"World({self.recipe.world}): {self.recipe.pairs:,} pairs of nli and as many of"
            " similarity, split train"
        )

    @property
    def starts_from(self) -> list[str]:
        return [self.recipe.parent]

    @cached_property
    def start(self) -> zoo.Loaded:
        return zoo.load(self.recipe.parent, folder=self.shipped)

    @property
    def tokenizer(self) -> tokenizers.Tokenizer:
        return cast(tokenizers.Tokenizer, self.start.tokenizer)

    def model(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        return PairClassifier(
            Sentence(self.start.model.stack, self.recipe.pool), len(self.world.label_names("nli"))
        )

    def batches(self) -> Made:
        """Those of the inference for so many steps, then those of the similarity."""
        recipe = self.recipe
        options: dict[str, Any] = {
            "batch": recipe.rows,
            "seed": recipe.seed,
            "max_length": recipe.length,
        }

        def task(name: str, best: float | None) -> TextBatches:
            rows = self.world.task(name, recipe.pairs, "train", recipe.seed)
            return TextBatches(rows, self.tokenizer, best=best, **options)

        nli, graded, steps = task("nli", None), task("similarity", BEST), recipe.inference
        return Made(lambda step: nli[step] if step < steps else graded[step - steps])

    @staticmethod
    def loss(model: nn.Module, batch: losses.Batch) -> Tensor:
        """Classes by the softmax, grades by the cosine."""
        if batch["labels"].is_floating_point():
            return cosine_regression(cast(nn.Module, model.sentence), batch)
        return losses.classification(model, batch)

    def probe(self, model: nn.Module) -> Scores:
        """Spearman's correlation of the cosines with the grades of validation pairs."""
        return {"similarity": self._similarity(model, "validation")}

    def scores(self, model: nn.Module) -> Scores:
        """The same on the test split, whose people and sentences training never showed."""
        return {"similarity test": self._similarity(model, "test")}

    def exports(self, model: nn.Module) -> dict[str, nn.Module]:
        return {self.name: cast(nn.Module, model.sentence)}

    def _similarity(self, model: nn.Module, split: str) -> float:
        rows = self.world.task("similarity", ASKED, split, seed=1)
        encoder = SentenceEncoder(cast(Sentence, model.sentence), self.tokenizer)
        return sts(
            encoder, *([row[name] for row in rows] for name in ("text", "pair", "label")), batch=64
        )
