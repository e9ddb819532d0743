"""One task, one model, one score (Devlin et al. 2019, section 4; Radford et al. 2018, section 3.2).

`finetune` puts a head on a body, trains and scores; `predict` asks the result, or a folder that it
was saved in, about new rows."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from course_lib import families, zoo
from course_lib.analysis import metrics
from course_lib.data.columns import Row
from course_lib.data.inputs import MARKS, EncodedRow, Frame, Kind, TaskBatches, in_order, kind_of
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.rules import convert_back
from course_lib.model import heads
from course_lib.model.layers import evaluating
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.training import spans
from course_lib.training.device import Precision
from course_lib.training.loop import Step, TrainConfig, train

HEADS: dict[Kind, type[nn.Module]] = {
    "single": heads.Classifier,
    "pair": heads.Classifier,
    "tagging": heads.TokenClassifier,
    "choice": heads.MultipleChoice,
    "span": heads.QuestionAnswering,
}


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A model with a task's head, what it reads, and what its answers are called (no names: scores,
    spans, choices).
    """

    model: nn.Module = field(repr=False)
    frame: Frame = field(repr=False)
    names: list[str] = field(repr=False)

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and transformers open."""
        if self.names:
            self.model.class_names = tuple(self.names)  # type: ignore[assignment]
        zoo.save_pretrained(self.model, folder, tokenizer=self.frame.tokenizer)


@dataclass(frozen=True, kw_only=True)
class Result(FineTuned):
    """What a fine-tuning run gave. score: of the test rows, by `metric`. predictions, truth: one
    entry a test row, as of `predict` (truth: a list of texts where several count). per_class:
    precision, recall, F1 and count by label name. history: the training steps. validation: the
    score after each epoch, if there are validation rows."""

    score: float
    metric: str
    predictions: list[Any]
    truth: list[Any]
    per_class: dict[str, dict[str, float]]
    history: list[Step]
    validation: list[float]
    seconds: float

    def by(self, metric: str) -> float:
        """The test rows' score by another of `metrics.METRICS`: "token_f1" beside exact match, for
        instance.
        """
        return _score(metric, self.predictions, self.truth)


def finetune(
    stack: Transformer | nn.Module,
    task: Mapping[str, Iterable[Row]],
    tokenizer: Tokenizer,
    *,
    kind: Kind | None = None,
    classes: Sequence[str] | None = None,
    epochs: int = 3,
    lr: float = 3e-4,
    batch: int = 32,
    seed: int = 0,
    pretrained: bool = True,
    frozen: bool = False,
    dropout: float | None = None,
    pool: heads.Pool | None = None,
    peft: Callable[[Transformer], nn.Module] | None = None,
    on_top: Callable[[Transformer], nn.Module] | None = None,
    metric: str | None = None,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    max_length: int | None = None,
    device: str | torch.device = "cpu",
    precision: Precision = "fp32",
    by_length: bool = False,
    out: str | Path | None = None,
    live: Callable[[Iterator[Step], int], Iterable[Step]] = lambda steps, total: steps,
) -> Result:
    """Put a head on a copy of `stack`, train both on a task, score the test rows.

    Args:
        stack: left as it is. Or a model that owns one, as checkpoints are; if it owns a pooler too
            (BERT's), a classifier begins with that one, as in BERT's code. Or
            `families.baselines.Words`, whose task model takes the place of a head; `pool`, `peft`
            and `on_top` are not for it.
        task: "train" and "test" rows, perhaps "validation", with the columns of one kind of task
            (`course_lib.data.inputs`). classes: names of the labels; by default what the dataset's
            features say. A "single" or "pair" task with float labels has none: it is a regression.
        lr: peak learning rate; linear warm-up over the share `warmup` of the steps, then linear
            decay.
        pretrained: False starts from fresh weights of the same configuration. frozen: trains the
            head only.
        pool: of `heads.Classifier`; by default "last" for a causal stack (the extract mark),
            "first" for others.
        peft: body -> the body with a few new weights, the only ones trained beside the head
            (`peft.lora`). A decoder's three marks then stay random.
        on_top: body -> what the head then stands on, called and configured like the body (a BiLSTM
            over it).
        by_length: batches of rows of like length, which need less padding; by default, of any rows.
        metric: of `metrics.METRICS`; by default accuracy, entity F1 for B-/I- tags, exact match for
            spans, Pearson for scores.
        out: folder for the model (`FineTuned.save`); a decoder's classifier then has no bias, as in
            transformers.
        live: what the steps and their number go through, and who gives them on;
            `figures.train_with_progress`.

    Known departure: GPT-1's auxiliary language-model loss is left out.
    """
    start = time.perf_counter()
    kind, names = _task(task, kind, classes)
    stack, pooler = _parts(stack)
    if tokenizer.vocab.size != stack.config.embed.vocab:
        has = (
            f"The tokenizer has {tokenizer.vocab.size} tokens, the model {stack.config.embed.vocab}"
        )
        raise CourseError(f"{has}; they do not belong together.")
    known: tuple[str, ...] = getattr(stack, "vocabulary", ())
    if tuple(tokenizer.tokens(range(len(known)))) != known:
        raise CourseError("The tokenizer has other tokens than the model's own; use that one.")
    if classes is not None and not classes:
        raise CourseError("classes is empty; name the labels, or leave it out.")
    if epochs < 1 or batch < 1:
        raise CourseError(f"epochs is {epochs} and batch is {batch}; both must be at least 1.")
    if peft is not None and frozen:
        raise CourseError(
            "peft trains new weights in the body, frozen=True none at all; choose one of them."
        )
    count = len(names) if names else None
    frame = Frame(tokenizer, stack.config, kind, classes=count, max_length=max_length)
    rows = {
        split: frame.rows(data)
        for split, data in task.items()
        if split in ("train", "validation", "test")
    }
    metric = metric or _default_metric(kind, names)
    if metric not in metrics.METRICS:
        raise CourseError(f"There is no metric {metric!r}; there are {', '.join(metrics.METRICS)}.")

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if hasattr(stack, "for_task"):  # families.baselines.Words puts more than a head on top
            own: Any = stack
            model = own.for_task(kind, count, pretrained=pretrained, frozen=frozen, dropout=dropout)
        else:
            body = _copy(stack, pretrained=pretrained, dropout=dropout)
            body = body if peft is None else cast(Transformer, peft(body))
            under_head = body if on_top is None else cast(Transformer, on_top(body))
            read = pool or ("last" if stack.config.causal else "first")
            more: dict[Kind, tuple[Any, ...]] = {"span": (), "choice": (read,), "tagging": (count,)}
            bias = out is None or not stack.config.causal
            model = HEADS[kind](under_head, *more.get(kind, (count or 1, read, bias)))
            if (
                pretrained
                and pooler is not None
                and isinstance(model, heads.Classifier)
                and model.pool == "first"
            ):
                model.pooler.load_state_dict(pooler.state_dict())
                model.pooler.activation = pooler.activation
            if frozen:
                body.requires_grad_(False)
        if out is not None:  # before any training: is there a public class for this model?
            family = families.family_of(model)
            name = families.public_class(model, family) or ""
            if pooled := family.architectures[name].options(body, {}).get("pooler"):
                # ELECTRA's, DistilBERT's and ModernBERT's classes have their own
                model.pooler.activation = pooled.activation
                model.pooler.norm = pooled.norm
            convert_back(model.state_dict(), family.all_rules(name, model), model)
        batches = TaskBatches(frame, rows["train"], batch, seed, by_length)
        steps = epochs * batches.per_epoch
        validation: list[float] = []

        def scored(training: Iterator[Step]) -> Iterator[Step]:
            for step in training:
                if "validation" in rows and step.step % batches.per_epoch == 0:
                    validation.append(
                        _score(metric, *answers(model, frame, rows["validation"], names))
                    )
                yield step

        training_config = TrainConfig(
            steps=steps,
            lr=lr,
            schedule="linear",
            warmup=round(warmup * steps),
            weight_decay=weight_decay,
            device=device,
            precision=precision,
        )
        loss = losses.span if kind == "span" else losses.classification
        training = train(model, batches, loss, training_config)
        history = list(live(scored(training), steps))
    predictions, truth = answers(model, frame, rows["test"], names)
    result = Result(
        score=_score(metric, predictions, truth),
        metric=metric,
        predictions=predictions,
        truth=truth,
        per_class=_per_class(kind, predictions, truth, names),
        history=history,
        validation=validation,
        seconds=time.perf_counter() - start,
        model=model.eval(),
        frame=frame,
        names=names,
    )
    if out is not None:
        result.save(out)
    return result


def load(source: str | Path) -> FineTuned:
    """A fine-tuned model: a folder that `FineTuned.save` or transformers wrote, or a model of the
    hub.
    """
    model, tokenizer, _ = zoo.open_model(source)
    kind = next((kind for kind, head in HEADS.items() if type(model) is head), None)
    if kind is None:
        raise CourseError(
            f"{source} is not fine-tuned: a {type(model).__name__} has no head for a task's"
            " answers."
        )
    count = model.out.out_features if kind in ("single", "tagging") else None
    names = [str(name) for name in getattr(model, "class_names", None) or range(count or 0)]
    if kind == "single" and count == 1:
        count, names = None, []  # one score
    return FineTuned(
        model=model, frame=Frame(tokenizer, model.stack.config, kind, classes=count), names=names
    )


def predict(tuned: FineTuned | str | Path, data: Iterable[Row]) -> list[Any]:
    """What a fine-tuned model, or the one in a folder, says of new rows; labels are not read. One
    entry a row: a class number (`FineTuned.names` says of what), a score, a list of tags, the
    chosen candidate's number, or a text."""
    tuned = tuned if isinstance(tuned, FineTuned) else load(tuned)
    frame, rows = tuned.frame, list(data)
    if frame.kind in ("single", "pair") and rows:  # both have the same head
        frame = copy(frame)
        frame.kind = "pair" if "pair" in rows[0] else "single"
    blank: Callable[[Mapping[str, Any]], dict[str, Any]] = {
        "tagging": lambda row: {"labels": [0] * len(row.get("tokens", ()))},
        "span": lambda row: {"answer": "", "start": 0, "answers": None},
    }.get(frame.kind, lambda row: {"label": 0})
    return answers(
        tuned.model, frame, frame.rows({**row, **blank(row)} for row in rows), tuned.names
    )[0]


@torch.no_grad()
def answers(
    model: nn.Module, frame: Frame, rows: list[EncodedRow], names: list[str]
) -> tuple[list[Any], list[Any]]:
    """(predictions, truth), one entry a row."""
    said: list[Any] = [None] * len(rows)
    device = next(model.parameters()).device
    with evaluating(model):
        for numbers, batch in in_order(frame, rows, 64):
            out = model(
                **{name: value.to(device) for name, value in batch.items() if name != "labels"}
            )
            for place, number in enumerate(numbers):
                said[number] = _answer(frame, rows[number], out, place, names)
    tagged = frame.kind == "tagging"
    return said, [[names[label] for label in row.truth] if tagged else row.truth for row in rows]


def _answer(frame: Frame, row: EncodedRow, out: Any, place: int, names: Sequence[str]) -> Any:
    if frame.kind == "span":
        return spans.answer(row, out[0][place], out[1][place])
    scores = out[place].float().cpu()
    if frame.kind == "tagging":
        # A word that was cut off gets the first label ("O" where there is one).
        other = names.index("O") if "O" in names else 0
        tags = scores.argmax(-1).tolist()
        return [names[tags[token] if token >= 0 else other] for token in row.words]
    return (
        scores.squeeze(-1).item()
        if frame.classes is None and frame.kind != "choice"
        else int(scores.argmax())
    )


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
    if named := classes or getattr(feature, "names", None):
        names = list(named)
    elif isinstance(first.get(column), float):
        names = []
    else:
        values = (row[column] for row in rows)
        names = [
            str(i)
            for i in range(max(chain.from_iterable(values) if kind == "tagging" else values) + 1)
        ]
    if names and len(set(names)) < max(2, len(names)):
        raise CourseError(
            f"The classes are {', '.join(names)}; there must be two or more, each with its own"
            " name."
        )
    return kind, names


def _parts(model: Transformer | nn.Module) -> tuple[Transformer, heads.Pooler | None]:
    """The stack of a model, and its pooler where it has one."""
    if hasattr(model, "for_task"):
        return cast(Transformer, model), None
    stack = model if isinstance(model, Transformer) else getattr(model, "stack", None)
    if not isinstance(stack, Transformer):
        raise CourseError(
            f"Fine-tuning starts from a Transformer, or its owner; a {type(model).__name__} has"
            " none."
        )
    return stack, getattr(model, "pooler", None)


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


def _default_metric(kind: Kind, names: Sequence[str]) -> str:
    if kind == "span":
        return "exact_match"
    if kind == "tagging":
        return "entity_f1" if any(name.startswith("B-") for name in names) else "accuracy"
    return "accuracy" if names or kind == "choice" else "pearson"


def _score(metric: str, predictions: list[Any], truth: list[Any]) -> float:
    if metric != "entity_f1" and isinstance(predictions[0], list):
        predictions, truth = (
            list(chain.from_iterable(predictions)),
            list(chain.from_iterable(truth)),
        )
    return metrics.METRICS[metric](predictions, truth)


def _per_class(
    kind: Kind, predictions: list[Any], truth: list[Any], names: list[str]
) -> dict[str, dict[str, float]]:
    if not names:
        return {}
    if kind == "tagging":
        number = {name: i for i, name in enumerate(names)}
        predictions, truth = (
            [number[tag] for row in rows for tag in row] for rows in (predictions, truth)
        )
    return metrics.per_class(predictions, truth, names)
