"""The settings of a fine-tuning run. They are saved beside the model.

Each `setting` is also an option of the command `finetune`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from course_lib.errors import CourseError
from course_lib.files import write_json
from course_lib.model.config import Kind, Pool
from course_lib.training.settings import Precision, setting

CONFIG_FILE = "finetune.json"  # in a saved model's folder: how it was tuned


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How to fine-tune: the task, where the model begins, and how it is trained.

    Attributes:
        kind: the kind of task; by default the one that its columns make (`inputs.COLUMNS`).
        classes: the labels' names; by default those in the dataset's features. A "single" or
            "pair" task with float labels has none: it is a regression. Where the labels are lists,
            several may hold at once.
        device: "cpu", "cuda", "cuda:1" or "mps".
        out: the folder to save the model and this config in; None saves nothing. A decoder's
            classifier that is saved has no bias, as in transformers.

    Raises:
        CourseError: if a value is out of range or names nothing.
    """

    # The task
    kind: Kind | None = None
    classes: Sequence[str] | None = None
    metric: str | None = setting(
        None,
        "accuracy, f1, matthews, ...; by default accuracy, or entity F1 for entities, exact match"
        " for spans, Pearson for scores, micro F1 for several labels a text.",
    )
    max_length: int | None = setting(
        None, "Longest input in tokens. By default as many as the model can read.", at_least=1
    )

    # Where the model begins
    pretrained: bool = setting(
        True,
        "Begin with the pretrained weights, or with random ones, to compare.",
        flag="--pretrained/--scratch",
    )
    frozen: bool = setting(False, "Train only the new head and leave the model's weights alone.")
    dropout: float | None = setting(
        None, "Dropout rate. By default the model's.", at_least=0, at_most=1
    )
    # The last token of a causal model is <extract>, which has seen the whole input.
    pool: Pool | None = setting(
        None,
        "The token whose vector a classifier reads. By default the last one of a causal model and"
        " the first one of others. Only the default can be saved (--out).",
    )

    # The batches and the updates
    epochs: int = setting(3, "How often the model reads each training row.", at_least=1)
    batch: int = setting(32, "Rows in a batch.", at_least=1)
    by_length: bool = setting(
        False,
        "Put rows of similar length into a batch, which needs less padding. By default at random.",
    )
    lr: float = setting(3e-4, "Peak learning rate. From there it falls linearly to 0.")
    warmup: float = setting(
        0.1,
        "Share of the steps in which the learning rate rises to its peak.",
        at_least=0,
        at_most=1,
    )
    # Biases, norms and embedding tables do not decay.
    weight_decay: float = setting(0.01, "Weight decay of matrices.", at_least=0)
    seed: int = setting(
        0,
        "Seed of the head's first weights, the order of rows and the dropout. Equal seeds give"
        " equal results.",
        at_least=0,
        at_most=2**63 - 1,
    )

    # The machine and the folder
    precision: Precision = setting(
        "fp32",
        "bf16 computes matrix products in bfloat16, which is faster on some machines. auto does so"
        " where the machine has instructions for it.",
    )
    device: str = "cpu"
    out: str | Path | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and not self.classes:
            raise CourseError("classes is empty; name the labels, or leave it out.")
        if self.epochs < 1 or self.batch < 1:
            raise CourseError(
                f"epochs is {self.epochs} and batch is {self.batch}; both must be at least 1."
            )
        if self.pool is not None and self.pool not in get_args(Pool):
            raise CourseError(
                f"There is no pool {self.pool!r}; there are {', '.join(get_args(Pool))}."
            )

    def save(self, folder: str | Path) -> None:
        """Write it beside a model."""
        values = asdict(self) | {"device": str(self.device), "out": str(self.out)}
        write_json(Path(folder) / CONFIG_FILE, values)


DEFAULT = FinetuneConfig()
