"""Labelled examples by one name, whichever door they come through: `task(source)`, a `datasets.Dataset`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.data import readers
from course_lib.data.corpora import TOWN, dataset, from_hub, sample, split_files
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from datasets import Dataset

WORLD_EXAMPLES = 1000  # of an endless task, if no number is asked for
TABLES, COLUMN_FILES = (".tsv", ".csv"), (".conll", ".conllu", ".bio", ".iob", ".iob2")


def task(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    columns: readers.Columns | None = None,
    labels: Sequence[str] | None = None,
) -> "Dataset":
    """Labelled examples, one a row.

    Columns: `text, label` (one text), `text, pair, label` (two), `tokens, labels` (tagging), `text, choices, label`
    (which continuation). The names of the classes are in `dataset.features["label"].names`; for tagging in
    `dataset.features["labels"].feature.names`. If the labels are not whole numbers they are scores: `label` is a float.

    Args:
        source: "world/sentiment", "world/acceptability", "world/nli", "world/entities", "world/continuation"; a folder
            or file in a published format (GLUE-like .tsv or .csv, CoNLL columns); or "hub:NAME:CONFIG@REVISION".
        split: "train", "validation" or "test"; in a folder also a file's own name ("dev_matched").
        n: so many examples, drawn by `seed`; None: all there are, of the endless world 1,000.
        seed: which examples of the world, or which n of the others.
        columns: where text, pair and label stand in a table that the reader does not know.
        labels: the class names, if they are not to be read off the training split.

    Raises:
        CourseError: no such source, file, split or column; a label outside the set; an unreadable file.
    """
    name = str(source)
    if name.startswith("world/"):
        return _from_world(name.removeprefix("world/"), split, n, seed)
    if name.startswith("hub:"):
        return sample(_from_hub(name, split, columns), n, seed)
    return sample(_from_files(Path(source), split, columns, labels), n, seed)


def _from_world(name: str, split: str, n: int | None, seed: int) -> "Dataset":
    from course_lib.data.world import World

    world = World(TOWN)
    rows = world.task(name, WORLD_EXAMPLES if n is None else n, split, seed)
    return dataset(rows, _features(rows, world.label_names(name)))


def _from_hub(name: str, split: str, columns: readers.Columns | None) -> "Dataset":
    rows = from_hub(name, split)
    if "tokens" in rows.column_names:
        return rows
    theirs = columns or {ours: rows.column_names[i] for ours, i in readers.by_header(rows.column_names).items()}
    missing = {"text", "label"} - set(theirs)
    if missing or not set(theirs.values()) <= set(rows.column_names):
        raise CourseError(
            f"{name} has no column for {' and '.join(sorted(missing)) or 'what columns= names'}; "
            f"its columns are {', '.join(rows.column_names)}."
        )
    chosen = rows.select_columns(list(theirs.values()))
    return chosen.rename_columns({b: a for a, b in theirs.items() if a != b})


def _from_files(path: Path, split: str, columns: readers.Columns | None, labels: Sequence[str] | None) -> "Dataset":
    files = split_files(path, split, TABLES + COLUMN_FILES)
    rows = _read(files, columns)
    names = list(labels) if labels is not None else _class_names(path, split, rows, columns)
    if names is not None:
        _require_known(rows, names, files)
        rows = [_numbered(row, {name: i for i, name in enumerate(names)}) for row in rows]
    else:
        rows = [{**row, "label": float(row["label"])} for row in rows]
    return dataset(rows, _features(rows, names))


def _read(files: list[Path], columns: readers.Columns | None) -> list[readers.Row]:
    return [
        row
        for file in files
        for row in (readers.read_conll if file.suffix in COLUMN_FILES else readers.read_table)(file, columns)
    ]


def _class_names(path: Path, split: str, rows: list[readers.Row], columns: readers.Columns | None) -> list[str] | None:
    """The classes of the training split, where there is one beside this split; None if the labels are scores."""
    if split != "train":
        with suppress(CourseError):  # a published test set may come without its training part
            rows = _read(split_files(path, "train", TABLES + COLUMN_FILES), columns)
    found = {label for row in rows for label in _labels(row)}
    if (
        "label" in rows[0]
        and all(readers.is_number(x) for x in found)
        and not all(x.lstrip("-").isdigit() for x in found)
    ):
        return None
    if len(found) > 1000:
        raise CourseError(f"{path} has {len(found)} different labels; is this the label's column? Say it by columns=.")
    return sorted(found, key=lambda x: (x != "O", int(x) if x.lstrip("-").isdigit() else 0, x))


def _require_known(rows: list[readers.Row], names: list[str], files: list[Path]) -> None:
    for row in rows:
        for label in _labels(row):
            if label not in names:
                text = row.get("text") or " ".join(row["tokens"])
                raise CourseError(
                    f"{files[0]}: the label {label!r} of {text[:40]!r} is not among {', '.join(names)}; "
                    "correct it, or give labels=."
                )


def _numbered(row: readers.Row, number: dict[str, int]) -> readers.Row:
    if "labels" in row:
        return {**row, "labels": [number[label] for label in row["labels"]]}
    return {**row, "label": number[row["label"]]}


def _labels(row: readers.Row) -> list[str]:
    return row["labels"] if "labels" in row else [row["label"]]


def _features(rows: list[dict[str, Any]], names: Sequence[str] | None) -> Any:
    """The columns' types, with the classes' names where they have any."""
    from datasets import ClassLabel, Dataset, List

    if not rows:
        raise CourseError("There are no examples: the task is empty, or n is 0.")
    features = Dataset.from_list(rows[:1]).features
    if names is not None and "labels" in features:
        features["labels"] = List(ClassLabel(names=list(names)))
    elif names is not None and "choices" not in features:
        features["label"] = ClassLabel(names=list(names))
    return features
