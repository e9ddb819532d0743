"""A task's rows as a model reads them, its labels' names and its metric."""

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
    """A task as the model reads it.

    Attributes:
        rows: the encoded rows of each split.
        frame: turns a row into the model's input.
        names: the labels' names; empty for scores, spans and choices.
        metric: the metric of the test rows' score.
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
    """The task's rows, encoded for a model.

    Args:
        task: rows by split.
        tokenizer: the model's.
        body: of the model.
        config: may set the kind of task, its classes and its metric.

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
    """The first training row, whose columns say what kind of task it is."""
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
    """The labels' names; empty for scores, spans and choices.

    Args:
        kind: of task.
        rows: for training.
        classes: the names, if the caller gives them.
    """
    if kind in ("span", "choice"):
        return []
    names = _given_names(kind, rows, classes)
    if names is None:
        names = _numbers(kind, list(rows))
    # A single class is enough where each row has a list of labels: it is in the list or not.
    fewest = 1 if isinstance(next(iter(rows)).get("label"), list) else 2
    if names and len(set(names)) < max(fewest, len(names)):
        raise CourseError(
            f"The classes are {', '.join(names)}; there must be two or more, each with its own"
            " name."
        )
    return names


def _given_names(
    kind: Kind, rows: Iterable[Row], classes: Sequence[str] | None
) -> list[str] | None:
    """The names that the caller or the dataset's features give, if they do."""
    if classes:
        return list(classes)
    feature = getattr(rows, "features", {}).get(_column(kind))  # of a datasets.Dataset
    feature = getattr(feature, "feature", feature)  # of a list's elements
    names = getattr(feature, "names", None)
    return list(names) if names else None


def _numbers(kind: Kind, rows: list[Row]) -> list[str]:
    """Classes that have numbers only: "0", "1", ...; none if the labels are scores."""
    column = _column(kind)
    if isinstance(rows[0].get(column), float):
        return []
    labels = [row[column] for row in rows]
    if isinstance(labels[0], list):  # of words, or all that hold
        labels = list(chain.from_iterable(labels))
    return [str(number) for number in range(max(labels) + 1)]


def _column(kind: Kind) -> str:
    return "labels" if kind == "tagging" else "label"


def _check_metric(metric: str, kind: Kind, names: Sequence[str], multi_label: bool) -> None:
    """Refuse a metric that does not fit the task before training, not after it."""
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
    """Warn of sentences whose tags break the rules of their scheme, or mix two."""
    odd = metrics.count_odd_rows([names[label] for label in row.truth] for row in rows)
    if odd:
        warnings.warn(
            f"{odd:,} of {len(rows):,} {split} sentences have tags that do not follow one another,"
            " such as I-PER behind O; entity F1 counts what they name, as conlleval does.",
            CourseWarning,
            stacklevel=4,
        )


def _check_tokenizer(tokenizer: Tokenizer, body: Any) -> None:
    """Whether the tokenizer's tokens are those of the model's table.

    A table may have more rows: many are padded to a round number (t5-small: 32,100 of 32,128).
    """
    rows = body.config.embed.vocab
    if tokenizer.vocab.size > rows:
        raise CourseError(
            f"The tokenizer has {tokenizer.vocab.size} tokens, the model only {rows}; they do not"
            " belong together."
        )
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
