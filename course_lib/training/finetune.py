"""One task, one model, one score (Devlin et al. 2019, section 4; Radford et al. 2018, section 3.2).

`finetune` puts a head on a copy of a model, trains both and scores them:

    result = finetune(model, task, tokenizer, FinetuneConfig(epochs=4, lr=1e-3))

`predict` labels new rows with the result, or with a folder that it was saved in.

    task_data.py    the task's rows as the model reads them
    task_model.py   the model: a copy of the body, and the task's head
    fine_tuned.py   the result: saved, loaded, used for predictions
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from course_lib.data.columns import Row
from course_lib.data.inputs import TaskBatches
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.files import atomic_folder
from course_lib.objectives import losses
from course_lib.training.fine_tuned import FineTuned, answers, load, per_class, predict, score
from course_lib.training.finetune_config import DEFAULT, FinetuneConfig
from course_lib.training.loop import Step, TrainConfig, train
from course_lib.training.task_data import TaskData, prepare
from course_lib.training.task_model import TaskBody, Wrap, body_of, build

__all__ = [
    "FineTuned",
    "FinetuneConfig",
    "Live",
    "Result",
    "TaskBody",
    "answers",
    "finetune",
    "load",
    "predict",
]

# (steps, how many there will be) -> the same steps, for instance shown by a progress bar.
Live = Callable[[Iterator[Step], int], Iterable[Step]]


@dataclass(frozen=True, kw_only=True)
class Result(FineTuned):
    """A fine-tuned model with its scores.

    Attributes:
        score: of the test rows, by `metric`.
        metric: of `metrics.METRICS`.
        predictions: one entry a test row, as of `predict`.
        truth: likewise; a list of texts where several are right.
        per_class: precision, recall, F1 and count by label name.
        history: the training steps.
        validation: the score after each epoch, if there are validation rows.
        cut: rows of each split that are longer than the model reads; their ends are cut off.
        seconds: of everything, the scoring included.
    """

    score: float
    metric: str
    predictions: list[Any]
    truth: list[Any]
    per_class: dict[str, dict[str, float]]
    history: list[Step]
    validation: list[float]
    cut: dict[str, int]
    seconds: float

    def by(self, metric: str) -> float:
        """The test rows' score by another metric of `metrics.METRICS`, such as "token_f1"."""
        return score(metric, self.predictions, self.truth, self.frame.kind)


def finetune(
    model: nn.Module,
    task: Mapping[str, Iterable[Row]],
    tokenizer: Tokenizer,
    config: FinetuneConfig = DEFAULT,
    *,
    peft: Wrap | None = None,
    on_top: Wrap | None = None,
    live: Live | None = None,
) -> Result:
    """Put a head on a copy of a model's body, train both on a task, score the test rows.

    Args:
        model: a Transformer, or a model that owns one, as checkpoints do; it is left as it is. If
            it owns a pooler too (BERT's), a classifier begins with that one, as in BERT's code. Or
            a `TaskBody`, which makes its own model for a task; `pool`, `peft` and `on_top` are not
            for it.
        task: "train" and "test" rows, perhaps "validation", with the columns of one kind of task
            (`course_lib.data.inputs`).
        tokenizer: the model's.
        config: all other settings.
        peft: body -> the body with a few new weights, the only ones trained beside the head
            (`peft.lora`). A decoder's three marks then stay random.
        on_top: body -> what the head then stands on, called and configured like the body (a BiLSTM
            over it).
        live: (steps, how many there will be) -> the same steps, for instance shown by a progress
            bar (`figures.train_with_progress`).

    Raises:
        CourseError: if task, tokenizer and model do not fit, or the training diverges.

    Known departure: GPT-1's auxiliary language-model loss is left out.
    """
    start = time.perf_counter()
    if peft is not None and config.frozen:
        raise CourseError(
            "peft trains new weights in the body, frozen=True none at all; choose one of them."
        )

    # Prepare, build and train. The caller's own random draws go on as if we had made none.
    data = prepare(task, tokenizer, body_of(model), config)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        tuned = build(model, data, config, peft, on_top)
        history, validation = _run(tuned, data, config, live)

    # Score the test rows.
    predictions, truth = answers(tuned, data.frame, data.rows["test"], data.names)
    result = Result(
        score=score(data.metric, predictions, truth, data.frame.kind),
        metric=data.metric,
        predictions=predictions,
        truth=truth,
        per_class=per_class(data.frame.kind, predictions, truth, data.names),
        history=history,
        validation=validation,
        cut={split: sum(row.is_cut for row in rows) for split, rows in data.rows.items()},
        seconds=time.perf_counter() - start,
        model=tuned.eval(),
        frame=data.frame,
        names=data.names,
        takes_pairs=data.frame.kind == "pair",
    )
    if config.out is not None:
        with atomic_folder(config.out) as new:
            result.save(new)
            replace(config, kind=data.frame.kind).save(new)
    return result


def _run(
    model: nn.Module, data: TaskData, config: FinetuneConfig, live: Live | None
) -> tuple[list[Step], list[float]]:
    """Train; the steps, and the score of the validation rows after each epoch."""
    batches = TaskBatches(
        data.frame, data.rows["train"], config.batch, config.seed, config.by_length
    )
    steps = config.epochs * batches.per_epoch
    validation: list[float] = []

    def validated(training: Iterator[Step]) -> Iterator[Step]:
        """The same steps; at the end of each epoch the validation rows are scored."""
        for step in training:
            if "validation" in data.rows and step.step % batches.per_epoch == 0:
                pairs = answers(model, data.frame, data.rows["validation"], data.names)
                validation.append(score(data.metric, *pairs, data.frame.kind))
            yield step

    loss = losses.span if data.frame.kind == "span" else losses.classification
    training = validated(train(model, batches, loss, _train_config(config, steps)))
    history = list(training if live is None else live(training, steps))
    return history, validation


def _train_config(config: FinetuneConfig, steps: int) -> TrainConfig:
    """The training in so many steps: linear warm-up, then linear decay."""
    return TrainConfig(
        steps=steps,
        lr=config.lr,
        schedule="linear",
        warmup=round(config.warmup * steps),
        weight_decay=config.weight_decay,
        device=config.device,
        precision=config.precision,
    )
