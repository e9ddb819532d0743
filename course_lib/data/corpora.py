"""Read the documents of a source: of a file, a folder, or a dataset of the hub.

    corpus("moby-dick.txt")[0]      {"text": "Call me Ishmael. ..."}, 2,000 to 4,000 characters

A source of few long texts, such as books, is cut into documents of that size.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from course_lib.data import folders, formats
from course_lib.data.columns import ColumnMap, Located, Record, Row
from course_lib.data.sources import (
    TEXTS,
    AnyDataset,
    as_dataset,
    installed_source,
    open_source,
    sample,
)
from course_lib.errors import CourseError

# A source of a few books would give a few enormous rows, so we cut its texts into documents. We cut
# the texts of a source that has fewer than FEW texts, or texts of more than BOOK characters on
# average. A source of fewer than SMALL characters in all stays as it is.
FEW = 32
BOOK = 100_000
SMALL = 5000
# A text is cut at the first of these that it has: a paragraph's, line's, sentence's or word's end.
ENDS = [re.compile(end) for end in (r"\n\s*\n", r"\n", r"[.!?。！？]+['\")\]’”]*\s*", r"\s")]
SAY = 'column="NAME", in a command --column NAME'


def corpus(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    column: str | None = None,
    streaming: bool = False,
) -> AnyDataset:
    """The documents of a source, one in a row, in the column `text`. Blank documents are left out.

    Args:
        source: the name of an installed source, whose rows may have further columns; "docs",
            docstrings of the course's libraries; "manual", pages of Python's manual; the path of a
            file or folder (`folders` lists the kinds); or "hub:NAME:CONFIG@REVISION".
        split: "train", "validation" or "test"; for files also a file's own name.
        n: maximum number of documents, drawn at random; None returns all. An installed source
            without an end then decides itself how many it returns.
        seed: seed of the draw.
        column: the column with the text. By default it is `text`, or a published format's column.
        streaming: whether to return a `datasets.IterableDataset`, which reads documents only when
            they are used.

    Raises:
        CourseError: the source cannot be read, or which column is the text is not known.
    """
    name = str(source)
    installed = installed_source(name)
    if installed is not None:
        rows = as_dataset(installed.documents(n, split, seed))
        return rows.to_iterable_dataset() if streaming else rows
    owner = name.partition("/")[0]
    if installed_source(owner) is not None:
        raise CourseError(f"{name} is a task, with labels; the texts are {owner}.")
    opened = open_source(name, split, "corpus", streaming)
    if not isinstance(opened, folders.SplitFiles):
        return sample(_renamed(opened, name, column), n, seed)
    from datasets import Features, IterableDataset, Value

    features = Features({"text": Value("string")})
    if streaming:
        arguments = {"files": opened, "column": column}
        rows = IterableDataset.from_generator(_documents, features=features, gen_kwargs=arguments)
    else:
        rows = as_dataset(_documents(opened, column), features)
    # The shipped texts are stored in the order that seed 0 draws.
    is_drawn = name in TEXTS and seed == 0
    return sample(rows, n, None if is_drawn else seed)


def text_column(record: Record, column: str | None) -> str:
    """The name of the column with the text.

    Args:
        record: the first record of a source. Its names and types decide.
        column: the column that the user names, or None.

    Raises:
        CourseError: the record has no such column, or several columns could be the text.
    """
    if column is not None:
        if column not in record:
            raise CourseError(
                f"there is no column {column!r}; the columns are {', '.join(record)}; say which it"
                f" is by {SAY}."
            )
        return column
    if "text" in record:
        return "text"
    known = formats.of_columns(record, labelled=False)
    if known is not None and known.columns.get("text") in record:
        return str(known.columns["text"])
    texts = [name for name, value in record.items() if isinstance(value, str)]
    if len(texts) == 1:
        return texts[0]
    raise CourseError(
        f"which column is the text is not known; the columns are {', '.join(record)}; say which it"
        f" is by {SAY}."
    )


def _texts(records: Iterable[Located], column: str | None) -> Iterator[Row]:
    """The text of each record as a row with the column `text`. Blank texts are left out."""
    for location, record in records:
        if record is None:
            continue
        try:
            text = record[text_column(record, column)]
            if not isinstance(text, str):
                raise CourseError(f"the text is {str(text)[:40]!r}; choose another column.")
        except CourseError as error:
            raise CourseError(f"{location}: {error}") from None
        if text.strip():
            yield {"text": text}


def _documents(files: folders.SplitFiles, column: str | None) -> Iterator[Row]:
    """The texts of files, cut into documents if they are few or as long as books."""
    user_map = ColumnMap(columns={} if column is None else {"text": column}, is_corpus=True)
    rows = _texts(files.records(user_map), column)
    head = []  # the first few texts, which decide whether all are cut
    size = 0  # number of characters in `head`
    for row in rows:
        head.append(row)
        size += len(row["text"])
        if len(head) == FEW or size > FEW * BOOK:
            break
    if len(head) == FEW or size < SMALL:
        yield from chain(head, rows)
        return
    # 2,000 characters fill a row of every model of the course. A small source is cut into shorter
    # documents, so that there are still some dozens of them.
    min_length = min(max(size // 80, 250), 2000)
    for row in chain(head, rows):
        yield from _cut(row["text"].rstrip(), min_length)


def _cut(text: str, min_length: int) -> Iterator[Row]:
    """Cut a text into documents of `min_length` to 2 * `min_length` characters.

    A cut is at the end of a paragraph if there is one; else of a line, a sentence or a word. The
    last document may be shorter.
    """
    start = 0
    while len(text) - start > 2 * min_length:
        stop = start + 2 * min_length
        for end in ENDS:
            match = end.search(text, start + min_length, start + 2 * min_length)
            if match:
                stop = match.end()
                break
        document = text[start:stop].strip()
        if document:
            yield {"text": document}
        start = stop
    yield {"text": text[start:].strip()}


def _renamed(rows: AnyDataset, name: str, column: str | None) -> AnyDataset:
    """A dataset of the hub with its text in the column `text`."""
    features: dict[str, Any] = dict(rows.features or {})
    if features:
        # There is no need to read a row: a text stands for each column that holds texts.
        first: Record = {
            column_name: "" if getattr(column_type, "dtype", "") == "string" else None
            for column_name, column_type in features.items()
        }
    else:  # a stream may not know its columns
        first = next(iter(rows.take(1)), {})
    try:
        source_column = text_column(first, column)
    except CourseError as error:
        raise CourseError(f"{name}: {error}") from None
    dtype = getattr(features.get(source_column), "dtype", "string")
    if dtype not in ("string", "large_string"):
        raise CourseError(f"{name}: the column {source_column!r} holds {dtype}; choose another.")
    if source_column != "text":
        rows = rows.select_columns(source_column).rename_column(source_column, "text")
    return _without_missing(rows)


def _without_missing(rows: AnyDataset) -> AnyDataset:
    """The rows whose text is not missing. Blank texts stay, as they were published."""
    from datasets import Dataset

    if not isinstance(rows, Dataset):
        return rows.filter(lambda row: row["text"] is not None)
    if rows.data["text"].null_count == 0:
        return rows
    return rows.select([i for i, text in enumerate(rows["text"]) if text is not None])
