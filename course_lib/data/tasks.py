"""Read labelled examples: the rows of a file, a folder or a dataset of the hub, for a task.

    reviews.csv     review,stars          rows = task("reviews.csv",
                    a fine film,5                     columns={"text": "review", "label": "stars"})
                    two lost hours,1      rows[0]     {"text": "a fine film", "label": 1}

Here "1" and "5" are the names of the classes, and the label is the class's number in this list.
Published datasets such as GLUE's need no `columns`: formats.py knows them. Most of this file finds
out what the labels are (classes, scores, several classes for a text), and refuses labels that may
mean two things, such as "-".
"""

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
from course_lib.data import folders, formats, lines, table_files, tagged_files
from course_lib.data.columns import (
    ANSWERS,
    DOUBTFUL,
    ColumnMap,
    Columns,
    Located,
    Record,
    Row,
    as_option,
    column_map,
    has_label,
    is_number,
    is_whole,
    map_row,
    unknown_columns,
)
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

MAX_CLASSES = 1000  # with more different labels, the column is refused: it is hardly that of labels
FEW_CLASSES = 20  # with more classes than this, a class must have at least two rows on average
SEARCHED = 100  # number of rows of a large dataset in which we look for the first label
# How a user names the columns, for messages.
EXAMPLE = (
    '--columns text=review,label=stars (in Python: columns={"text": "review", "label": "stars"})'
)


def task(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    columns: Columns | None = None,
) -> "Dataset":
    """Read the labelled examples of a source, one in each row.

        columns                               each row is
        text, label                           a text; if it has several labels, they are a list
        text, pair, label                     two texts
        tokens, labels                        words, and a label for each word (tagging)
        text, choices, label                  a text and its possible continuations
        text, pair, answer, start, answers    a question, a passage, the answer, the position of
                                              its first character in the passage (-1: there is no
                                              answer), and all right answers
        text, target                          a text and its summary or translation

    Sentences of a treebank also have `upos`, `heads` and `deprels` (`tagged_files.read_conllu`).

    A label is the number of its class. The classes are those of the training split; their names are
    in `dataset.features["label"].names` or, for tagging,
    `dataset.features["labels"].feature.names`. Numbers such as 3.5 are scores: then `label` is a
    float.

    Args:
        source: a task that comes with the course, such as "tasks/sentiment"; a file, a folder or
            "hub:NAME", as for `corpus`; or NAME/TASK of a package that registers its texts as NAME.
        split: "train", "validation" or "test"; for files also a file's own name ("dev_matched").
        n: maximum number of rows, drawn at random; None returns all.
        seed: seed of the random choice of rows.
        columns: our column names -> the source's, such as {"text": "review", "label": "stars"}. It
            is needed if formats.py does not know the source's columns. columns.py lists further
            entries.

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
    user_map = None if columns is None else column_map(columns)
    rows = Rows(opened, name, user_map)
    first = rows.first(split)
    names = _classes(rows, first, split)
    kinds = features(first, names)
    if n is not None and not isinstance(opened, folders.SplitFiles):
        # A dataset of the hub may be large: shuffle it first, then read only the first n rows.
        check_draw(n, seed)
        rows = Rows(opened.shuffle(seed), name, user_map)
        return as_dataset(islice(_numbered(rows, names), n), kinds)
    dataset = as_dataset(_numbered(rows, names), kinds)
    rows.warn()
    return sample(dataset, n, seed)


def _installed(
    source: InstalledSource, name: str, split: str, n: int | None, seed: int
) -> "Dataset":
    """Examples of the task NAME/TASK of an installed package that registers its texts as NAME."""
    owner, _, task_name = name.partition("/")
    if not task_name:
        raise CourseError(f"{name} has texts; a task of it is called {name}/NAME.")
    if not hasattr(source, "examples"):
        raise CourseError(f"{owner} has texts and no tasks; read them by data.corpus.")
    check_draw(n, seed)
    examples = source.examples(task_name, n, split, seed)
    return as_dataset(examples, features(examples[0], source.label_names(task_name)))


def unlabelled(source: str | Path, *, columns: Columns | None = None) -> list[Row]:
    """Read rows to predict, as `task` does, but without labels.

    Args:
        source: a file. In a .txt file without tabs each line is a text, unless `columns` are given.
        columns: as for `task`; the columns with labels may be left out.
    """
    path = Path(source)
    user_map = None if columns is None else column_map(columns)
    is_text = lines.unpacked(path).suffix.lower() == ".txt"
    if is_text and user_map is None and not _is_table_or_tagged(path):
        stripped = [line.strip() for _, line in lines.read_lines(path)]
        texts: list[Row] = [{"text": line} for line in stripped if line]
        if len(texts) < len(stripped):
            blank = len(stripped) - len(texts)
            warnings.warn(
                f"{source}: {blank:,} of {len(stripped):,} lines are blank, and are left out.",
                CourseWarning,
                stacklevel=2,
            )
        return texts
    opened = open_source(str(source), "train", "task")
    rows = Rows(opened, str(source), user_map, labelled=False)
    records = [row for _, row in rows]
    rows.warn()
    return records


def has_labels(source: str | Path) -> bool:
    """Whether a source may have labels. A book, for example, has none."""
    owner, _, task_name = str(source).partition("/")
    if owner.startswith(hub.PREFIX):
        return True
    if installed_source(owner) is not None or str(source) in SHIPPED:
        return bool(task_name)
    files = folders.find(Path(source), "train", "corpus")
    return files.kind != folders.TEXT or all(map(table_files.is_table, files.files))


def _is_table_or_tagged(path: Path) -> bool:
    return table_files.is_table(path) or tagged_files.is_conll(path)


def held_out(source: str | Path, *, columns: Columns | None = None) -> str:
    """The split to evaluate a model on: "test" if it has labels, else "validation".

    GLUE withholds the labels of its test sets and writes -1. So a first label such as -1 counts as
    missing, if there is a validation split.
    """
    name = str(source)
    if installed_source(name.partition("/")[0]) is not None:
        return "test"
    user_map = None if columns is None else column_map(columns)
    first: Row | None = None
    with suppress(CourseError):
        opened = open_source(name, "test", "task", streaming=True)
        first = Rows(opened, name, user_map).first("test")
    label = None if first is None else str(first.get("label")).casefold()
    if first is not None and (label not in DOUBTFUL or (user_map and user_map.classes)):
        return "test"
    try:
        opened = open_source(name, "validation", "task", streaming=True)
        Rows(opened, name, user_map).first("validation")
    except CourseError:
        if first is None:
            raise
        return "test"
    return "validation"


class Rows:
    """Iterates over a source: yields (location, row) with the course's column names.

    Rows without a label and broken lines are skipped; `warn` tells the user how many.

    Args:
        opened: files, or a dataset of the hub.
        source: the source's name, for messages.
        user_map: what the user says about the columns; None if nothing.
        labelled: whether rows need a label. Rows to predict have none.
    """

    def __init__(
        self, opened: Opened, source: str, user_map: ColumnMap | None, labelled: bool = True
    ) -> None:
        self.opened = opened
        self.source = source
        self.user_map = user_map
        self.labelled = labelled
        self.column_map = ColumnMap()  # which column is which; the first record will tell
        self.count = self.broken = self.without_label = 0

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        self.count = self.broken = self.without_label = 0
        is_first = True
        for location, record in self._records():
            self.count += 1
            if record is None:
                self.broken += 1
                continue
            try:
                if is_first:
                    self.column_map = self._find_column_map(record)
                    is_first = False
                row = self._row(record)
            except CourseError as error:
                raise CourseError(f"{location}: {error}") from None
            if row is None:
                self.without_label += 1
            else:
                yield location, row

    def first(self, split: str) -> Row:
        """The first row with a label. In a dataset we look only at the first `SEARCHED` rows."""
        few = self
        if not isinstance(self.opened, folders.SplitFiles):  # it may be large
            few = Rows(self.opened.take(SEARCHED), self.source, self.user_map, self.labelled)
        for _, row in few:
            self.column_map = few.column_map
            return row
        if few.count == 0:
            raise CourseError(f"{self.source} has no rows in its {split} split.")
        raise CourseError(
            f"{self.source} has no rows with labels in its {split} split; use another, such as"
            " validation."
        )

    def warn(self) -> None:
        """Warn of rows that were skipped."""
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

    def _records(self) -> Iterator[Located]:
        if isinstance(self.opened, folders.SplitFiles):
            return self.opened.records(self.user_map)
        return (
            (f"{self.source}, {location}", record) for location, record in _records(self.opened)
        )

    def _find_column_map(self, record: Record) -> ColumnMap:
        """Find out which column is which: the user says it, or a known format has these columns."""
        user_map = self.user_map
        if user_map is not None and user_map.columns:
            has_text = "text" in user_map.columns or "tokens" in user_map.columns
            has_answer = not self.labelled or any(name in user_map.columns for name in ANSWERS)
            if not has_text or not has_answer:
                raise CourseError(
                    f"say where both the text and its label (or target) stand, e.g. {EXAMPLE}."
                )
            return user_map
        record = _inside(record)
        known = formats.of_columns(record, self.labelled)
        unlabelled = formats.of_columns(record, labelled=False)
        if known is None and unlabelled is not None:
            raise CourseError(
                f"there are no labels; it has the columns {', '.join(record)} of {unlabelled.name}."
            )
        if known is None:
            raise CourseError(unknown_columns(list(record), self._first_cells(), True))
        if user_map is None:
            return known
        is_score = known.is_score if user_map.is_score is None else user_map.is_score
        return replace(
            known,
            no_label=user_map.no_label or known.no_label,
            classes=user_map.classes,
            is_score=is_score,
        )

    def _first_cells(self) -> list[list[Any]]:

        rows: list[list[Any]] = []
        with suppress(CourseError):  # a broken line has a message of its own when it is read
            for _, record in islice(self._records(), SEARCHED):
                rows.append(list(_inside(record or {}).values()))
        return rows

    def _row(self, record: Record) -> Row | None:
        """The record with the course's column names; None if it has no label."""
        record = _inside(record)
        if isinstance(self.column_map, formats.Format):
            record = self.column_map.prepare(record)
        column_map = self.column_map
        if not self.labelled:
            columns = column_map.columns.items()
            without_answers = {ours: theirs for ours, theirs in columns if ours not in ANSWERS}
            column_map = replace(column_map, columns=without_answers)
        names = column_map.names(record)
        if not has_label(record, names, self.column_map.no_label):
            return None
        return map_row(record, names, self.column_map.is_score)


def _inside(record: Record) -> Record:
    """The record itself; for translations of the hub, the record inside its only column."""
    inside = record.get("translation")
    return inside if isinstance(inside, Mapping) else record


def _records(rows: AnyDataset) -> Iterator[tuple[str, Record]]:
    """The rows of a dataset, with the names of classes in place of their numbers."""
    names: dict[str, list[str | None]] = {}
    for column, kind in (rows.features or {}).items():
        kind = getattr(kind, "feature", kind)  # the type of a list's items
        if hasattr(kind, "names"):
            # The class -1 means that the label is withheld. As an index it is the last entry: None.
            names[column] = [*kind.names, None]
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
    """The names of the classes: the dataset's own, or else the labels of the training split.

    Returns:
        The names; empty if the labels are scores, or there are none.
    """
    if "choices" in first or not {"label", "labels"} & first.keys():
        return ()
    opened = rows.opened
    if not isinstance(opened, folders.SplitFiles):
        rows.first(split)
        column = rows.column_map.columns.get("labels", rows.column_map.columns.get("label"))
        kind = (opened.features or {}).get(column)
        names = getattr(getattr(kind, "feature", kind), "names", None)
        if names is not None:
            return list(names)
    if split != "train":
        with suppress(CourseError):  # the user may have the test set without the training set
            rows = Rows(open_source(rows.source, "train", "task"), rows.source, rows.user_map)
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
    """Refuse [0, 1, 0] (yes or no for each class), and a column with lists and single labels."""
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
    """Refuse labels such as "-" until the user says whether they are a class or mean no label."""
    decided = {*rows.column_map.no_label, *rows.column_map.classes}
    words = {label for label in labels if isinstance(label, str)} - decided
    doubtful = sorted(word for word in words if word.casefold() in DOUBTFUL)
    if "-2" in words and "-1" in words:  # a scale such as -2 to 2
        doubtful.remove("-1")
    if doubtful:
        signs = "|".join(doubtful)
        columns = {**rows.column_map.columns, "no_label": signs}
        shown = " and ".join(map(repr, doubtful))
        raise CourseError(
            f"{rows.source}: some labels are {shown}. If this says that there is no label,"
            f" leave these rows out by {as_option(columns)}; if it is a class, write"
            f" class={signs} in place of no_label={signs}."
        )


def _check_numbers(labels: Sequence[Any], rows: Rows) -> None:
    """Refuse numbers that may be classes or scores until the user says which they are."""
    if rows.column_map.is_score is not None:
        return
    words = {str(label) for label in labels}
    odd = sorted(word for word in words if _is_odd_number(word))
    if odd and all(_is_odd_number(word) or is_number(word) for word in words):
        raise CourseError(
            f"{rows.source}: its labels are written as {odd[0]!r}; write numbers with a point and"
            " without other signs, or add scores=no to the columns if they are classes."
        )
    if not all(map(is_number, words)) or any(not float(w).is_integer() for w in words):
        return
    with_point = sorted(word for word in words if not is_whole(word))
    if with_point:
        kind = f"whole numbers that are written as {with_point[0]}"
    elif len(words) > FEW_CLASSES:
        kind = f"{len(words):,} different whole numbers"
    else:
        return  # 0 and 1, or one to five stars
    columns = {**rows.column_map.columns, "scores": "no"}
    raise CourseError(
        f"{rows.source}: its labels are {kind}. If they are classes, say {as_option(columns)};"
        " if they are numbers with a meaning, such as marks, write scores=yes in place of"
        " scores=no."
    )


def _is_odd_number(word: str) -> bool:
    """Whether this is a number that Python cannot read: 2,5 or 85% or $5, or with a long minus."""
    minus = "\N{MINUS SIGN}\N{EN DASH}"
    pattern = rf"[-+{minus}]?[$€£]?\s*[0-9]+([.,][0-9]+)*\s*[%$€£]?"
    return re.fullmatch(pattern, word) is not None and not is_number(word)


def _warn_of_odd_classes(names: Sequence[str], source: str) -> None:
    """Warn of classes that may be one ("Pos" and "pos"), or two ("pos,neg")."""
    alike = defaultdict(list)
    for name in names:
        # Ignore capitals, variants of a letter, blanks, and characters that cannot be seen ("Cf").
        plain = unicodedata.normalize("NFKC", name).casefold()
        letters = "".join(c for c in plain if not c.isspace() and unicodedata.category(c) != "Cf")
        alike[str(int(letters)) if is_whole(letters) else letters].append(name)
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
    """Replace each row's label by its index in `names`; if there are none, by a score."""
    for location, row in rows:
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
                f"{location}: the label {row[column]!r} of {text[:40]!r} is not {among}{advice}."
            ) from None
        yield {**row, column: numbers if are_many else numbers[0]}


def classes(labels: Iterable[Any], source: str) -> list[str]:
    """The names of the classes, from the labels of the training split.

    >>> classes(["B-PER", "O", "I-PER", "O"], "a file")
    ['O', 'B-PER', 'I-PER']

    Args:
        labels: for each row its label, or a list of labels.
        source: the source's name, for messages.

    Returns:
        The names: "O" first, then numbers in order, then words. Empty if the labels are scores.

    Raises:
        CourseError: there are too many, so this is probably not the column of labels.
    """
    names: set[str] = set()
    count = 0
    for label in labels:
        if isinstance(label, float):
            return []
        row_labels = label if isinstance(label, list) else [label]
        names.update(row_labels)
        count += len(row_labels)
    whole = {name for name in names if is_whole(name)}
    if names != whole and all(map(is_number, names)):
        return []
    mostly_different = len(names) > FEW_CLASSES and len(names) > count / 2
    if len(names) > MAX_CLASSES or mostly_different:
        raise CourseError(
            f"{source}: its labels are {len(names):,} different ones in {count:,} rows; if another"
            f" column is the label's, say it by {EXAMPLE}."
        )

    def order(name: str) -> tuple[bool, int, str]:
        return name != "O", int(name) if name in whole else 0, name

    return sorted(names, key=order)


def features(row: Row, names: Sequence[str]) -> Any:
    """The types of a task's columns, as the library `datasets` needs them.

    Args:
        row: a row of the task.
        names: the names of the classes; empty if the labels are scores.
    """
    from datasets import ClassLabel, Dataset, Features, List, Value

    kinds = Features(Dataset.from_list([row]).features)
    if "answers" in kinds:
        kinds["answers"] = List(Value("string"))  # an empty list would not tell its type
    if "labels" in kinds and names:
        kinds["labels"] = List(ClassLabel(names=list(names)))
    elif "choices" in kinds:
        kinds["label"] = Value("int64")
    elif isinstance(row.get("label"), list):
        kinds["label"] = List(ClassLabel(names=list(names)))
    elif "label" in kinds:
        kinds["label"] = ClassLabel(names=list(names)) if names else Value("float64")
    return kinds
