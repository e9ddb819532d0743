"""Documents by one name: `corpus(source)`."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from course_lib.data import folders, formats
from course_lib.data.columns import Mapped, Placed, Record, Row
from course_lib.data.sources import SHIPPED, AnyDataset, as_dataset, generated, open_source, sample
from course_lib.errors import CourseError

# Fewer texts, or texts of more characters on average, are cut into documents, if they have so many
# characters in all.
FEW, BOOK, SMALL = 32, 100_000, 5000
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
        streaming: a `datasets.IterableDataset`, of which no more is read than is asked for.

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
    opened = open_source(str(SHIPPED.get(name, name)), split, "corpus", streaming)
    if not isinstance(opened, folders.Found):
        return sample(_renamed(opened, name, column), n, seed)
    from datasets import Features, IterableDataset, Value

    features = Features({"text": Value("string")})
    how: dict[str, Any] = {"found": opened, "column": column}
    if streaming:
        rows = IterableDataset.from_generator(_documents, features=features, gen_kwargs=how)
    else:
        rows = as_dataset(_documents(**how), features)
    # these stand in the order that 0 draws
    return sample(rows, n, None if name in SHIPPED and seed == 0 else seed)


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


def _documents(found: folders.Found, column: str | None) -> Iterator[Row]:
    """The texts, in pieces where they are few or as long as books: cut at paragraphs, lines,
    sentences or words.
    """
    wanted = None if column is None else Mapped(columns={"text": column})
    rows = _texts(found.records(wanted), column)
    head = []
    size = 0
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
        yield from _pieces(row["text"].rstrip(), least)


def _pieces(text: str, least: int) -> Iterator[Row]:
    """A text in pieces of `least` to twice as many characters."""
    start = 0
    while len(text) - start > 2 * least:
        ends = (end.search(text, start + least, start + 2 * least) for end in ENDS)
        stop = next((end.end() for end in ends if end), start + 2 * least)
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
        found = text_column(first, column)
    except CourseError as error:
        raise CourseError(f"{name}: {error}") from None
    if found == "text":
        return rows
    return rows.select_columns(found).rename_column(found, "text")
