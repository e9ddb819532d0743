"""One task, one model, one score (Devlin et al. 2019, section 4; Radford et al. 2018, section 3.2).

`finetune` puts a head on a copy of a model, trains both and scores them:

    result = finetune(model, task, tokenizer, FinetuneConfig(epochs=4, lr=1e-3))

`predict` asks the result, or a folder that it was saved in, about new rows."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import nn

from course_lib import families, zoo
from course_lib.analysis import metrics
from course_lib.data.columns import Row
from course_lib.data.inputs import (
    MARKS,
    EncodedRow,
    Frame,
    TaskBatches,
    in_order,
    kind_of,
    warn_of_cut,
)
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.weight_tables import convert_back
from course_lib.files import read_json
from course_lib.model import heads
from course_lib.model.config import Kind
from course_lib.model.modes import evaluating
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.training import spans
from course_lib.training.finetune_config import CONFIG_FILE, DEFAULT, FinetuneConfig
from course_lib.training.loop import Step, TrainConfig, train
from course_lib.training.task_heads import HEADS, KINDS, HeadOptions

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

SPLITS = ("train", "validation", "test")
Wrap = Callable[[Transformer], nn.Module]
# What the steps and their number go through, and who gives them on: a progress bar, for instance.
Live = Callable[[Iterator[Step], int], Iterable[Step]]


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A model with a task's head, what it reads, and what its answers are called (no names: scores,
    spans, choices).
    """

    model: nn.Module = field(repr=False)
    frame: Frame = field(repr=False)
    names: list[str] = field(repr=False)
    takes_pairs: bool | None = None  # a classifier of one text or two; None: nobody knows

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and transformers open."""
        if self.names:
            self.model.class_names = tuple(self.names)  # type: ignore[assignment]
        zoo.save_pretrained(self.model, folder, tokenizer=self.frame.tokenizer)


@dataclass(frozen=True, kw_only=True)
class Result(FineTuned):
    """What a fine-tuning run gave.

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
        """The test rows' score by another of `metrics.METRICS`: "token_f1" beside exact match, for
        instance.
        """
        return _score(metric, self.predictions, self.truth)


@runtime_checkable
class TaskBody(Protocol):
    """A body that makes its own model for a task (`families.baselines.Words`)."""

    config: Any

    def for_task(
        self,
        kind: Kind,
        classes: int | None,
        *,
        pretrained: bool,
        frozen: bool,
        dropout: float | None,
    ) -> nn.Module:
        """The model for one task, on a copy of the body."""


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
        config: everything else that can be said in a word or a number.
        peft: body -> the body with a few new weights, the only ones trained beside the head
            (`peft.lora`). A decoder's three marks then stay random.
        on_top: body -> what the head then stands on, called and configured like the body (a BiLSTM
            over it).
        live: gets the steps and their number, and gives the steps on
            (`figures.train_with_progress`).

    Raises:
        CourseError: if task, tokenizer and model do not fit, or the training diverges.

    Known departure: GPT-1's auxiliary language-model loss is left out.
    """
    start = time.perf_counter()
    if peft is not None and config.frozen:
        raise CourseError(
            "peft trains new weights in the body, frozen=True none at all; choose one of them."
        )
    data = _prepare(model, task, tokenizer, config)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        tuned = _build(model, data, config, peft, on_top)
        history, validation = _run(tuned, data, config, live)
    predictions, truth = answers(tuned, data.frame, data.rows["test"], data.names)
    result = Result(
        score=_score(data.metric, predictions, truth),
        metric=data.metric,
        predictions=predictions,
        truth=truth,
        per_class=_per_class(data.frame.kind, predictions, truth, data.names),
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
        result.save(config.out)
        replace(config, kind=data.frame.kind).save(config.out)
    return result


class _TaskData(NamedTuple):
    """A task as the model reads it.

    Attributes:
        rows: the encoded rows of each split.
        frame: how a row becomes an input.
        names: of the labels; none for scores, spans and choices.
        metric: what the test rows are scored by.
    """

    rows: dict[str, list[EncodedRow]]
    frame: Frame
    names: list[str]
    metric: str


def _prepare(
    model: nn.Module,
    task: Mapping[str, Iterable[Row]],
    tokenizer: Tokenizer,
    config: FinetuneConfig,
) -> _TaskData:
    """The task's rows, encoded for the model."""
    kind, names = _task(task, config.kind, config.classes)
    body = _body(model)
    _check_tokenizer(tokenizer, body)
    classes = len(names) if names else None
    frame = Frame(tokenizer, body.config, kind, classes=classes, max_length=config.max_length)
    rows = {split: frame.rows(data) for split, data in task.items() if split in SPLITS}
    metric = config.metric or _default_metric(kind, names)
    if metric not in metrics.METRICS:
        raise CourseError(f"There is no metric {metric!r}; there are {', '.join(metrics.METRICS)}.")
    if metric == "entity_f1":  # before the training, and not after it
        metrics.check_tags(names)
    return _TaskData(rows, frame, names, metric)


def _task(
    task: Mapping[str, Iterable[Row]], kind: Kind | None, classes: Sequence[str] | None
) -> tuple[Kind, list[str]]:
    """The kind of task and the names of its labels (none for scores, spans and choices)."""
    for split in ("train", "test"):
        if split not in task:
            raise CourseError(
                f"A task needs {split!r} rows; this one has {', '.join(task) or 'none'}."
            )
    rows = task["train"]
    first = next(iter(rows), None)
    if first is None:
        raise CourseError("The task has no training rows.")
    kind = kind or kind_of(first)
    if kind in ("span", "choice"):
        return kind, []
    column = "labels" if kind == "tagging" else "label"
    feature = getattr(rows, "features", {}).get(column)  # of a datasets.Dataset
    feature = getattr(feature, "feature", feature)  # of a list's elements
    named = classes or getattr(feature, "names", None)
    if named:
        names = list(named)
    elif isinstance(first.get(column), float):
        names = []
    else:
        labels = [row[column] for row in rows]
        if kind == "tagging":
            labels = list(chain.from_iterable(labels))
        names = [str(number) for number in range(max(labels) + 1)]
    if names and len(set(names)) < max(2, len(names)):
        raise CourseError(
            f"The classes are {', '.join(names)}; there must be two or more, each with its own"
            " name."
        )
    return kind, names


def _body(model: nn.Module) -> Any:
    """What is tuned of a model: the Transformer that it is or owns, or the body itself."""
    if isinstance(model, TaskBody | Transformer):
        return model
    body = getattr(model, "stack", None)
    if not isinstance(body, Transformer):
        raise CourseError(
            f"Fine-tuning starts from a Transformer, or its owner; a {type(model).__name__} has"
            " none."
        )
    return body


def _check_tokenizer(tokenizer: Tokenizer, body: Any) -> None:
    """Whether the tokenizer's tokens are those of the model's table."""
    rows = body.config.embed.vocab
    if tokenizer.vocab.size != rows:
        raise CourseError(
            f"The tokenizer has {tokenizer.vocab.size} tokens, the model {rows}; they do not belong"
            " together."
        )
    known: tuple[str, ...] = getattr(body, "vocabulary", ())
    if tuple(tokenizer.tokens(range(len(known)))) != known:
        raise CourseError("The tokenizer has other tokens than the model's own; use that one.")


def _default_metric(kind: Kind, names: Sequence[str]) -> str:
    if kind == "span":
        return "exact_match"
    if kind == "tagging":
        is_entities = any(name.startswith(("B-", "I-", "S-", "U-")) for name in names)
        return "entity_f1" if is_entities else "accuracy"
    return "accuracy" if names or kind == "choice" else "pearson"


def _build(
    model: nn.Module,
    data: _TaskData,
    config: FinetuneConfig,
    peft: Wrap | None,
    on_top: Wrap | None,
) -> nn.Module:
    """The model that is trained: a copy of the body, and the task's head."""
    kind = data.frame.kind
    body = _body(model)
    if isinstance(body, TaskBody):
        return body.for_task(
            kind,
            data.frame.classes,
            pretrained=config.pretrained,
            frozen=config.frozen,
            dropout=config.dropout,
        )

    is_causal = body.config.causal
    body = _copy(body, pretrained=config.pretrained, dropout=config.dropout)
    if peft is not None:
        body = cast(Transformer, peft(body))
    under_head = body if on_top is None else cast(Transformer, on_top(body))
    head = HeadOptions(
        classes=data.frame.classes or 1,
        pool=config.pool or ("last" if is_causal else "first"),
        bias=config.out is None or not is_causal,
    )
    tuned = HEADS[kind](under_head, head)

    pooler = getattr(model, "pooler", None)
    reads_pooler = isinstance(tuned, heads.Classifier) and tuned.pool == "first"
    if config.pretrained and pooler is not None and reads_pooler:
        own_pooler: Any = tuned.pooler
        own_pooler.load_state_dict(pooler.state_dict())
        own_pooler.activation = pooler.activation
    if config.frozen:
        body.requires_grad_(False)
    if config.out is not None:
        _fit_public_class(tuned)
    return tuned


def _copy(stack: Transformer, *, pretrained: bool, dropout: float | None) -> Transformer:
    """The same model apart from the original; a decoder's vocabulary grows by the marks of
    `inputs.with_marks`.
    """
    config = stack.config
    if dropout is not None:
        config = replace(config, dropout=dropout, attention_dropout=dropout)
    extra = MARKS if config.causal else 0
    config = replace(config, embed=replace(config.embed, vocab=config.embed.vocab + extra))
    body = Transformer(config)
    if pretrained:
        state = {name: value.detach().float().clone() for name, value in stack.state_dict().items()}
        table = "embed.tokens.weight"
        fresh = body.state_dict()[table][stack.config.embed.vocab :]
        state[table] = torch.cat([state[table], fresh.to(state[table].device)])
        body.load_state_dict(state)
    return body


def _fit_public_class(model: nn.Module) -> None:
    """Make the head that of the public class it will be saved as.

    Raises:
        CourseError: if there is no public class for this model, or it pools in another way. It is
            known before any training.
    """
    family = families.family_of(model)
    name = families.public_class(model, family) or ""
    families.check_pool(model, family.architectures[name])
    options = family.architectures[name].options(cast(Any, model).stack, {})
    # ELECTRA's, DistilBERT's and ModernBERT's classes have a pooler of their own.
    public_pooler = options.get("pooler")
    own_pooler: Any = getattr(model, "pooler", None)
    if public_pooler is not None and own_pooler is not None:
        own_pooler.activation = public_pooler.activation
        own_pooler.norm = public_pooler.norm
    # ModernBERT's have one more layer on every token.
    if "transform" in options:
        model.transform = options["transform"]
    convert_back(model.state_dict(), family.whole_table(name, model), model)


def _run(
    model: nn.Module, data: _TaskData, config: FinetuneConfig, live: Live | None
) -> tuple[list[Step], list[float]]:
    """Train; the steps, and the score of the validation rows after each epoch."""
    batches = TaskBatches(
        data.frame, data.rows["train"], config.batch, config.seed, config.by_length
    )
    steps = config.epochs * batches.per_epoch
    validation: list[float] = []

    def validated(training: Iterator[Step]) -> Iterator[Step]:
        for step in training:
            if "validation" in data.rows and step.step % batches.per_epoch == 0:
                pairs = answers(model, data.frame, data.rows["validation"], data.names)
                validation.append(_score(data.metric, *pairs))
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


@torch.no_grad()
def answers(
    model: nn.Module, frame: Frame, rows: list[EncodedRow], names: list[str]
) -> tuple[list[Any], list[Any]]:
    """(predictions, truth), one entry a row."""
    predictions: list[Any] = [None] * len(rows)
    device = next(model.parameters()).device
    with evaluating(model):
        for numbers, batch in in_order(frame, rows, 64):
            inputs = {name: value.to(device) for name, value in batch.items() if name != "labels"}
            out = model(**inputs)
            for place, number in enumerate(numbers):
                predictions[number] = _answer(frame, rows[number], out, place, names)
    truth = [row.truth for row in rows]
    if frame.kind == "tagging":
        truth = [[names[label] for label in labels] for labels in truth]
    return predictions, truth


def _answer(frame: Frame, row: EncodedRow, out: Any, place: int, names: Sequence[str]) -> Any:
    """What the head's output for a batch says of the row at `place`."""
    if frame.kind == "span":
        start, end = out
        return spans.answer(row, start[place], end[place])
    scores = out[place].float().cpu()
    if frame.kind == "tagging":
        # A word that was cut off gets the first label ("O" where there is one).
        cut_off = names.index("O") if "O" in names else 0
        tags = scores.argmax(-1).tolist()
        return [names[tags[token] if token >= 0 else cut_off] for token in row.words]
    if frame.classes is None and frame.kind != "choice":
        return scores.squeeze(-1).item()
    return int(scores.argmax())


def _score(metric: str, predictions: list[Any], truth: list[Any]) -> float:
    if metric not in metrics.OF_SEQUENCES and isinstance(predictions[0], list):
        predictions = list(chain.from_iterable(predictions))
        truth = list(chain.from_iterable(truth))
    return metrics.METRICS[metric](predictions, truth)


def _per_class(
    kind: Kind, predictions: list[Any], truth: list[Any], names: list[str]
) -> dict[str, dict[str, float]]:
    if not names:
        return {}
    if kind == "tagging":
        number = {name: i for i, name in enumerate(names)}
        predictions = [number[tag] for row in predictions for tag in row]
        truth = [number[tag] for row in truth for tag in row]
    return metrics.per_class(predictions, truth, names)


def load(source: str | Path) -> FineTuned:
    """A fine-tuned model: a folder that `FineTuned.save` or transformers wrote, or a model of the
    hub.
    """
    model, tokenizer, _ = zoo.open_model(source)
    kind = KINDS.get(type(model))
    if kind is None:
        raise CourseError(
            f"{source} is not fine-tuned: a {type(model).__name__} has no head for a task's"
            " answers."
        )
    count = model.out.out_features if kind in ("single", "tagging") else None
    names = [str(name) for name in getattr(model, "class_names", None) or range(count or 0)]
    if kind == "single" and count == 1:
        count = None  # one score
        names = []
    takes_pairs = _takes_pairs(source)
    if kind == "single" and takes_pairs:
        kind = "pair"
    frame = Frame(tokenizer, model.stack.config, kind, classes=count)
    return FineTuned(model=model, frame=frame, names=names, takes_pairs=takes_pairs)


def _takes_pairs(source: str | Path) -> bool | None:
    """Whether a folder's classifier was tuned on two texts; None if the folder does not say."""
    file = Path(source) / CONFIG_FILE
    kind = read_json(file).get("kind") if file.is_file() else None
    return None if kind is None else kind == "pair"


def predict(tuned: FineTuned | str | Path, data: Iterable[Row]) -> list[Any]:
    """What a fine-tuned model says of new rows; their labels are not read.

    Args:
        tuned: the model, or the folder it was saved in.
        data: rows with the columns of its task.

    Returns:
        one entry a row: a class number (`FineTuned.names` says of what), a score, a list of tags,
        the chosen candidate's number, or a text.
    """
    if not isinstance(tuned, FineTuned):
        tuned = load(tuned)
    rows = list(data)
    frame = tuned.frame
    is_open = tuned.takes_pairs is None and frame.kind == "single"
    if is_open and rows and "pair" in rows[0]:  # both kinds have the same head
        frame = copy(frame)
        frame.kind = "pair"
    encoded = frame.rows({**row, **_blank_labels(frame.kind, row)} for row in rows)
    warn_of_cut(encoded, frame.length, "texts")
    predictions, _ = answers(tuned.model, frame, encoded, tuned.names)
    return predictions


def _blank_labels(kind: Kind, row: Row) -> dict[str, Any]:
    """Columns that a frame asks for and a prediction does not need."""
    if kind == "tagging":
        return {"labels": [0] * len(row.get("tokens", ()))}
    if kind == "span":
        return {"answer": "", "start": 0, "answers": None}
    return {"label": 0}
