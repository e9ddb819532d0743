"""Fine-tuning: teach a pretrained model a task (Devlin et al. 2019, section 4).

`finetune` copies the model's body (all layers but the output layer), puts a new output layer for
the task on top (the head), trains both, and scores the test rows:

    task = {"train": [{"text": "a fine film", "label": 1}, ...], "test": [...]}
    result = finetune(model, task, tokenizer, FinetuneConfig(epochs=4, lr=1e-3))
    result.score                                      # 0.87, the accuracy on the test rows
    predict(result, [{"text": "two lost hours"}])     # [0], the number of the predicted class

The steps are in files of their own: task_data.py tokenizes the rows, task_model.py puts the head
on, and fine_tuned.py saves, loads and uses the result.
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

# A function that shows the training, for example by a progress bar. It takes the steps and their
# number, and gives the same steps back.
Live = Callable[[Iterator[Step], int], Iterable[Step]]


@dataclass(frozen=True, kw_only=True)
class Result(FineTuned):
    """A fine-tuned model with its scores.

    Attributes:
        score: the score of the test rows.
        metric: the name of the score, in `metrics.METRICS`.
        predictions: for each test row what `predict` returns: a class number, a score, tags or a
            text.
        truth: the right answer of each test row; a list if several answers are right.
        per_class: label name -> its precision, recall, F1 and number of test rows.
        history: the training steps.
        validation: the score of the validation rows after each epoch; empty if there are none.
        cut: for each split, the number of rows that were too long for the model and lost their
            end.
        seconds: duration of training and scoring.
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
        """Score the test rows by another metric in `metrics.METRICS`, such as "token_f1"."""
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
    """Train a copy of a model on a task and score the test rows.

    (Devlin et al. 2019, section 4; Radford et al. 2018, section 3.2.) Known departure: GPT-1 also
    trains its language model on the task's texts; this is left out.

    Args:
        model: a Transformer, or a model with one inside, such as a checkpoint; it stays unchanged.
            If it has BERT's pooler (a layer over the [CLS] vector), a classifier starts with that
            one. Or a `TaskBody`, which makes its own model for a task; then `config.pool`, `peft`
            and `on_top` cannot be used.
        task: "train" and "test" rows, and "validation" rows if there are any. Their columns tell
            the kind of task: text, label; text, pair, label (two texts); tokens, labels (tagging);
            text, choices, label; or text, pair, answer, start (question answering).
        tokenizer: the model's tokenizer.
        config: all other settings.
        peft: a function that adds a few new weights to the body, such as `peft.lora`. Only these
            and the head are trained. The three special tokens that a decoder needs for a task are
            new, and their vectors then stay random.
        on_top: a function body -> a network over the body, such as a BiLSTM. The head then reads
            its output. It must have the body's interface.
        live: a function that shows the training, such as `figures.train_with_progress`.

    Raises:
        CourseError: task, tokenizer and model do not fit together, or the training diverges.
    """
    start = time.perf_counter()
    if peft is not None and config.frozen:
        raise CourseError(
            "peft trains new weights in the body, frozen=True none at all; choose one of them."
        )

    # Prepare, build and train. `fork_rng` restores the caller's random numbers afterwards.
    data = prepare(task, tokenizer, body_of(model), config)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        tuned = build(model, data, config, peft, on_top)
        history, validation = _train_on_task(tuned, data, config, live)

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


def _train_on_task(
    model: nn.Module, data: TaskData, config: FinetuneConfig, live: Live | None
) -> tuple[list[Step], list[float]]:
    """Train. Return the steps, and the score of the validation rows after each epoch."""
    batches = TaskBatches(
        data.frame, data.rows["train"], config.batch, config.seed, config.by_length
    )
    steps = config.epochs * batches.per_epoch
    validation: list[float] = []

    def validated(training: Iterator[Step]) -> Iterator[Step]:
        """Pass the steps on; score the validation rows at the end of each epoch."""
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
    """The settings of the training loop: linear warm-up, then linear decay, as in BERT."""
    return TrainConfig(
        steps=steps,
        lr=config.lr,
        schedule="linear",
        warmup=round(config.warmup * steps),
        weight_decay=config.weight_decay,
        device=config.device,
        precision=config.precision,
    )
