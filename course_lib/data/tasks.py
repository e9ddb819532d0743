"""`task(source)`: the labelled examples of a source."""

import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib import hub
from course_lib.data import columns as shapes
from course_lib.data import folders, formats, readers
from course_lib.data.columns import ANSWERS, DOUBTFUL, Columns, Mapped, Placed, Record, Row
from course_lib.data.sources import (
    SHIPPED,
    AnyDataset,
    InstalledSource,
    Opened,
    as_dataset,
    check_draw,
    installed_source,
    open_source,
    sample,
)
from course_lib.errors import CourseError, CourseWarning

if TYPE_CHECKING:
    from datasets import Dataset

MAX_CLASSES = 1000  # a column with more different labels is refused
FEW_CLASSES = 20  # with more classes than this, a class must have two rows on average
PEEK = 100  # number of rows in which we look for a label, or at what the columns hold
SAY = '--columns text=review,label=stars (in Python: columns={"text": "review", "label": "stars"})'


def task(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    columns: Columns | None = None,
) -> "Dataset":
    """The labelled examples of a source, one in a row.

        columns                               a row is
        text, label                           one text; the label is a list if it has several
        text, pair, label                     two texts
        tokens, labels                        words with a label each (tagging)
        text, choices, label                  a text and its possible continuations
        text, pair, answer, start, answers    a question, its passage, the answer, the position of
                                              its first character in the passage (-1 if there is no
                                              answer), and all right answers
        text, target                          a text and its summary or translation

    Treebanks also have `upos`, `heads` (1 is the first word, 0 the root) and `deprels`.

    The classes are those of the training split. Their names are in
    `dataset.features["label"].names` or, for tagging, `dataset.features["labels"].feature.names`.
    Labels that are not whole numbers are scores: then `label` is a float.

    Args:
        source: a task that comes with the course, "tasks/sentiment"; NAME/TASK of an installed
            source; otherwise as for `corpus`.
        split: "train", "validation" or "test"; for files also a file's own name ("dev_matched").
        n: maximum number of rows, drawn at random; None returns all.
        seed: of the draw.
        columns: our column names -> the source's, such as {"text": "review", "label": "stars"}. It
            is needed if the source has no published format (formats.py), and may choose other
            columns. columns.py lists further entries.

    Raises:
        CourseError: the source cannot be read, or its columns are not known.

    Warns:
        CourseWarning: rows were left out, because they have no label or their line is broken.
    """
    name = str(source)
    installed = installed_source(name.partition("/")[0])
    if installed is not None:
        return _installed(installed, name, split, n, seed)
    opened = open_source(name, split, "task")
    wanted = None if columns is None else shapes.mapped(columns)
    rows = Rows(opened, name, wanted)
    first = rows.first(split)
    names = _classes(rows, first, split)
    kinds = features(first, names)
    if n is not None and not isinstance(opened, folders.Found):
        # A dataset of the hub may be large: shuffle it first, and read only so many rows.
        check_draw(n, seed)
        rows = Rows(opened.shuffle(seed), name, wanted)
        return as_dataset(islice(_numbered(rows, names), n), kinds)
    dataset = as_dataset(_numbered(rows, names), kinds)
    rows.warn()
    return sample(dataset, n, seed)


def _installed(
    source: InstalledSource, name: str, split: str, n: int | None, seed: int
) -> "Dataset":
    """Examples of NAME/TASK, where an installed package has registered NAME."""
    owner, _, task_name = name.partition("/")
    if not task_name:
        raise CourseError(f"{name} has texts; a task of it is called {name}/NAME.")
    if not hasattr(source, "examples"):
        raise CourseError(f"{owner} has texts and no tasks; read them by data.corpus.")
    check_draw(n, seed)
    examples = source.examples(task_name, n, split, seed)
    return as_dataset(examples, features(examples[0], source.label_names(task_name)))


def unlabelled(source: str | Path, *, columns: Columns | None = None) -> list[Row]:
    """Rows to predict. They are read as by `task`, but need no labels.

    Args:
        source: a file. A `.txt` file without tabs has one text in each line, unless `columns` are
            given.
        columns: as for `task`; the columns with labels may be left out.
    """
    path = Path(source)
    wanted = None if columns is None else shapes.mapped(columns)
    is_text = readers.unpacked(path).suffix.lower() == ".txt"
    if is_text and wanted is None and not readers.is_table(path) and not readers.is_conll(path):
        lines = [line.strip() for _, line in readers.read_lines(path)]
        texts: list[Row] = [{"text": line} for line in lines if line]
        if len(texts) < len(lines):
            blank = len(lines) - len(texts)
            warnings.warn(
                f"{source}: {blank:,} of {len(lines):,} lines are blank, and are left out.",
                CourseWarning,
                stacklevel=2,
            )
        return texts
    opened = open_source(str(source), "train", "task")
    rows = Rows(opened, str(source), wanted, labelled=False)
    records = [row for _, row in rows]
    rows.warn()
    return records


def has_labels(source: str | Path) -> bool:
    """Whether a source may have labels. A book, for instance, has only text."""
    owner, _, task_name = str(source).partition("/")
    if owner.startswith(hub.PREFIX):
        return True
    if installed_source(owner) is not None or str(source) in SHIPPED:
        return bool(task_name)
    files = folders.find(Path(source), "train", "corpus")
    return files.kind != folders.TEXT or all(map(readers.is_table, files.files))


def held_out(source: str | Path, *, columns: Columns | None = None) -> str:
    """The split to evaluate on: "test" if there is one with labels, else "validation".

    A label such as -1 in the first test row counts as no label if there is a validation split.
    """
    name = str(source)
    if installed_source(name.partition("/")[0]) is not None:
        return "test"
    wanted = None if columns is None else shapes.mapped(columns)
    first: Row | None = None
    with suppress(CourseError):
        opened = open_source(name, "test", "task", streaming=True)
        first = Rows(opened, name, wanted).first("test")
    label = None if first is None else str(first.get("label")).casefold()
    if first is not None and (label not in DOUBTFUL or (wanted and wanted.classes)):
        return "test"
    try:
        opened = open_source(name, "validation", "task", streaming=True)
        Rows(opened, name, wanted).first("validation")
    except CourseError:
        if first is None:
            raise
        return "test"
    return "validation"


class Rows:
    """The rows of an opened source in the course's columns, each with its place in the source.

    Rows without a label and broken lines are left out; `warn` tells the user how many.

    Args:
        opened: files, or a dataset of the hub.
        source: the source's name, for messages.
        wanted: the user's `columns=`.
        labelled: whether rows must have their labels.
    """

    def __init__(
        self, opened: Opened, source: str, wanted: Mapped | None, labelled: bool = True
    ) -> None:
        self.opened = opened
        self.source = source
        self.wanted = wanted
        self.labelled = labelled
        self.shape: Mapped = Mapped()  # which column is which, known from the first record
        self.count = self.broken = self.without_label = 0

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        self.count = self.broken = self.without_label = 0
        is_first = True
        for place, record in self._records():
            self.count += 1
            if record is None:
                self.broken += 1
                continue
            try:
                if is_first:
                    self.shape = self._shape(record)
                    is_first = False
                row = self._row(record)
            except CourseError as error:
                raise CourseError(f"{place}: {error}") from None
            if row is None:
                self.without_label += 1
            else:
                yield place, row

    def first(self, split: str) -> Row:
        """The first row with a label. In a dataset, only the first PEEK rows are searched."""
        few = self
        if not isinstance(self.opened, folders.Found):  # it may be large
            few = Rows(self.opened.take(PEEK), self.source, self.wanted, self.labelled)
        for _, row in few:
            self.shape = few.shape
            return row
        if few.count == 0:
            raise CourseError(f"{self.source} has no rows in its {split} split.")
        raise CourseError(
            f"{self.source} has no rows with labels in its {split} split; use another, such as"
            " validation."
        )

    def warn(self) -> None:
        """Warn of rows that were left out."""
        left_out = {
            "rows have no label": self.without_label,
            "lines are broken, as published": self.broken,
        }
        for reason, count in left_out.items():
            if count:
                warnings.warn(
                    f"{self.source}: {count:,} of {self.count:,} {reason}, and are left out.",
                    CourseWarning,
                    stacklevel=3,
                )

    def _records(self) -> Iterator[Placed]:
        if isinstance(self.opened, folders.Found):
            return self.opened.records(self.wanted)
        return ((f"{self.source}, {place}", record) for place, record in _records(self.opened))

    def _shape(self, record: Record) -> Mapped:
        """Which column is which: what the user says, or a published format."""
        wanted = self.wanted
        if wanted is not None and wanted.columns:
            has_text = "text" in wanted.columns or "tokens" in wanted.columns
            has_answer = not self.labelled or any(name in wanted.columns for name in ANSWERS)
            if not has_text or not has_answer:
                raise CourseError(
                    f"say where both the text and its label (or target) stand, e.g. {SAY}."
                )
            return wanted
        record = _inside(record)
        known = formats.of_columns(record, self.labelled)
        unlabelled = formats.of_columns(record, labelled=False)
        if known is None and unlabelled is not None:
            raise CourseError(
                f"there are no labels; it has the columns {', '.join(record)} of {unlabelled.name}."
            )
        if known is None:
            raise CourseError(shapes.unknown(list(record), self._first_cells(), True))
        if wanted is None:
            return known
        is_score = known.is_score if wanted.is_score is None else wanted.is_score
        return replace(
            known,
            no_label=wanted.no_label or known.no_label,
            classes=wanted.classes,
            is_score=is_score,
        )

    def _first_cells(self) -> list[list[Any]]:
        """The cells of the first records, for a message."""
        rows: list[list[Any]] = []
        with suppress(CourseError):  # a broken line has a message of its own when it is read
            for _, record in islice(self._records(), PEEK):
                rows.append(list(_inside(record or {}).values()))
        return rows

    def _row(self, record: Record) -> Row | None:
        """The record in the course's columns; None if it has no label."""
        record = _inside(record)
        if isinstance(self.shape, formats.Format):
            record = self.shape.prepare(record)
        shape = self.shape
        if not self.labelled:
            columns = shape.columns.items()
            without_answers = {ours: theirs for ours, theirs in columns if ours not in ANSWERS}
            shape = replace(shape, columns=without_answers)
        names = shape.names(record)
        if not shapes.has_label(record, names, self.shape.no_label):
            return None
        return shapes.row(record, names, self.shape.is_score)


def _inside(record: Record) -> Record:
    """The hub's translations have both languages inside one column."""
    inside = record.get("translation")
    return inside if isinstance(inside, Mapping) else record


def _records(rows: AnyDataset) -> Iterator[tuple[str, Record]]:
    """The rows of a published dataset, with the names of classes in place of their numbers."""
    names: dict[str, list[str | None]] = {}
    for column, kind in (rows.features or {}).items():
        kind = getattr(kind, "feature", kind)  # of a list: the kind of its items
        if hasattr(kind, "names"):
            names[column] = [*kind.names, None]  # -1, the last one, says that it is withheld
    for record in rows:
        words: dict[str, Any] = {}
        for column, classes in names.items():
            value = record[column]
            if isinstance(value, list):
                words[column] = [classes[i] for i in value]
            elif value is not None:
                words[column] = classes[value]
        first = str(next(iter(record.values()), ""))[:40]
        yield f"row {record.get('id') or record.get('idx') or repr(first)}", record | words


def _classes(rows: Rows, first: Row, split: str) -> Sequence[str]:
    """The classes: the dataset's own, or those of the training split.

    Returns:
        Their names; none for scores, and where there are no labels.
    """
    if "choices" in first or not {"label", "labels"} & first.keys():
        return ()
    opened = rows.opened
    if not isinstance(opened, folders.Found):
        rows.first(split)
        column = rows.shape.columns.get("labels", rows.shape.columns.get("label"))
        kind = (opened.features or {}).get(column)
        names = getattr(getattr(kind, "feature", kind), "names", None)
        if names is not None:
            return list(names)
    if split != "train":
        with suppress(CourseError):  # a published test set may come without its training part
            rows = Rows(open_source(rows.source, "train", "task"), rows.source, rows.wanted)
            rows.first("train")
    labels = [row.get("labels", row.get("label")) for _, row in rows]
    flat = list(
        chain.from_iterable(label if isinstance(label, list) else [label] for label in labels)
    )
    if "tokens" not in first:
        _check_lists(labels, rows.source)
    _check_doubtful(flat, rows)
    _check_numbers(flat, rows)
    names = classes(labels, rows.source)
    _warn_of_odd_classes(names, rows.source)
    return names


def _check_lists(labels: Sequence[Any], source: str) -> None:
    """Refuse lists of labels that are 0 and 1 for each class, and lists among single labels."""
    lists = [label for label in labels if isinstance(label, list)]
    if lists and len(lists) < len(labels):
        raise CourseError(
            f"{source}: some labels are lists and some are not; write a list in each row, with one"
            " label or several."
        )
    lengths = set(map(len, lists))
    values = set(map(str, chain.from_iterable(lists)))
    are_flags = len(lengths) == 1 and lengths != {1} and values <= {"0", "1", "0.0", "1.0"}
    if are_flags:
        raise CourseError(
            f"{source}: its labels are lists such as {lists[0]!r}, perhaps 0 or 1 for each class;"
            " write the names of the labels that hold."
        )


def _check_doubtful(labels: Sequence[Any], rows: Rows) -> None:
    """Refuse labels such as "-" until the user says whether they are a class or none."""
    decided = {*rows.shape.no_label, *rows.shape.classes}
    words = {label for label in labels if isinstance(label, str)} - decided
    doubtful = sorted(word for word in words if word.casefold() in DOUBTFUL)
    if "-2" in words and "-1" in words:  # a scale such as -2 to 2
        doubtful.remove("-1")
    if doubtful:
        signs = "|".join(doubtful)
        columns = {**rows.shape.columns, "no_label": signs}
        shown = " and ".join(map(repr, doubtful))
        raise CourseError(
            f"{rows.source}: some labels are {shown}. If this says that there is no label,"
            f" leave these rows out by {shapes.spelled(columns)}; if it is a class, write"
            f" class={signs} in place of no_label={signs}."
        )


def _check_numbers(labels: Sequence[Any], rows: Rows) -> None:
    """Refuse numbers that may be classes as well as scores, until the user says which they are."""
    if rows.shape.is_score is not None:
        return
    words = {str(label) for label in labels}
    odd = sorted(word for word in words if _is_odd_number(word))
    if odd and all(_is_odd_number(word) or shapes.is_number(word) for word in words):
        raise CourseError(
            f"{rows.source}: its labels are written as {odd[0]!r}; write numbers with a point and"
            " without other signs, or add scores=no to the columns if they are classes."
        )
    if not all(map(shapes.is_number, words)) or any(not float(w).is_integer() for w in words):
        return
    with_point = sorted(word for word in words if not shapes.is_whole(word))
    if with_point:
        kind = f"whole numbers that are written as {with_point[0]}"
    elif len(words) > FEW_CLASSES:
        kind = f"{len(words):,} different whole numbers"
    else:
        return  # 0 and 1, or one to five stars
    columns = {**rows.shape.columns, "scores": "no"}
    raise CourseError(
        f"{rows.source}: its labels are {kind}. If they are classes, say {shapes.spelled(columns)};"
        " if they are numbers with a meaning, such as marks, write scores=yes in place of"
        " scores=no."
    )


def _is_odd_number(word: str) -> bool:
    """Whether this is a number as 2,5 or 85% or $5, or one with a typographer's minus."""
    minus = "\N{MINUS SIGN}\N{EN DASH}"
    pattern = rf"[-+{minus}]?[$€£]?\s*[0-9]+([.,][0-9]+)*\s*[%$€£]?"
    return re.fullmatch(pattern, word) is not None and not shapes.is_number(word)


def _warn_of_odd_classes(names: Sequence[str], source: str) -> None:
    """Warn of classes that may be one ("Pos" and "pos"), or two ("pos,neg")."""
    alike = defaultdict(list)
    for name in names:
        # capitals, forms of a letter, and blanks, also those that nobody sees
        plain = unicodedata.normalize("NFKC", name).casefold()
        letters = "".join(c for c in plain if not c.isspace() and unicodedata.category(c) != "Cf")
        alike[str(int(letters)) if shapes.is_whole(letters) else letters].append(name)
    for group in alike.values():
        if len(group) > 1:
            warnings.warn(
                f"{source}: {' and '.join(map(repr, group))} are different classes; if they are"
                " meant to be one, write them alike.",
                CourseWarning,
                stacklevel=2,
            )
    for name in names:
        parts = [part.strip() for part in re.split("[,;|]", name)]
        if len(parts) > 1 and set(parts) <= set(names):
            warnings.warn(
                f"{source}: {name!r} is a class of its own beside {' and '.join(parts)}; rows with"
                " several labels are not read.",
                CourseWarning,
                stacklevel=2,
            )


def _numbered(rows: Rows, names: Sequence[str]) -> Iterator[Row]:
    """The rows with their labels as numbers of `names`; without names, as scores."""
    for place, row in rows:
        column = "labels" if "labels" in row else "label"
        if column not in row or "choices" in row:
            yield row
            continue
        are_many = isinstance(row[column], list)  # tags of words, or all labels of a text
        labels = row[column] if are_many else [row[column]]
        try:
            numbers = [names.index(label) if names else float(label) for label in labels]
        except ValueError:
            text = row.get("text") or " ".join(row["tokens"])
            among = f"among {', '.join(names[:20])}" if names else "a number, as other scores are"
            advice = ""
            if any(str(label).casefold() in DOUBTFUL for label in labels):
                advice = "; if it says that there is no label, add no_label= to the columns"
            raise CourseError(
                f"{place}: the label {row[column]!r} of {text[:40]!r} is not {among}{advice}."
            ) from None
        yield {**row, column: numbers if are_many else numbers[0]}


def classes(labels: Iterable[Any], source: str) -> list[str]:
    """The classes among a training split's labels.

    Args:
        labels: of each row, or lists of them.
        source: its name, for messages.

    Returns:
        "O" first, then numbers in their order, then words; none if the labels are scores.

    Raises:
        CourseError: there are so many that the column is hardly that of labels.
    """
    names: set[str] = set()
    count = 0
    for label in labels:
        if isinstance(label, float):
            return []
        row_labels = label if isinstance(label, list) else [label]
        names.update(row_labels)
        count += len(row_labels)
    whole = {name for name in names if shapes.is_whole(name)}
    if names != whole and all(map(shapes.is_number, names)):
        return []
    mostly_different = len(names) > FEW_CLASSES and len(names) > count / 2
    if len(names) > MAX_CLASSES or mostly_different:
        raise CourseError(
            f"{source}: its labels are {len(names):,} different ones in {count:,} rows; if another"
            f" column is the label's, say it by {SAY}."
        )

    def order(name: str) -> tuple[bool, int, str]:
        return name != "O", int(name) if name in whole else 0, name

    return sorted(names, key=order)


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
    elif isinstance(row.get("label"), list):
        kinds["label"] = List(ClassLabel(names=list(names)))
    elif "label" in kinds:
        kinds["label"] = ClassLabel(names=list(names)) if names else Value("float64")
    return kinds
