"""The experiment of lesson 13: does a student need a teacher?

The student has three of MiniLM's six layers. The teacher is MiniLM, tuned on few labelled texts.
The student learns from the teacher's probabilities, on the labelled and on many other texts; or
from the labels alone, for as many FLOPs at most.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import nn

from course_lib import data, zoo
from course_lib.data.inputs import Frame, TaskBatches
from course_lib.families import distilbert
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import distillation, losses
from course_lib.training.distill import Distilled
from course_lib.training.fine_tuned import answers, score
from lab.lessons import Lab, experiment, fit, given, linear_config
from lab.real.baselines import linear

CLASSES = ["negative", "positive"]
COLUMNS = {"text": 0, "label": 1}
TOKENS = 24  # of a text, at most
GIVEN = given("distilbert")
SIZES: dict[str, dict[str, Any]] = GIVEN["sizes"]


@dataclass(frozen=True)
class Training:
    """How a model is trained.

    Attributes:
        lr: peak learning rate.
        epochs: over its rows.
        batch: rows of a batch.
    """

    lr: float
    epochs: int
    batch: int = 16


TRAININGS = {name: Training(**values) for name, values in GIVEN["trainings"].items()}
PENALTY: float = GIVEN["penalty"]
SOFT = partial(distillation.classification, temperature=1.0, soft=1.0, hard=0.0)


class Setup:
    """SST-2's short sentences: few with labels, others without, and rows to score.

    Args:
        lab: has the data.
        seed: of the draw of the labelled rows and of all trainings.
        split: of the rows to score; a pilot takes "validation".
    """

    def __init__(self, lab: Lab, seed: int, split: str = "test") -> None:
        size = SIZES[lab.plan.scale]
        self.lab = lab
        self.seed = seed
        model, self.tokenizer, _ = zoo.open_model(size["model"])
        self.body: Transformer = model.stack
        self.frame = Frame(self.tokenizer, self.student_body().config, "single", classes=2)
        pool = self.short("train").shuffle(seed=seed)
        labels = min(size["labels"], len(pool) // 2)
        self.labelled = pool.select(range(labels))
        # Nobody reads the labels of the other rows: the teacher's probabilities replace them.
        self.all = pool.select(range(min(labels + size["unlabelled"], len(pool))))
        test = self.short(split).shuffle(seed=0)
        self.test = test.select(range(min(size["tests"], len(test))))

    def short(self, split: str) -> Dataset:
        """The sentences of a split that have few tokens."""
        rows = data.task(self.lab.public_data("sst2"), split=split, columns=COLUMNS)
        lengths = map(len, self.tokenizer.ids(list(rows["text"])))
        return rows.select([i for i, length in enumerate(lengths) if length <= TOKENS])

    def student_body(self) -> Transformer:
        """Half of the layers (0, 2 and 4 of MiniLM's six), as they were published."""
        return distilbert.student(self.body)

    def classifier(self, body: Transformer) -> heads.Classifier:
        """A new head on the mean of the token vectors. The token table does not learn."""
        torch.manual_seed(self.seed)
        body.embed.requires_grad_(False)
        return heads.Classifier(body, classes=2, pool="mean")

    def train(self, model: nn.Module, rows: Dataset, loss: losses.Loss, training: Training) -> None:
        """Train in place."""
        batches = TaskBatches(
            self.frame, self.frame.rows(rows), training.batch, self.seed, by_length=True
        )
        steps = training.epochs * batches.per_epoch
        config = linear_config(steps, training.lr, precision="auto", device=self.lab.device)
        torch.manual_seed(self.seed)
        fit(model, batches, loss, config)

    def accuracy(self, model: nn.Module) -> float:
        """Of the test rows."""
        predictions, truth = answers(model, self.frame, self.frame.rows(self.test), CLASSES)
        return float(score("accuracy", predictions, truth, "single"))

    def teacher(self, training: Training) -> heads.Classifier:
        """All six layers, tuned on the labelled rows."""
        model = self.classifier(deepcopy(self.body))
        self.train(model, self.labelled, losses.classification, training)
        return model

    def student_of(self, teacher: nn.Module, training: Training) -> heads.Classifier:
        """Learns the teacher's probabilities on all rows."""
        student = self.classifier(self.student_body())
        self.train(Distilled(student, teacher), self.all, SOFT, training)
        return student

    def student_alone(self, training: Training) -> heads.Classifier:
        """Learns the labels of the labelled rows."""
        student = self.classifier(self.student_body())
        self.train(student, self.labelled, losses.classification, training)
        return student


@experiment("distilled-student")
def distilled_student(lab: Lab, seed: int) -> dict[str, float]:
    """Accuracy on SST-2 of the teacher, its student, the student alone and a linear model."""
    setup = Setup(lab, seed)
    positive = sum(setup.test["label"]) / len(setup.test)
    teacher = setup.teacher(TRAININGS["teacher"])
    student = setup.student_of(teacher, TRAININGS["with the teacher"])
    alone = setup.student_alone(TRAININGS["labels alone"])
    # A text costs the student one pass and twice that backward. Its teacher has twice the layers.
    taught = TRAININGS["with the teacher"].epochs * len(setup.all) * (3 + 2)
    by_labels = TRAININGS["labels alone"].epochs * len(setup.labelled) * 3
    return {
        "most frequent label": max(positive, 1 - positive),
        "linear": linear("accuracy")(setup.labelled, setup.test, PENALTY, seed),
        "teacher": setup.accuracy(teacher),
        "student, with the teacher": setup.accuracy(student),
        "student, labels alone": setup.accuracy(alone),
        "cost, labels alone": by_labels / taught,
    }
