"""A hub's dataset in the course's columns: renamed where that is enough, otherwise made row by row."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from course_lib.data import hub_sets, shapes
from course_lib.data.build import Rows, quiet
from course_lib.data.readers import Columns
from course_lib.errors import CourseError

HIDDEN = -1  # the label of rows whose gold is withheld, or on which the annotators did not agree
PEEK = 100


def rows(published: Rows, source: str, split: str, columns: Columns | None, labels: Sequence[str] | None) -> Rows:
    """A task's rows. The class names are the dataset's own; where it has none, `labels`, or the training split's words.

    Raises:
        CourseError: columns that make no task or are not there, a label that is no class, a split without labels.
    """
    from datasets import ClassLabel

    first = next(iter(published.take(1)), None)
    if first is None:
        raise CourseError(f"{source} has no rows in its {split} split.")
    names = shapes.names_of(first, columns, source)
    column = "labels" if "tokens" in names else "label"
    if column not in names or "choices" in names:
        return _in_our_columns(published, first, names, source)
    value = first[str(names[column])]
    value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, str | bool):
        classes = list(labels or _classes(published, source, split, str(names[column])))
        return _made(published, first, names, source, classes)
    out = _in_our_columns(published, first, names, source)
    if column == "label":
        out = _with_gold(out, source, split)
        if labels and isinstance(value, int):
            out = out.cast_column("label", ClassLabel(names=list(labels)))
    return out


def _in_our_columns(published: Rows, first: dict[str, Any], names: shapes.Names, source: str) -> Rows:
    """Renamed, if that is all; the labels stay what they are."""
    if "answers" in names or "choices" in names or not all(isinstance(theirs, str) for theirs in names.values()):
        return _made(published, first, names, source)
    theirs = {str(name): ours for ours, name in names.items()}
    chosen = published.select_columns(list(theirs))
    return chosen.rename_columns({name: ours for name, ours in theirs.items() if name != ours})


def _made(
    published: Rows, first: dict[str, Any], names: shapes.Names, source: str, classes: list[str] | None = None
) -> Rows:
    """Each row made anew. classes: of labels that are words."""
    from course_lib.data.tasks import features

    how: dict[str, Any] = {"names": names, "source": source, "classes": classes or []}
    kinds = features(_row(first, **how), classes or [])
    if (
        classes is None
        and (label := (published.features or {}).get(str(names.get("label"))))
        and "choices" not in names
    ):
        kinds["label"] = label
    with quiet():
        return published.map(_row, fn_kwargs=how, remove_columns=hub_sets.columns_of(published), features=kinds)


def _row(record: dict[str, Any], names: shapes.Names, source: str, classes: list[str]) -> dict[str, Any]:
    try:
        row = shapes.row(record, names)
        if classes and "labels" in row:
            row["labels"] = [_number(label, classes) for label in row["labels"]]
        elif classes:
            row["label"] = _number(row["label"], classes)
        elif "label" in row and "choices" not in row:
            row["label"] = record[str(names["label"])]
    except CourseError as error:
        which = record.get("id") or record.get("idx") or f"{str(next(iter(record.values()), ''))[:40]!r}"
        raise CourseError(f"{source}, row {which}: {error}") from None
    kept = ("id", "title") if "answers" in names else ()
    return {name: str(record[name]) for name in kept if name in record} | row


def _number(label: str | float, classes: list[str]) -> int:
    if label not in classes:
        raise CourseError(f"the label {label!r} is not among {', '.join(classes[:20])}; give labels=.")
    return classes.index(str(label))


def _classes(published: Rows, source: str, split: str, column: str) -> list[str]:
    """The words that the training split has for labels; this split's, if it has no training split."""
    if split != "train":
        with suppress(CourseError):
            published = hub_sets.load(source, "train", streaming=not hasattr(published, "num_rows"))
    values = (row[column] for row in published.select_columns([column]))
    found = {shapes.label(label) for value in values for label in (value if isinstance(value, list) else [value])}
    return sorted(map(str, found), key=lambda label: (label != "O", label))


def _with_gold(rows: Rows, source: str, split: str) -> Rows:
    """The rows whose label is not hidden."""
    from datasets import Dataset

    if isinstance(rows, Dataset):
        shown = np.asarray(rows.with_format("numpy")["label"][:]) != HIDDEN
        some, all_shown = bool(shown.any()), bool(shown.all())
        kept: Rows = rows if all_shown else rows.select(np.flatnonzero(shown))
    else:
        some = any(row["label"] != HIDDEN for row in rows.take(PEEK))
        kept = rows.filter(_is_shown)
    if not some:
        raise CourseError(f"{source} withholds the labels of its {split} split; use another, such as validation.")
    return kept


def _is_shown(row: dict[str, Any]) -> bool:
    return bool(row["label"] != HIDDEN)
