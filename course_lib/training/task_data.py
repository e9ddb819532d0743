"""Prepare a task for fine-tuning: encode its rows, name its classes, choose its metric.

    data = prepare(task, tokenizer, model.stack, FinetuneConfig())
    data.rows["train"][0].ids     [[2, 417, 905, 3]], the token ids of the first row
    data.names                    ["bad", "good"]
    data.metric                   "accuracy"

It checks that task, tokenizer, model and metric fit together, before time is spent on training.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from course_lib.analysis import metrics
from course_lib.data.columns import Row
from course_lib.data.inputs import EncodedRow, Frame, kind_of
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError, CourseWarning
from course_lib.model.config import Kind
from course_lib.training.finetune_config import FinetuneConfig

SPLITS = ("train", "validation", "test")


class TaskData(NamedTuple):
    """A task, prepared for a model.

    Attributes:
        rows: split -> its encoded rows.
        frame: turns rows into the model's input.
        names: the names of the classes; empty if the task has scores, spans or choices.
        metric: the name of the metric that scores the test rows, in `metrics.METRICS`.
    """

    rows: dict[str, list[EncodedRow]]
    frame: Frame
    names: list[str]
    metric: str


def prepare(
    task: Mapping[str, Iterable[Row]],
    tokenizer: Tokenizer,
    body: Any,
    config: FinetuneConfig,
) -> TaskData:
    """Encode a task's rows for a model.

    Args:
        task: split -> its rows.
        tokenizer: the model's tokenizer.
        body: the model without its head.
        config: may give the kind of task, the names of its classes and its metric.

    Raises:
        CourseError: task, tokenizer, body and config do not fit together.
    """
    first = _first_row(task)
    kind = config.kind or kind_of(first)
    multi_label = isinstance(first.get("label"), list)
    names = _label_names(kind, task["train"], config.classes)
    _check_tokenizer(tokenizer, body)
    metric = config.metric or ("micro_f1" if multi_label else _default_metric(kind, names))
    _check_metric(metric, kind, names, multi_label)
    classes = len(names) if names else None
    frame = Frame(
        tokenizer,
        body.config,
        kind,
        classes=classes,
        max_length=config.max_length,
        multi_label=multi_label,
    )
    rows = {split: frame.rows(data) for split, data in task.items() if split in SPLITS}
    if metric in metrics.OF_SCORES and len(rows["test"]) < 2:
        raise CourseError("A correlation needs two test rows or more.")
    if metric == "entity_f1":
        for split, encoded in rows.items():
            _warn_of_odd_tags(encoded, names, split)
    return TaskData(rows, frame, names, metric)


def _first_row(task: Mapping[str, Iterable[Row]]) -> Row:
    """The first training row. Its columns say what kind of task it is."""
    for split in ("train", "test"):
        if split not in task:
            raise CourseError(
                f"A task needs {split!r} rows; this one has {', '.join(task) or 'none'}."
            )
    first = next(iter(task["train"]), None)
    if first is None:
        raise CourseError("The task has no training rows.")
    return first


def _label_names(kind: Kind, rows: Iterable[Row], classes: Sequence[str] | None) -> list[str]:
    """The names of the classes; empty if the task has scores, spans or choices.

    Args:
        kind: the kind of task.
        rows: the training rows.
        classes: the names, if the user gives them.
    """
    if kind in ("span", "choice"):
        return []
    names = _given_names(kind, rows, classes)
    if names is None:
        names = _numbers_as_names(kind, list(rows))
    # If each row has a list of labels, a single class is enough: it is in the list or not.
    fewest = 1 if isinstance(next(iter(rows)).get("label"), list) else 2
    are_different = len(set(names)) == len(names)
    if names and (not are_different or len(names) < fewest):
        raise CourseError(
            f"The classes are {', '.join(names)}; there must be two or more, each with its own"
            " name."
        )
    return names


def _given_names(
    kind: Kind, rows: Iterable[Row], classes: Sequence[str] | None
) -> list[str] | None:
    """The names that the user or the dataset gives; None if neither does."""
    if classes:
        return list(classes)
    feature = getattr(rows, "features", {}).get(_column(kind))  # a datasets.Dataset has types
    feature = getattr(feature, "feature", feature)  # the type of a list's elements
    names = getattr(feature, "names", None)
    return list(names) if names else None


def _numbers_as_names(kind: Kind, rows: list[Row]) -> list[str]:
    """The names "0", "1", ..., up to the largest label; empty if the labels are scores."""
    column = _column(kind)
    if isinstance(rows[0].get(column), float):
        return []
    labels = [row[column] for row in rows]
    if isinstance(labels[0], list):  # a label for each word, or several labels of a text
        labels = list(chain.from_iterable(labels))
    return [str(number) for number in range(max(labels) + 1)]


def _column(kind: Kind) -> str:
    return "labels" if kind == "tagging" else "label"


def _check_metric(metric: str, kind: Kind, names: Sequence[str], multi_label: bool) -> None:
    if metric not in metrics.METRICS:
        raise CourseError(f"There is no metric {metric!r}; there are {', '.join(metrics.METRICS)}.")
    fitting: tuple[str, ...] = metrics.OF_CLASSES
    if kind == "tagging":
        fitting = (*metrics.OF_CLASSES, "entity_f1")
    elif multi_label:
        fitting = ("micro_f1",)
    elif kind == "span":
        fitting = metrics.OF_TEXTS
    elif kind in ("single", "pair") and not names:
        fitting = metrics.OF_SCORES
    if metric not in fitting:
        raise CourseError(
            f"The metric {metric} does not fit the task's answers; there are {', '.join(fitting)}."
        )
    if metric == "f1" and kind != "choice" and len(names) != 2:
        raise CourseError(
            f"f1 is of the class 1 of two, and this task has {len(names)}; take macro_f1."
        )
    if metric == "entity_f1":
        metrics.check_tags(names)


def _is_tag(name: str) -> bool:
    return name == "O" or metrics.is_entity_tag(name)


def _warn_of_odd_tags(rows: Sequence[EncodedRow], names: Sequence[str], split: str) -> None:
    """Warn of sentences with tags that cannot follow one another, such as O I-PER."""
    odd = metrics.count_odd_rows([names[label] for label in row.truth] for row in rows)
    if odd:
        warnings.warn(
            f"{odd:,} of {len(rows):,} {split} sentences have tags that do not follow one another,"
            " such as I-PER behind O; entity F1 counts what they name, as conlleval does.",
            CourseWarning,
            stacklevel=4,  # 4 calls up is the caller of `finetune`
        )


def _check_tokenizer(tokenizer: Tokenizer, body: Any) -> None:
    """Refuse a tokenizer that does not belong to the model.

    A model may have more token embeddings than the tokenizer has tokens, because the number was
    rounded up: t5-small has 32,128 for 32,100 tokens.
    """
    rows = body.config.embed.vocab
    if tokenizer.vocab.size > rows:
        raise CourseError(
            f"The tokenizer has {tokenizer.vocab.size} tokens, the model only {rows}; they do not"
            " belong together."
        )
    # The zoo stores its tokens in a model that it loads. For any other model we cannot check them.
    known: tuple[str, ...] = getattr(body, "vocabulary", ())
    if tuple(tokenizer.tokens(range(len(known)))) != known:
        raise CourseError("The tokenizer has other tokens than the model's own; use that one.")


def _default_metric(kind: Kind, names: Sequence[str]) -> str:
    if kind == "span":
        return "exact_match"
    if kind == "tagging":
        has_types = any(name.startswith(("B-", "I-", "S-", "U-")) for name in names)
        has_one_type = "O" in names and all(len(name) == 1 for name in names)
        if has_types or (has_one_type and all(map(_is_tag, names))):
            return "entity_f1"
        spelled = [name for name in names if re.fullmatch(r"(?i)[biu][-_]\w+|\w+[-_][biu]", name)]
        if spelled:
            warnings.warn(
                f"The tag {spelled[0]!r} looks like one of entities, which is written B-PER; the"
                " score is the accuracy of single words.",
                CourseWarning,
                stacklevel=4,
            )
        return "accuracy"
    return "accuracy" if names or kind == "choice" else "pearson"
