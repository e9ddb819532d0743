"""Text by one name, whichever door it comes through: `corpus(source)`, a `datasets.Dataset` with a column `text`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from course_lib import hub
from course_lib.data import folders, hub_sets, readers, shapes
from course_lib.data.build import Rows, dataset, from_files, sample
from course_lib.data.docs import docstrings
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

TOWN = 0  # the seed of the world itself; the shipped checkpoints learned this town's words
WORLD_DOCUMENTS = 2000  # of an endless corpus, if no number is asked for


@overload
def corpus(
    source: str | Path, *, split: str = "train", n: int | None = None, seed: int = 0, column: str | None = None,
    format: str | None = None, streaming: Literal[False] = False,
) -> "Dataset": ...  # fmt: skip


@overload
def corpus(
    source: str | Path, *, split: str = "train", n: int | None = None, seed: int = 0, column: str | None = None,
    format: str | None = None, streaming: Literal[True],
) -> "IterableDataset": ...  # fmt: skip


def corpus(
    source: str | Path,
    *,
    split: str = "train",
    n: int | None = None,
    seed: int = 0,
    column: str | None = None,
    format: str | None = None,
    streaming: bool = False,
) -> Rows:
    """Documents, one a row, in the column `text`.

    Args:
        source: "world", the generated town (its rows have all gold annotations of `World.document`); "docs", the
            docstrings of the installed libraries; the path of a file or folder: text, WikiText, JSON lines, a table
            with a text column, CNN stories (`course_lib.data.readers`); or "hub:NAME:CONFIG@REVISION", the last two
            optional, which may also be a folder in the hub's layout.
        split: "train", "validation" or "test"; of files also a file's own name.
        n: so many documents, drawn by `seed` (fewer if there are not so many); None: all there are, of the endless
            world 2,000.
        seed: which documents of the world, or which n of the others.
        column: where the text stands in a table, JSON lines or a hub's dataset, if not under a usual name.
        format: of the files, if a folder holds several.
        streaming: a `datasets.IterableDataset`, of which no more is read than is asked for.

    Raises:
        CourseError: no such source, file, split or column; an empty corpus; something wrong in a file, and where.
    """
    name = str(source)
    if name == "world":
        from course_lib.data.world import World

        rows: Rows = dataset(World(TOWN).documents(WORLD_DOCUMENTS if n is None else n, split, seed))
        return _streamed(rows, streaming)
    if name == "docs":
        return _streamed(sample(dataset([dict(row) for row in docstrings(split)]), n, seed), streaming)
    if hub.is_name(name):
        return sample(_text(hub_sets.load(name, split, streaming), name, column), n, seed)
    found = folders.find(Path(source), split, "corpus", format)
    if found.format.name == "parquet":
        return sample(_text(hub_sets.load_files(found.files, split, streaming), name, column), n, seed)
    from datasets import Features, Value

    columns = {"text": column} if column else None
    names = ("text", "target") if found.format.name == "stories" else ("text",)
    features = Features({name: Value("string") for name in names})
    rows = from_files(_rows, found.files, features, streaming=streaming, format=found.format.name, columns=columns)
    return sample(rows, n, seed)


def _rows(files: list[str], format: str, columns: readers.Columns | None) -> Iterator[readers.Row]:
    return (row for _, row in readers.rows(format, "corpus", files, columns))


def _text(rows: Rows, name: str, column: str | None) -> Rows:
    """The rows with their text in `text`; other columns stay."""
    there = hub_sets.columns_of(rows)
    found = column or shapes.text_of(there)
    if found is None:
        texts = [name for name, kind in (rows.features or {}).items() if getattr(kind, "dtype", "") == "string"]
        found = texts[0] if len(texts) == 1 else None
    if found not in there:
        asked = f"no column {column!r}" if column else "no text column that is known"
        raise CourseError(f"{name} has {asked}; its columns are {', '.join(there)}; say which by column=.")
    if found == "text":
        return rows
    return (rows.remove_columns("text") if "text" in there else rows).rename_column(found, "text")


def _streamed(rows: Rows, streaming: bool) -> Rows:
    from datasets import Dataset

    return rows.to_iterable_dataset() if streaming and isinstance(rows, Dataset) else rows
