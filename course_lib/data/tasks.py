"""Labelled examples by one name, whichever door they come through: `task(source)`, a `datasets.Dataset`."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from course_lib import hub
from course_lib.data import folders, hub_sets, readers
from course_lib.data.build import Rows, dataset, from_files, sample
from course_lib.data.corpora import TOWN
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

WORLD_EXAMPLES = 1000  # of an endless task, if no number is asked for
MOST_CLASSES = 1000
TEXTS = ("text", "pair", "target", "answer", "id", "title")  # columns of strings
LISTS = ("tokens", "upos", "deprels", "answers", "choices")  # of lists of strings


@overload
def task(
    source: str | Path, *, split: str = "train", n: int | None = None, seed: int = 0,
    columns: readers.Columns | None = None, labels: Sequence[str] | None = None, format: str | None = None,
    streaming: Literal[False] = False,
) -> "Dataset": ...  # fmt: skip


@overload
def task(
    source: str | Path, *, split: str = "train", n: int | None = None, seed: int = 0,
    columns: readers.Columns | None = None, labels: Sequence[str] | None = None, format: str | None = None,
    streaming: Literal[True],
) -> "IterableDataset": ...  # fmt: skip


def task(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    columns: readers.Columns | None = None,
    labels: Sequence[str] | None = None,
    format: str | None = None,
    streaming: bool = False,
) -> Rows:
    """Labelled examples, one a row.

    Columns: `text, label` (one text), `text, pair, label` (two), `tokens, labels` (tagging), `text, choices, label`
    (which continuation), `text, pair, answer, start, answers` (a question, its passage, the answer in it and its first
    character, all answers that count; start is -1 where there is none), `text, target` (a summary, a translation).
    Treebanks have `upos`, `heads` (1 is the first word, 0 the root) and `deprels` beside their tokens and labels.
    The names of the classes are in `dataset.features["label"].names`; for tagging in
    `dataset.features["labels"].feature.names`. If the labels are not whole numbers they are scores: `label` is a float.

    Args:
        source: "world/sentiment" or another task of the world; a folder or file in a published format, told by the
            files' endings (`course_lib.data.readers` has the table); or "hub:NAME:CONFIG@REVISION", the last two
            optional, which may also be a folder in the hub's layout.
        split: "train", "validation" or "test"; in a folder also a file's own name ("dev_matched").
        n: so many examples, drawn by `seed`; None: all there are, of the endless world 1,000.
        seed: which examples of the world, or which n of the others.
        columns: our names and the source's, {"text": "review", "label": "stars"}, where the reader does not know them
            or others are wanted; in tables and CoNLL files also numbers from 0.
        labels: the class names, if they are not to be read off the training split; empty: the labels are scores.
        format: of the files, if a folder holds several.
        streaming: a `datasets.IterableDataset`, of which no more is read than is asked for (but the training split
            once before, for its class names, if `labels` does not give them).

    Raises:
        CourseError: no such source, file, split or column; a label outside the set; something wrong in a file, and
            where.
    """
    name = str(source)
    if name.startswith("world/"):
        rows = _from_world(name.removeprefix("world/"), split, n, seed)
        return rows.to_iterable_dataset() if streaming else rows
    if hub.is_name(name):
        published = hub_sets.load(name, split, streaming)
    else:
        found = folders.find(Path(source), split, "task", format)
        if found.format.name != "parquet":
            return sample(_from_files(Path(source), found, split, columns, labels, streaming), n, seed)
        published = hub_sets.load_files(found.files, split, streaming)
    from course_lib.data import published as adapt

    return sample(adapt.rows(published, name, split, columns, labels), n, seed)


def _from_world(name: str, split: str, n: int | None, seed: int) -> "Dataset":
    from course_lib.data.world import World

    world = World(TOWN)
    rows = world.task(name, WORLD_EXAMPLES if n is None else n, split, seed)
    if not rows:
        raise CourseError("There are no examples: the task is empty, or n is 0.")
    return dataset(rows, features(rows[0], world.label_names(name)))


def _from_files(
    path: Path,
    found: folders.Found,
    split: str,
    columns: readers.Columns | None,
    labels: Sequence[str] | None,
    streaming: bool,
) -> Rows:
    how: dict[str, Any] = {"format": found.format.name, "columns": columns}
    _, first = next(readers.rows(files=[str(file) for file in found.files], door="task", **how))
    names: list[str] | None = None
    if labels is not None or ("choices" not in first and {"label", "labels"} & first.keys()):
        training = found.files
        if split != "train":
            with suppress(CourseError):  # a published test set may come without its training part
                training = folders.find(path, "train", "task", found.format.name).files
        names = list(labels) if labels is not None else _classes(path, [str(file) for file in training], **how)
    kinds = features(first, names or ())
    return from_files(_rows, found.files, kinds, streaming=streaming, names=tuple(names or ()), **how)


def _rows(
    files: list[str], format: str, columns: readers.Columns | None, names: tuple[str, ...]
) -> Iterator[readers.Row]:
    """The rows with their labels as numbers of `names`; without names, as scores."""
    number = {name: i for i, name in enumerate(names)}
    for where, row in readers.rows(format, "task", files, columns):
        if "labels" in row:
            yield {**row, "labels": [_numbered(label, number, row, where) for label in row["labels"]]}
        elif "label" in row and "choices" not in row:
            yield {**row, "label": _numbered(row["label"], number, row, where)}
        else:
            yield row


def _numbered(label: str | float, number: dict[str, int], row: readers.Row, where: str) -> float:
    if label in number:
        return number[str(label)]
    if not number and readers.is_number(str(label)):
        return float(label)
    text = row.get("text") or " ".join(row["tokens"])
    among = f"among {', '.join(list(number)[:20])}" if number else "a number, as other scores are"
    raise CourseError(f"{where}: the label {label!r} of {text[:40]!r} is not {among}; correct it, or give labels=.")


def _classes(path: Path, files: list[str], format: str, columns: readers.Columns | None) -> list[str]:
    """The classes of these files, "O" and small numbers first; none if the labels are scores."""
    found: set[str] = set()
    for _, row in readers.rows(format, "task", files, columns):
        if isinstance(row.get("label"), float):
            return []
        found.update(row["labels"] if "labels" in row else [row["label"]])
        if len(found) > MOST_CLASSES and not all(map(readers.is_number, found)):
            raise CourseError(
                f"{path} has over {MOST_CLASSES:,} different labels; is this the label's column? Say it by columns=."
            )
    whole = {label for label in found if label.lstrip("-").isdigit()}
    if found != whole and all(map(readers.is_number, found)):
        return []
    return sorted(found, key=lambda label: (label != "O", int(label) if label in whole else 0, label))


def features(row: dict[str, Any], names: Sequence[str]) -> Any:
    """The types of a task's columns, with the classes' names where they have any."""
    from datasets import ClassLabel, Dataset, Features, List, Value

    known = {name: Value("string") for name in TEXTS} | {name: List(Value("string")) for name in LISTS}
    known |= {"heads": List(Value("int32")), "start": Value("int32")}
    guessed = Dataset.from_list([row]).features
    kinds = Features({name: known.get(name, guessed[name]) for name in row})
    if "labels" in kinds and names:
        kinds["labels"] = List(ClassLabel(names=list(names)))
    elif "choices" in kinds:
        kinds["label"] = Value("int64")
    elif "label" in kinds:
        kinds["label"] = ClassLabel(names=list(names)) if names else Value("float64")
    return kinds
