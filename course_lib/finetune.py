"""One task, one model, one score (Devlin et al. 2019, section 4; Radford et al. 2018, section 3.2).

`finetune` puts a head on a body, trains and scores; `predict` asks the result about new rows; `sweep` does the same
at several learning rates; `features` gives the frozen body's vectors.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib import heads, losses, metrics, optim, spans
from course_lib.errors import CourseError
from course_lib.inputs import MARKS, Frame, Kind, Row, TaskBatches, in_order, kind_of
from course_lib.losses import Loss
from course_lib.stack import Stack
from course_lib.tokenizers import Text, Tokenizer
from course_lib.train import Precision, Step, train

Rows = Iterable[Mapping[str, Any]]  # a datasets.Dataset, or a list of dicts
LOSSES: dict[Kind, Loss] = {
    "single": losses.classification,
    "pair": losses.classification,
    "tagging": losses.tagging,
    "choice": losses.choice,
    "span": losses.span,
}


@dataclass(frozen=True)
class Result:
    """What a fine-tuning run gave.

    score: of the test rows, by `metric`; `by` gives it by another. predictions, truth: one entry a test row: a
    class number, a score, the list of a row's tags, or the answer's text (truth: a list where several count).
    per_class: precision, recall, F1 and count by label name, where there are classes. history: the training steps.
    validation: the score after each epoch, if there are validation rows.
    """

    score: float
    metric: str
    predictions: list[Any]
    truth: list[Any]
    per_class: dict[str, dict[str, float]]
    history: list[Step]
    validation: list[float]
    seconds: float
    model: nn.Module = field(repr=False)
    frame: Frame = field(repr=False)
    names: list[str] = field(repr=False)

    def by(self, metric: str) -> float:
        """The test rows' score by another of `metrics.METRICS`: "token_f1" beside exact match, for instance."""
        return _score(metric, self.predictions, self.truth)


def finetune(
    stack: Stack | nn.Module,
    task: Mapping[str, Rows],
    tokenizer: Tokenizer,
    *,
    kind: Kind | None = None,
    classes: Sequence[str] | int | None = None,
    epochs: int = 3,
    lr: float = 3e-4,
    batch: int = 32,
    seed: int = 0,
    pretrained: bool = True,
    frozen: bool = False,
    dropout: float | None = None,
    pool: heads.Pool | None = None,
    peft: Callable[[Stack], nn.Module] | None = None,
    on_top: Callable[[Stack], nn.Module] | None = None,
    metric: str | None = None,
    best: bool = False,
    smoothing: float = 0.0,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    max_length: int | None = None,
    device: str = "cpu",
    precision: Precision = "fp32",
    watch: Callable[[Step], None] | None = None,
    live: Callable[[Iterator[Step], int], Iterable[Step]] = lambda steps, total: steps,
) -> Result:
    """Put a head on a copy of `stack`, train both on a task, score the test rows.

    Args:
        stack: left as it is. Or a model that owns one, such as the zoo's; if it owns a pooler too (BERT's, trained by
            next-sentence prediction), a classifier begins with that one, as in BERT's code. Or
            `models.baselines.Words`, whose task model (BiLSTM+ELMo+Attn) takes the place of a head; `pool`, `peft`
            and `on_top` are not for it.
        task: "train" and "test" rows, perhaps "validation", with the columns of one kind of task
            (`course_lib.inputs`).
        kind: by default the one that the columns make.
        classes: names or number of the labels; by default what the dataset's features say. A "single" or
            "pair" task with float labels has none: it is a regression.
        lr: peak learning rate; linear warm-up over the share `warmup` of the steps, then linear decay.
        seed: of the head's first weights, the order of rows and dropout: equal seeds, equal results.
        pretrained: False starts from fresh weights of the same configuration. frozen: trains the head only.
        dropout: in place of the stack's. pool: "first", "last" or "mean" (`heads.Classifier`); by default
            "last" for a causal stack, whose last token is the extract mark, and "first" for others.
        peft: body -> the body with a few new weights, the only ones trained beside the head: `peft.lora`, or
            `partial(peft.adapters, width=8)`. A decoder's three marks then stay random.
        on_top: body -> what the head then stands on, called and configured like the body (a BiLSTM over it).
        metric: a name in `metrics.METRICS`. By default accuracy; entity F1 for B-/I- tags, exact match for
            spans, Pearson for scores.
        best: keep the weights of the epoch with the best validation score, instead of the last.
        smoothing: label smoothing. watch: called with each training step. live: what the steps are run through,
            given their number; `view.live` draws a bar and a curve.

    Raises:
        CourseError: rows that make no task, labels outside the classes, `best` without validation rows,
            a tokenizer that is not the stack's.

    Known departure: GPT-1's auxiliary language-model loss is left out.
    """
    start = time.perf_counter()
    kind, names = _task(task, kind, classes)
    stack, pooler = _parts(stack)
    _fits(stack, tokenizer)
    if epochs < 1 or batch < 1:
        raise CourseError(f"epochs is {epochs} and batch is {batch}; both must be at least 1.")
    if peft is not None and frozen:
        raise CourseError("peft trains new weights in the body, frozen=True none at all; choose one of them.")
    if best and "validation" not in task:
        raise CourseError("best=True chooses by the validation score, but the task has no validation rows.")
    count = len(names) if names else None
    frame = Frame(tokenizer, stack.config, kind, classes=count, max_length=max_length)
    rows = {split: frame.rows(data) for split, data in task.items() if split in ("train", "validation", "test")}
    metric = metric or _default_metric(kind, names)
    if metric not in metrics.METRICS:
        raise CourseError(f"There is no metric {metric!r}; there are {', '.join(metrics.METRICS)}.")

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if hasattr(stack, "for_task"):  # models.baselines.Words puts more than a head on top
            own: Any = stack
            model = own.for_task(kind, count, pretrained=pretrained, frozen=frozen, dropout=dropout)
        else:
            body = _copy(stack, pretrained=pretrained, dropout=dropout)
            body = body if peft is None else cast(Stack, peft(body))
            under_head = body if on_top is None else cast(Stack, on_top(body))
            model = _head(under_head, kind, count, pool or ("last" if stack.config.causal else "first"))
            if pretrained and pooler is not None and isinstance(model, heads.Classifier) and model.pool == "first":
                model.pooler.load_state_dict(pooler.state_dict())
                model.pooler.activation = pooler.activation
            if frozen:
                body.requires_grad_(False)
        batches = TaskBatches(frame, rows["train"], batch, seed)
        steps = epochs * batches.per_epoch
        history: list[Step] = []
        validation: list[float] = []
        kept: dict[str, Tensor] = {}

        def observed(training: Iterator[Step]) -> Iterator[Step]:
            for step in training:
                history.append(step)
                if watch is not None:
                    watch(step)
                if "validation" in rows and step.step % batches.per_epoch == 0:
                    validation.append(_score(metric, *_answers(model, frame, rows["validation"], names)))
                    if best and validation[-1] == max(validation):
                        kept.update({name: value.clone() for name, value in model.state_dict().items()})
                yield step

        optimizer = optim.adamw(model, lr, weight_decay=weight_decay)
        schedule = optim.linear(steps, round(warmup * steps))
        options: dict[str, Any] = {"steps": steps, "device": device, "precision": precision}
        list(live(observed(train(model, batches, _loss(kind, smoothing), optimizer, schedule, **options)), steps))
        if kept:
            model.load_state_dict(kept)
    predictions, truth = _answers(model, frame, rows["test"], names)
    return Result(
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


def predict(result: Result, data: Rows) -> list[Any]:
    """What the fine-tuned model says of new rows, in the form of `Result.predictions`. The rows need labels;
    any will do."""
    return _answers(result.model, result.frame, result.frame.rows(data), result.names)[0]


def sweep(
    stack: Stack | nn.Module,
    task: Mapping[str, Rows],
    tokenizer: Tokenizer,
    *,
    lrs: Sequence[float],
    seeds: Sequence[int] = (0,),
    **options: Any,
) -> dict[float, list[Result]]:
    """Fine-tune at several learning rates, everything else equal: learning rate -> one result a seed.

    options: of `finetune`.

    Raises:
        CourseError: what `finetune` raises; no rate or no seed; a rate so high that the loss is no longer a number.
    """
    if not lrs or not seeds:
        raise CourseError("A sweep needs at least one learning rate and one seed.")
    return {lr: [finetune(stack, task, tokenizer, lr=lr, seed=seed, **options) for seed in seeds] for lr in lrs}


@torch.no_grad()
def features(
    stack: Stack | nn.Module,
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    *,
    pairs: Sequence[Text] | None = None,
    pool: heads.Pool = "mean",
    batch: int = 64,
) -> Float[Tensor, "N D"]:
    """One vector a text (or pair) from the frozen body's top layer: features for any classifier.

    Each text is read once and without dropout, however long the classifier then trains.
    """
    body, _ = _parts(stack)
    _fits(body, tokenizer)
    rows = [{"text": text, "pair": pair, "label": 0} for text, pair in zip(texts, pairs or texts, strict=True)]
    frame = Frame(tokenizer, body.config, "pair" if pairs else "single", classes=1)
    framed, device, training = frame.rows(rows), next(body.parameters()).device, body.training
    vectors: list[Tensor] = [torch.empty(0)] * len(framed)
    body.eval()
    for numbers, some in in_order(frame, framed, batch):
        inputs = {name: value.to(device) for name, value in some.items() if name != "labels"}
        for number, vector in zip(numbers, heads.pool(body(**inputs), inputs["keep"], pool).cpu(), strict=True):
            vectors[number] = vector
    body.train(training)
    return torch.stack(vectors)


@torch.no_grad()
def _answers(
    model: nn.Module, frame: Frame, rows: Sequence[Row], names: Sequence[str], batch: int = 64
) -> tuple[list[Any], list[Any]]:
    """(predictions, truth), one entry a row."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    said: list[Any] = [None] * len(rows)
    for numbers, some in in_order(frame, rows, batch):
        inputs = {name: value.to(device) for name, value in some.items() if name != "labels"}
        out = model(**inputs)
        for place, number in enumerate(numbers):
            said[number] = _answer(frame, rows[number], out, place, names)
    model.train(was_training)
    return said, [_truth(frame, row, names) for row in rows]


def _answer(frame: Frame, row: Row, out: Any, place: int, names: Sequence[str]) -> Any:
    if frame.kind == "span":
        return spans.answer(row, out[0][place], out[1][place])
    scores = out[place].float().cpu()
    if frame.kind == "tagging":
        # A word that was cut off gets the first label ("O" where there is one).
        other = names.index("O") if "O" in names else 0
        tags = scores.argmax(-1).tolist()
        return [names[tags[token] if token >= 0 else other] for token in row.words]
    return scores.squeeze(-1).item() if frame.classes is None and frame.kind != "choice" else int(scores.argmax())


def _truth(frame: Frame, row: Row, names: Sequence[str]) -> Any:
    if frame.kind == "span":
        return list(row.answers) if len(row.answers) > 1 else row.answer
    if frame.kind == "tagging":
        return [names[label] for label in row.truth]
    return row.label


def _task(task: Mapping[str, Rows], kind: Kind | None, classes: Sequence[str] | int | None) -> tuple[Kind, list[str]]:
    """The kind of task and the names of its labels (none for scores, spans and choices)."""
    for split in ("train", "test"):
        if split not in task:
            raise CourseError(f"A task needs {split!r} rows; this one has {', '.join(task) or 'none'}.")
    rows = task["train"]
    first = next(iter(rows), None)
    if first is None:
        raise CourseError("The task has no training rows.")
    kind = kind or kind_of(first)
    if kind in ("span", "choice"):
        return kind, []
    column = "labels" if kind == "tagging" else "label"
    if classes is not None:
        names = [str(i) for i in range(classes)] if isinstance(classes, int) else list(classes)
    elif named := _feature_names(rows, column):
        names = named
    elif isinstance(first.get(column), float):
        names = []
    else:
        values = (row[column] for row in rows)
        labels = set(chain.from_iterable(values)) if kind == "tagging" else set(values)
        names = [str(i) for i in range(max(labels) + 1)]
    if len(names) == 1:
        raise CourseError(f"The task has only one class, {names[0]!r}; there is nothing to learn.")
    return kind, names


def _feature_names(rows: Rows, column: str) -> list[str] | None:
    """The label names of a `datasets.Dataset`."""
    feature = getattr(rows, "features", {}).get(column)
    feature = getattr(feature, "feature", feature)  # of a list's elements
    names = getattr(feature, "names", None)
    return list(names) if names else None


def _parts(model: Stack | nn.Module) -> tuple[Stack, heads.Pooler | None]:
    """The stack of a model, and its pooler where it has one."""
    if hasattr(model, "for_task"):
        return cast(Stack, model), None
    stack = model if isinstance(model, Stack) else getattr(model, "stack", None)
    if not isinstance(stack, Stack):
        raise CourseError(
            f"Fine-tuning starts from a Stack or a model that owns one; a {type(model).__name__} has none."
        )
    return stack, getattr(model, "pooler", None)


def _fits(stack: Stack, tokenizer: Tokenizer) -> None:
    if tokenizer.vocab.size != stack.config.embed.vocab:
        raise CourseError(
            f"The tokenizer has {tokenizer.vocab.size} tokens, the model {stack.config.embed.vocab}; "
            "they do not belong together."
        )


def _copy(stack: Stack, *, pretrained: bool, dropout: float | None) -> Stack:
    """The same model apart from the original; a decoder's vocabulary grows by the marks of
    `inputs.Frame.layout`."""
    config = stack.config
    if dropout is not None:
        config = replace(config, dropout=dropout, attention_dropout=dropout)
    extra = MARKS if config.causal else 0
    config = replace(config, embed=replace(config.embed, vocab=config.embed.vocab + extra))
    body = Stack(config)
    if pretrained:
        state = {name: value.detach().float().clone() for name, value in stack.state_dict().items()}
        table = "embed.tokens.weight"
        fresh = body.state_dict()[table][stack.config.embed.vocab :]
        state[table] = torch.cat([state[table], fresh.to(state[table].device)])
        body.load_state_dict(state)
    return body


def _head(body: Stack, kind: Kind, classes: int | None, pool: heads.Pool) -> nn.Module:
    if kind == "span":
        return heads.Span(body)
    if kind == "choice":
        return heads.Choice(body, pool)
    if kind == "tagging":
        return heads.Tagger(body, classes or 1)
    return heads.Classifier(body, classes or 1, pool)


def _loss(kind: Kind, smoothing: float) -> Loss:
    if not smoothing:
        return LOSSES[kind]
    if kind == "span":
        raise CourseError("Label smoothing is not for spans; leave smoothing at 0.")
    return lambda model, batch: LOSSES[kind](model, batch, smoothing=smoothing)  # type: ignore[call-arg]


def _default_metric(kind: Kind, names: Sequence[str]) -> str:
    if kind == "span":
        return "exact_match"
    if kind == "tagging":
        return "entity_f1" if any(name.startswith("B-") for name in names) else "accuracy"
    return "accuracy" if names or kind == "choice" else "pearson"


def _score(metric: str, predictions: list[Any], truth: list[Any]) -> float:
    if metric != "entity_f1" and isinstance(predictions[0], list):
        predictions, truth = list(chain.from_iterable(predictions)), list(chain.from_iterable(truth))
    return metrics.METRICS[metric](predictions, truth)


def _per_class(kind: Kind, predictions: list[Any], truth: list[Any], names: list[str]) -> dict[str, dict[str, float]]:
    if not names:
        return {}
    if kind == "tagging":
        number = {name: i for i, name in enumerate(names)}
        predictions, truth = ([number[tag] for row in rows for tag in row] for rows in (predictions, truth))
    return metrics.per_class(predictions, truth, names)
