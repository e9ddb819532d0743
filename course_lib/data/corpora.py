"""Documents by one name: `corpus(source)`."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from course_lib.data import folders, formats
from course_lib.data.columns import Mapped, Placed, Record, Row
from course_lib.data.sources import TEXTS, AnyDataset, as_dataset, generated, open_source, sample
from course_lib.errors import CourseError

# A source of a few books would make a few enormous rows, so its texts are cut into documents.
FEW = 32  # sources of fewer texts are cut,
BOOK = 100_000  # and those with texts of more characters on average,
SMALL = 5000  # if they have so many characters in all
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
    """Documents, one a row, in the column `text`. Blank ones are left out.

    Args:
        source: the name of an installed source, whose rows may have further columns; "docs",
            docstrings of the course's libraries; "manual", 79 pages of Python's; the path of a file
            or folder (`folders` has the kinds); or "hub:NAME:CONFIG@REVISION".
        split: "train", "validation" or "test"; of files also a file's own name.
        n: so many documents at most, drawn by `seed`; None: all there are, of an endless source
            as many as it likes.
        seed: of the draw.
        column: where the text stands, if not in `text` or a published format's column.
        streaming: give a `datasets.IterableDataset`, which reads no more than is asked for.

    Raises:
        CourseError: the source cannot be read, or which column is the text is not known.
    """
    name = str(source)
    installed = generated(name)
    if installed is not None:
        rows = as_dataset(installed.documents(n, split, seed))
        return rows.to_iterable_dataset() if streaming else rows
    owner = name.partition("/")[0]
    if generated(owner) is not None:
        raise CourseError(f"{name} is a task, with labels; the texts are {owner}.")
    opened = open_source(name, split, "corpus", streaming)
    if not isinstance(opened, folders.Found):
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
    """The column with the text.

    Args:
        record: the first one; its names are looked at, and which of its columns are texts.
        column: the one that is asked for.

    Raises:
        CourseError: it is not there, or several may be meant.
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


def _texts(records: Iterable[Placed], column: str | None) -> Iterator[Row]:
    """Records as rows `text`; blank ones are left out."""
    for place, record in records:
        if record is None:
            continue
        try:
            text = record[text_column(record, column)]
            if not isinstance(text, str):
                raise CourseError(f"the text is {str(text)[:40]!r}; choose another column.")
        except CourseError as error:
            raise CourseError(f"{place}: {error}") from None
        if text.strip():
            yield {"text": text}


def _documents(files: folders.Found, column: str | None) -> Iterator[Row]:
    """The texts of files; in pieces where they are few or as long as books."""
    wanted = Mapped(columns={} if column is None else {"text": column}, is_corpus=True)
    rows = _texts(files.records(wanted), column)
    head = []  # the first few texts decide
    size = 0  # their characters
    for row in rows:
        head.append(row)
        size += len(row["text"])
        if len(head) == FEW or size > FEW * BOOK:
            break
    if len(head) == FEW or size < SMALL:
        yield from chain(head, rows)
        return
    # 2,000 characters are more than a row of any model here. Shorter texts give shorter pieces, so
    # that there are still some dozens of them.
    least = min(max(size // 80, 250), 2000)
    for row in chain(head, rows):
        yield from _pieces(row["text"].rstrip(), least)


def _pieces(text: str, least: int) -> Iterator[Row]:
    """A text in pieces of `least` to twice as many characters.

    It is cut at a paragraph's end, if there is one; else at a line's, a sentence's or a word's.
    """
    start = 0
    while len(text) - start > 2 * least:
        stop = start + 2 * least
        for end in ENDS:
            match = end.search(text, start + least, start + 2 * least)
            if match:
                stop = match.end()
                break
        piece = text[start:stop].strip()
        if piece:
            yield {"text": piece}
        start = stop
    yield {"text": text[start:].strip()}


def _renamed(rows: AnyDataset, name: str, column: str | None) -> AnyDataset:
    """A dataset of the hub with its text in `text`."""
    features: dict[str, Any] = dict(rows.features or {})
    if features:
        is_text = {name: getattr(kind, "dtype", "") == "string" for name, kind in features.items()}
        first: Record = {name: "" if is_text[name] else None for name in features}
    else:  # a stream may not know its columns
        first = next(iter(rows.take(1)), {})
    try:
        source_column = text_column(first, column)
    except CourseError as error:
        raise CourseError(f"{name}: {error}") from None
    kind = getattr(features.get(source_column), "dtype", "string")
    if kind not in ("string", "large_string"):
        raise CourseError(f"{name}: the column {source_column!r} holds {kind}; choose another.")
    if source_column != "text":
        rows = rows.select_columns(source_column).rename_column(source_column, "text")
    return _without_missing(rows)


def _without_missing(rows: AnyDataset) -> AnyDataset:
    """The rows that have a text at all; blank ones stay, as they were published."""
    from datasets import Dataset

    if not isinstance(rows, Dataset):
        return rows.filter(lambda row: row["text"] is not None)
    if rows.data["text"].null_count == 0:
        return rows
    return rows.select([i for i, text in enumerate(rows["text"]) if text is not None])
