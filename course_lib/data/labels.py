"""Turn labels into numbers: class names into class numbers, or texts such as "3.5" into scores.

The training split decides what the labels are. Its labels "pos", "neg", "pos" make the classes
["neg", "pos"], and "pos" becomes 1. Its labels "3.5" and "2" are scores, 3.5 and 2.0.

Labels that may mean two things are refused, and the message tells the user how to decide: "-" may
be a class or a missing label, and 0 to 100 may be classes or scores.
"""

import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from course_lib.data import folders
from course_lib.data.columns import DOUBTFUL, Row, as_option, is_number, is_whole
from course_lib.data.rows import EXAMPLE, Rows
from course_lib.data.sources import open_source
from course_lib.errors import CourseError, CourseWarning

MAX_CLASSES = 1000  # with more different labels, the column is refused: it is hardly that of labels
FEW_CLASSES = 20  # with more classes than this, a class must have at least two rows on average


def class_names(rows: Rows, first: Row, split: str) -> Sequence[str]:
    """The names of the classes: the dataset's own, or else the labels of the training split.

    Args:
        rows: the rows of a split.
        first: the first of them.
        split: "train", "validation" or "test".

    Returns:
        The names; empty if the labels are scores, or there are none.
    """
    if "choices" in first or not {"label", "labels"} & first.keys():
        return ()
    opened = rows.opened
    if not isinstance(opened, folders.SplitFiles):
        rows.first(split)  # finds out which column is which
        column = rows.column_map.columns.get("labels", rows.column_map.columns.get("label"))
        column_type = (opened.features or {}).get(column)
        class_type = getattr(column_type, "feature", column_type)  # the type of a list's elements
        names = getattr(class_type, "names", None)
        if names is not None:
            return list(names)
    if split != "train":
        with suppress(CourseError):  # the user may have the test set without the training set
            rows = Rows(open_source(rows.source, "train", "task"), rows.source, rows.user_map)
            rows.first("train")  # finds out which column is which
    labels = [row.get("labels", row.get("label")) for _, row in rows]
    flat = list(
        chain.from_iterable(label if isinstance(label, list) else [label] for label in labels)
    )
    if "tokens" not in first:
        _check_lists(labels, rows.source)
    _check_doubtful(flat, rows)
    _check_numbers(flat, rows)
    names = _names_in_order(labels, rows.source)
    _warn_of_odd_classes(names, rows.source)
    return names


def numbered(rows: Rows, names: Sequence[str]) -> Iterator[Row]:
    """Yield the rows with numbers as labels: the index in `names`, or a score if `names` is empty.

    Raises:
        CourseError: a label is not in `names`, or is no number.
    """
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


def features(row: Row, names: Sequence[str]) -> Any:
    """The types of a task's columns, as the library `datasets` needs them.

    Args:
        row: a row of the task.
        names: the names of the classes; empty if the labels are scores.
    """
    from datasets import ClassLabel, Dataset, Features, List, Value

    types = Features(Dataset.from_list([row]).features)
    if "answers" in types:
        types["answers"] = List(Value("string"))  # an empty list would not tell its type
    if "labels" in types and names:
        types["labels"] = List(ClassLabel(names=list(names)))
    elif "choices" in types:
        types["label"] = Value("int64")
    elif isinstance(row.get("label"), list):
        types["label"] = List(ClassLabel(names=list(names)))
    elif "label" in types:
        types["label"] = ClassLabel(names=list(names)) if names else Value("float64")
    return types


def _names_in_order(labels: Iterable[Any], source: str) -> list[str]:
    """The names of the classes, from the labels of the training split.

    >>> _names_in_order(["B-PER", "O", "I-PER", "O"], "a file")
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
        form = f"whole numbers that are written as {with_point[0]}"
    elif len(words) > FEW_CLASSES:
        form = f"{len(words):,} different whole numbers"
    else:
        return  # 0 and 1, or one to five stars
    columns = {**rows.column_map.columns, "scores": "no"}
    raise CourseError(
        f"{rows.source}: its labels are {form}. If they are classes, say {as_option(columns)};"
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
