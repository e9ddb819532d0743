"""What a fine-tuning is asked for; the config is saved beside the model.

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
        kind: of task; by default what the columns of its rows say.
        classes: names of the labels; by default what the dataset's features say. A "single" or
            "pair" task with float labels has none: it is a regression. Where the labels are lists,
            several may hold at once.
        device: where it is trained.
        out: folder for the model, with this config beside it; a decoder's classifier then has no
            bias, as in transformers.

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
        None, "Tokens of an input, where the model could read more.", at_least=1
    )

    # Where the model begins
    pretrained: bool = setting(
        True,
        "Keep what pretraining taught, or forget it, to compare.",
        flag="--pretrained/--scratch",
    )
    frozen: bool = setting(False, "Train the new head only.")
    dropout: float | None = setting(None, "In place of the model's.", at_least=0, at_most=1)
    # By default a causal model reads its last token (the extract mark), others their first.
    pool: Pool | None = setting(
        None, "The vector that a classifier reads. Only the default can be saved (--out)."
    )

    # The batches and the updates
    epochs: int = setting(3, "How often each row is read.", at_least=1)
    batch: int = setting(32, "Rows in a batch.", at_least=1)
    by_length: bool = setting(
        False, "Batches of rows of like length, which need less padding; else of any rows."
    )
    lr: float = setting(3e-4, "Peak learning rate; from there it falls linearly to 0.")
    warmup: float = setting(
        0.1, "Share of the steps in which the rate rises, linearly.", at_least=0, at_most=1
    )
    # Biases, norms and embedding tables do not decay.
    weight_decay: float = setting(0.01, "Of matrices.", at_least=0)
    seed: int = setting(
        0,
        "Of the head's weights, the order of rows and the dropout; equal seeds give equal results.",
        at_least=0,
        at_most=2**63 - 1,
    )

    # The machine and the folder
    precision: Precision = setting(
        "fp32", "bf16 is faster; auto: bf16 where the machine has instructions for it."
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
