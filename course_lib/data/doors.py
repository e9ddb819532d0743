"""Text and labelled examples by one name, whichever door they come through: `corpus(source)` and
`task(source)`.

The entry point `course_lib.sources` names modules with `documents(n, split, seed)`, rows with a
column `text`, and if there are tasks `examples(task, n, split, seed)`, labelled rows, and
`label_names(task)`, their classes."""

import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from course_lib import hub
from course_lib.data import columns as shapes
from course_lib.data import folders, readers
from course_lib.data.columns import SAY, Columns, Placed, Row, is_number
from course_lib.errors import CourseError
from course_lib.files import COURSE

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

AnyDataset: TypeAlias = "Dataset | IterableDataset"
# files, or a dataset of the hub or of files in its layout
Opened: TypeAlias = "folders.Found | AnyDataset"

SHIPPED = {name: COURSE / "data" / name for name in ("docs", "manual")}
TOO_FEW = "n is {}; ask for at least one row, or leave it out for all."
MOST_CLASSES = 1000
FEW_CLASSES = 20  # more must each have two rows, on average
PEEK = 100  # rows of a dataset that are looked at for one with a label
# Fewer texts, or texts of more characters on average, are cut into documents, if they have so many
# characters in all.
FEW, BOOK, SMALL = 32, 100_000, 5000
ENDS = [re.compile(end) for end in (r"\n\s*\n", r"\n", r"[.!?。！？]+['\")\]’”]*\s*", r"\s")]
BUFFER = 1000  # rows of a stream among which n are drawn
# The builders of `datasets` that read tables; others decode archives, images or what a file says of
# itself.
PLAIN = ("arrow", "cache", "conll", "csv", "json", "parquet", "text")
ALIASES = {"validation": ("valid", "val", "dev")}


@cache
def generated(name: str) -> Any:
    """The source registered under `name`; None where no installed package registers one."""
    return next(
        (point.load() for point in entry_points(group="course_lib.sources", name=name)), None
    )


def corpus(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    column: str | None = None,
    streaming: bool = False,
) -> AnyDataset:
    """Documents, one a row, in the column `text`.

    Args:
        source: "world", the generated town (its rows have all annotations of `World.document`);
            "docs", docstrings of the course's libraries; "manual", 79 pages of Python's; the path
            of a file or folder (`folders` has the formats); or "hub:NAME:CONFIG@REVISION".
        split: "train", "validation" or "test"; of files also a file's own name ("dev_matched").
        n: so many documents at most, drawn by `seed`; None: all there are, of the endless world
            2,000.
        column: where the text stands, if not under a usual name.
        streaming: a `datasets.IterableDataset`, of which no more is read than is asked for.
    """
    name = str(source)
    if (made := generated(name)) is not None:
        rows = _dataset(made.documents(n, split, seed))
        return rows.to_iterable_dataset() if streaming else rows
    if generated(name.partition("/")[0]) is not None:
        raise CourseError(f"{name} is a task, with labels; the texts are {name.partition('/')[0]}.")
    opened = _open(str(SHIPPED.get(name, name)), split, "corpus", streaming)
    if not isinstance(opened, folders.Found):
        return _sample(_text(opened, name, column), n, seed)
    from datasets import Features, IterableDataset, Value

    how: dict[str, Any] = {"found": opened, "column": column}
    kinds = Features({"text": Value("string")})
    if streaming:
        found: AnyDataset = IterableDataset.from_generator(
            _documents, features=kinds, gen_kwargs=how
        )
    else:
        found = _dataset(_documents(**how), kinds)
    # these stand in the order that 0 draws
    return _sample(found, n, None if name in SHIPPED and seed == 0 else seed)


def task(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    columns: Columns | None = None,
) -> "Dataset":
    """Labelled examples, one a row.

    Columns: `text, label` (one text), `text, pair, label` (two), `tokens, labels` (tagging), `text,
    choices, label` (which continuation), `text, pair, answer, start, answers` (a question, its
    passage, the answer in it and its first character, all answers that count; start is -1 where
    there is none), `text, target` (a summary, a translation). Treebanks have `upos`, `heads` (1 is
    the first word, 0 the root) and `deprels` beside their tokens and labels. The classes are those
    of the training split, `dataset.features["label"].names` or, for tagging,
    `dataset.features["labels"].feature.names`. If the labels are not whole numbers they are scores:
    `label` is a float.

    Args:
        source: "world/sentiment" or another task of the world, of which None are 1,000; otherwise
            as for `corpus`.
        columns: our names and the source's, {"text": "review", "label": "stars"}, where the reader
            does not know them or others are wanted; in tables and CoNLL files also numbers from 0.
    """
    name = str(source)
    owner, _, of = name.partition("/")
    if (made := generated(owner)) is not None and of:
        if not hasattr(made, "examples"):
            raise CourseError(f"{owner} has texts and no tasks; read them by data.corpus.")
        if n is not None and n < 1:
            raise CourseError(TOO_FEW.format(n))
        rows = made.examples(of, n, split, seed)
        return _dataset(rows, features(rows[0], made.label_names(of)))
    if made is not None:
        raise CourseError(
            f"{name} has texts; a task of it is called {name}/NAME, as in world/sentiment."
        )
    opened = _open(name, split, "task")
    first = _first(opened, name, split, columns)
    names = _classes_of(opened, first, name, split, columns)
    kinds = features(first, names)
    if n is not None and not isinstance(opened, folders.Found):
        opened = opened.shuffle(seed)
        return _dataset(islice(_numbered(opened, name, columns, names), n), kinds)
    return _sample(_dataset(_numbered(opened, name, columns, names), kinds), n, seed)


def has_labels(source: str | Path) -> bool:
    """Whether `task` may read it: not so texts alone, such as a book."""
    owner, _, of = str(source).partition("/")
    if generated(owner) is not None or owner in SHIPPED or owner.startswith(hub.PREFIX):
        return bool(of) or owner.startswith(hub.PREFIX)
    found = folders.find(Path(source), "train", "corpus")
    return found.format != folders.TEXT or all(map(readers.is_table, found.files))


def held_out(source: str | Path, *, columns: Columns | None = None) -> str:
    """The split to score on: "test" if it is there with its labels, else "validation"."""
    name = str(source)
    if generated(name.partition("/")[0]) is not None:
        return "test"
    try:
        _first(_open(name, "test", "task", streaming=True), name, "test", columns)
    except CourseError:
        _first(_open(name, "validation", "task", streaming=True), name, "validation", columns)
        return "validation"
    return "test"


def _open(source: str, split: str, door: folders.Door, streaming: bool = False) -> Opened:
    if source.startswith(hub.PREFIX):
        return _load(source, split, streaming)
    try:
        found = folders.find(Path(source), split, door)
    except OSError as error:
        raise CourseError(f"{source[:80]} cannot be read ({error.strerror}).") from None
    if found.format != folders.PARQUET:
        return found
    (place,) = found.files
    return _load(str(place), split, streaming)


def _dataset(rows: Iterable[Row], features: Any = None) -> "Dataset":
    """Rows as a `datasets.Dataset` in memory."""
    from datasets import Dataset

    made = list(rows)
    if not made:
        raise CourseError("There are no rows: the source is empty, or n is 0.")
    return Dataset.from_list(made, features=features)


def _sample(rows: AnyDataset, n: int | None, seed: int | None) -> AnyDataset:
    """`n` of the rows, drawn by `seed`, or the first if it is None; all of them, in order, if n is
    None.
    """
    from datasets import Dataset

    if n is None:
        return rows
    if n < 1:
        raise CourseError(TOO_FEW.format(n))
    if seed is not None:
        rows = (
            rows.shuffle(seed)
            if isinstance(rows, Dataset)
            else rows.shuffle(seed, buffer_size=BUFFER)
        )
    return rows.take(n)


def _documents(found: folders.Found, column: str | None) -> Iterator[Row]:
    """The texts, in pieces where they are few or as long as books: cut at paragraphs, lines,
    sentences or words.
    """
    rows = shapes.texts(found.records("corpus", {"text": column} if column else None), column)
    head, size = [], 0
    for row in rows:
        head.append(row)
        size += len(row["text"])
        if len(head) == FEW or size > FEW * BOOK:
            break
    if len(head) == FEW or size < SMALL:
        yield from chain(head, rows)
        return
    # characters: more than a row of any model here, if there are so many
    least = min(max(size // 80, 250), 2000)
    for row in chain(head, rows):
        text, start = row["text"].rstrip(), 0
        while len(text) - start > 2 * least:
            ends = (end.search(text, start + least, start + 2 * least) for end in ENDS)
            stop = next((end.end() for end in ends if end), start + 2 * least)
            if piece := text[start:stop].strip():
                yield {"text": piece}
            start = stop
        yield {"text": text[start:].strip()}


def _text(rows: AnyDataset, name: str, column: str | None) -> AnyDataset:
    """The rows with their text in `text`."""
    # a stream may not know its columns
    there = list(rows.column_names or next(iter(rows.take(1)), ()))
    texts = [
        name
        for name, kind in (rows.features or {}).items()
        if getattr(kind, "dtype", "") == "string"
    ]
    try:
        found = texts[0] if len(texts) == 1 and column is None else shapes.text_of(there, column)
    except CourseError as error:
        raise CourseError(f"{name}: {error}") from None
    if found == "text":
        return rows
    return rows.select_columns(found).rename_column(found, "text")


def _records(rows: AnyDataset) -> Iterator[Placed]:
    """The rows of a published dataset, classes as their names, and None for one that is withheld
    (-1).
    """
    kinds = {name: getattr(kind, "feature", kind) for name, kind in (rows.features or {}).items()}
    names = {name: [*kind.names, None] for name, kind in kinds.items() if hasattr(kind, "names")}
    for record in rows:
        words = {
            name: (
                [of[i] for i in record[name]]
                if isinstance(record[name], list)
                else of[record[name]]
            )
            for name, of in names.items()
        }
        which = (
            record.get("id") or record.get("idx") or repr(str(next(iter(record.values()), ""))[:40])
        )
        yield f"row {which}", record | words


def _placed(opened: Opened, source: str, asked: Columns | None) -> Iterator[tuple[str, Row]]:
    """The labelled rows in the course's columns, each with its place."""
    if isinstance(opened, folders.Found):
        return shapes.rows(opened.records("task", asked), asked)
    records = ((f"{source}, {place}", record) for place, record in _records(opened))
    return shapes.rows(records, asked, withheld=True)


def _first(opened: Opened, source: str, split: str, asked: Columns | None) -> Row:
    """The first row; of a dataset, the first with a label among the first few."""
    few = opened if isinstance(opened, folders.Found) else opened.take(PEEK)
    for _, row in _placed(few, source, asked):
        return row
    raise CourseError(
        f"{source} has no rows with labels in its {split} split; use another, such as validation."
    )


def _classes_of(
    opened: Opened, row: Row, source: str, split: str, asked: Columns | None
) -> Sequence[str]:
    """The classes: the dataset's own, or those of the training split; none for scores or without
    labels.
    """
    if "choices" in row or not {"label", "labels"} & row.keys():
        return ()
    if not isinstance(opened, folders.Found):
        column = shapes.label_of(shapes.names_of(opened[0], asked))
        kind = opened.features.get(column)
        if (names := getattr(getattr(kind, "feature", kind), "names", None)) is not None:
            return list(names)
    if split != "train":
        with suppress(CourseError):  # a published test set may come without its training part
            opened = _open(source, "train", "task")
    return classes(
        (row.get("labels", row.get("label")) for _, row in _placed(opened, source, asked)), source
    )


def _numbered(
    opened: Opened, source: str, asked: Columns | None, names: Sequence[str]
) -> Iterator[Row]:
    """The rows with their labels as numbers of `names`; without names, as scores."""
    for place, row in _placed(opened, source, asked):
        column = "labels" if "labels" in row else "label"
        if column not in row or "choices" in row:
            yield row
            continue
        said = row[column] if column == "labels" else [row[column]]
        try:
            numbers = [names.index(label) if names else float(label) for label in said]
        except ValueError:
            text = row.get("text") or " ".join(row["tokens"])
            among = f"among {', '.join(names[:20])}" if names else "a number, as other scores are"
            raise CourseError(
                f"{place}: the label {row[column]!r} of {text[:40]!r} is not {among}."
            ) from None
        yield {**row, column: numbers if column == "labels" else numbers[0]}


def classes(labels: Iterable[Any], where: str) -> list[str]:
    """The classes among a training split's labels (or lists of them), "O" and small numbers first;
    none: scores.
    """
    found: set[str] = set()
    count = 0
    for label in labels:
        if isinstance(label, float):
            return []
        some = label if isinstance(label, list) else [label]
        found.update(some)
        count += len(some)
    whole = {label for label in found if label.lstrip("-").isdigit()}
    if found != whole and all(map(is_number, found)):
        return []
    if len(found) > MOST_CLASSES or FEW_CLASSES < len(found) > count / 2:
        raise CourseError(
            f"{where}: its labels are {len(found):,} different ones in {count:,} rows; if another"
            f" column is the label's, say it by {SAY}, and if these are scores, call the column"
            " score."
        )
    return sorted(
        found, key=lambda label: (label != "O", int(label) if label in whole else 0, label)
    )


def features(row: Row, names: Sequence[str]) -> Any:
    """The types of a task's columns, with the classes' names where they have any."""
    from datasets import ClassLabel, Dataset, Features, List, Value

    kinds = Features(Dataset.from_list([row]).features)
    if "answers" in kinds:
        kinds["answers"] = List(Value("string"))  # the first row's may be empty
    if "labels" in kinds and names:
        kinds["labels"] = List(ClassLabel(names=list(names)))
    elif "choices" in kinds:
        kinds["label"] = Value("int64")
    elif "label" in kinds:
        kinds["label"] = ClassLabel(names=list(names)) if names else Value("float64")
    return kinds


def _load(source: str, split: str, streaming: bool = False) -> AnyDataset:
    """A split of "hub:NAME:CONFIG@REVISION", the last two optional; or one Parquet or Arrow
    file.
    """
    from datasets import packaged_modules

    if (file := Path(source)).is_file():
        kind, name = "arrow" if file.suffix == ".arrow" else "parquet", hub.Name(source)
        return _read(_builder(name, kind, data_files={split: source}), name, split, streaming)
    name = hub.parse(source)
    if name.folder is not None:
        return _read(_builder(name, str(name.folder)), name, split, streaming)
    if name.place in {module.name for module in pkgutil.iter_modules(packaged_modules.__path__)}:
        # The library would take such a name for its reader of that format, and search the current
        # folder for files.
        raise CourseError(
            f"{source} names a format and no dataset; write hub:OWNER/NAME, or the path of a"
            " folder."
        )
    with hub.reached():
        builder = _builder(name, name.place)
        if builder.name == "cache" and builder.hash != hub.commit(name):
            # Where it reaches no hub the library takes the tables made last, of whatever revision.
            raise hub.explain(ConnectionError(), name, "dataset")
        return _read(builder, name, split, streaming)


def _builder(name: hub.Name, path: str, **files: Any) -> Any:
    import datasets

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # nobody is told who read what
    try:
        builder = datasets.load_dataset_builder(path, name.config, revision=name.revision, **files)
    except (
        Exception
    ) as error:  # the library has a dozen kinds, and those of requests, httpx and its own
        raise hub.explain(error, name, "dataset") from error
    if builder.name not in PLAIN:
        raise CourseError(
            f"The dataset {name.place!r} comes as {builder.name}, and the course reads tables only."
        )
    return builder


def _read(builder: Any, name: hub.Name, split: str, streaming: bool) -> AnyDataset:
    there = [str(one) for one in builder.info.splits or builder.config.data_files or ()]
    chosen = next((alias for alias in (split, *ALIASES.get(split, ())) if alias in there), split)
    if there and chosen not in there:
        raise CourseError(
            f"The dataset {name.place!r} has no split {split!r}; it has {', '.join(there)}."
        )
    try:
        if streaming:
            return builder.as_streaming_dataset(split=chosen)
        builder.download_and_prepare()
        return builder.as_dataset(split=chosen)
    except Exception as error:
        raise hub.explain(error, name, "dataset") from error
