"""How a fine-tuning is configured; the config is saved beside the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import torch

from course_lib.analysis import metrics
from course_lib.errors import CourseError
from course_lib.files import write_json
from course_lib.model.heads import Kind, Pool
from course_lib.training.device import Precision
from course_lib.training.loop import TrainConfig

CONFIG_FILE = "finetune.json"  # in a saved model's folder: how it was tuned


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How to fine-tune: the task, where the model begins, and how it is trained.

    Attributes:
        kind: of task; by default what the columns of its rows say.
        classes: names of the labels; by default what the dataset's features say. A "single" or
            "pair" task with float labels has none: it is a regression.
        metric: of `metrics.METRICS`; by default accuracy, entity F1 for entities, exact match for
            spans, Pearson for scores.
        max_length: tokens of an input, where the model could read more.
        pretrained: False starts from random weights of the same configuration.
        frozen: train the head only.
        dropout: in place of the model's.
        pool: of `heads.Classifier`; by default "last" for a causal model (the extract mark),
            "first" for others. Only the default can be saved.
        epochs: how often each row is read.
        batch: rows.
        by_length: batches of rows of like length, which need less padding; by default, of any rows.
        lr: the peak of the learning rate.
        warmup: the share of the steps in which it rises, linearly; then it falls linearly to 0.
        weight_decay: for matrices; biases, norms and embedding tables do not decay.
        seed: of the head's weights, the order of rows and the dropout.
        precision: as in `TrainConfig`.
        device: where it is trained.
        out: folder for the model, with this config beside it; a decoder's classifier then has no
            bias, as in transformers.

    Raises:
        CourseError: if a value is out of range or names nothing.
    """

    kind: Kind | None = None
    classes: Sequence[str] | None = None
    metric: str | None = None
    max_length: int | None = None

    pretrained: bool = True
    frozen: bool = False
    dropout: float | None = None
    pool: Pool | None = None

    epochs: int = 3
    batch: int = 32
    by_length: bool = False
    lr: float = 3e-4
    warmup: float = 0.1
    weight_decay: float = 0.01
    seed: int = 0

    precision: Precision = "fp32"
    device: str | torch.device = "cpu"
    out: str | Path | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and not self.classes:
            raise CourseError("classes is empty; name the labels, or leave it out.")
        if self.epochs < 1 or self.batch < 1:
            raise CourseError(
                f"epochs is {self.epochs} and batch is {self.batch}; both must be at least 1."
            )
        if self.metric is not None and self.metric not in metrics.METRICS:
            raise CourseError(
                f"There is no metric {self.metric!r}; there are {', '.join(metrics.METRICS)}."
            )

        if self.pool is not None and self.pool not in get_args(Pool):
            raise CourseError(
                f"There is no pool {self.pool!r}; there are {', '.join(get_args(Pool))}."
            )

    def training(self, steps: int) -> TrainConfig:
        """The training in so many steps: linear warm-up, then linear decay."""
        return TrainConfig(
            steps=steps,
            lr=self.lr,
            schedule="linear",
            warmup=round(self.warmup * steps),
            weight_decay=self.weight_decay,
            device=self.device,
            precision=self.precision,
        )

    def save(self, folder: str | Path) -> None:
        """Write it beside a model."""
        values = asdict(self) | {"device": str(self.device), "out": str(self.out)}
        write_json(Path(folder) / CONFIG_FILE, values)


DEFAULT = FinetuneConfig()
