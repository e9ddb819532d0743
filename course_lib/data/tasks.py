"""Read labelled examples: the rows of a file, a folder or a dataset of the hub, for a task.

    reviews.csv     review,stars          rows = task("reviews.csv",
                    a fine film,5                     columns={"text": "review", "label": "stars"})
                    two lost hours,1      rows[0]     {"text": "a fine film", "label": 1}

Here "1" and "5" are the names of the classes, and the label is the class's number in this list.
Published datasets such as GLUE's need no `columns`: formats.py knows them.
"""

import warnings
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib import hub
from course_lib.data import folders, lines, table_files, tagged_files
from course_lib.data.columns import DOUBTFUL, Columns, Row, column_map
from course_lib.data.labels import class_names, features, numbered
from course_lib.data.rows import Rows
from course_lib.data.sources import (
    SHIPPED,
    InstalledSource,
    as_dataset,
    check_draw,
    installed_source,
    open_source,
    sample,
)
from course_lib.errors import CourseError, CourseWarning

if TYPE_CHECKING:
    from datasets import Dataset


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
            is needed if they are not those of a published format (`formats.FORMATS`). Further
            entries say how to read the file: header, separator, quotes, no_label, class, scores.

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
    names = class_names(rows, first, split)
    types = features(first, names)
    if n is not None and not isinstance(opened, folders.SplitFiles):
        # A dataset of the hub may be large: shuffle it first, then read only the first n rows.
        check_draw(n, seed)
        rows = Rows(opened.shuffle(seed), name, user_map)
        return as_dataset(islice(numbered(rows, names), n), types)
    dataset = as_dataset(numbered(rows, names), types)
    rows.warn()
    return sample(dataset, n, seed)


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
    label = None
    if first is not None:
        label = str(first.get("label", first.get("labels"))).casefold()  # "labels": tags of words
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


def _is_table_or_tagged(path: Path) -> bool:
    return table_files.is_table(path) or tagged_files.is_conll(path)
