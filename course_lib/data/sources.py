"""Finds a source by its name: an installed package, a file or folder, or the Hugging Face hub.

An installed package registers a module under the entry point `course_lib.sources`. The module has
`documents(n, split, seed)`, which gives rows with a column `text`. A module with tasks also has
`examples(task, n, split, seed)`, labelled rows, and `label_names(task)`, their classes.
"""

import hashlib
import pkgutil
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from course_lib import hub
from course_lib.data import folders, readers
from course_lib.data.columns import Row
from course_lib.errors import CourseError
from course_lib.files import DATA

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

AnyDataset: TypeAlias = "Dataset | IterableDataset"
# Files that the course reads itself, or a dataset that the library `datasets` reads.
Opened: TypeAlias = "folders.Found | AnyDataset"

TEXTS = ("docs", "manual", "text")  # texts that come with the course
TASKS = ("inference", "names", "questions", "sentiment", "similarity", "summaries")
SHIPPED = {name: DATA / name for name in TEXTS}
SHIPPED |= {f"tasks/{name}": DATA / "tasks" / name for name in TASKS}
BUFFER = 1000  # size of the shuffle buffer for streams
# The builders of `datasets` that read tables. Others decode images or archives, which the course
# does not need.
PLAIN = ("arrow", "cache", "conll", "csv", "json", "parquet", "text")
ALIASES: dict[str, tuple[str, ...]] = {"validation": ("valid", "val", "dev")}


@cache
def generated(name: str) -> Any:
    """The source registered under `name`; None where no installed package registers one."""
    points = list(entry_points(group="course_lib.sources", name=name))
    return points[0].load() if points else None


def open_source(source: str, split: str, door: folders.Door, streaming: bool = False) -> Opened:
    """The files of a split, or a dataset if the library `datasets` reads them.

    Raises:
        CourseError: there is no such source or split.
    """
    if source.startswith(hub.PREFIX):
        return _load(source, split, streaming)
    try:
        found = folders.find(SHIPPED.get(source, Path(source)), split, door)
    except OSError as error:
        raise CourseError(f"{source[:80]} cannot be read ({error.strerror}).") from None
    if found.kind != folders.PARQUET:
        return found
    (place,) = found.files
    return _load(str(place), split, streaming)


def digest(source: str) -> str | None:
    """A hash of the training and validation files that `corpus` would read.

    It is None for the hub, where a revision identifies the files, and for an installed source,
    which has no files.
    """
    if generated(source) is not None or (
        source.startswith(hub.PREFIX) and hub.parse(source).folder is None
    ):
        return None
    path = SHIPPED.get(source, Path(source.removeprefix(hub.PREFIX)))
    files: list[Path] = []
    for split in ("train", "validation"):
        with suppress(CourseError):  # there is no such split
            found = folders.find(path, split, "corpus")
            files += chain.from_iterable(map(_members, found.files))
    return _hash_of(files)


def _hash_of(files: Iterable[Path]) -> str:
    """A hash of the files' names and contents."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        total.update(f"{file.name} {content}\n".encode())
    return total.hexdigest()[:16]


def _members(path: Path) -> list[Path]:
    """The files behind a path of `Found`: itself, a folder of tables, or a text in languages."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in (".parquet", ".arrow"))
    return [path] if path.is_file() else list(readers.languages(path).values())


def as_dataset(rows: Iterable[Row], features: Any = None) -> "Dataset":
    """Put rows into a `datasets.Dataset` in memory."""
    from datasets import Dataset

    rows = list(rows)
    if not rows:
        raise CourseError("There are no rows: the source is empty, or n is 0.")
    return Dataset.from_list(rows, features=features)


def check_draw(n: int | None, seed: int | None) -> None:
    """Refuse an `n` below 1 and a negative seed."""
    if n is not None and n < 1:
        raise CourseError(f"n is {n}; ask for at least one row, or leave it out for all.")
    if seed is not None and seed < 0:
        raise CourseError(f"seed is {seed}; a seed is 0 or more.")


def sample(rows: AnyDataset, n: int | None, seed: int | None) -> AnyDataset:
    """Draw `n` rows at random.

    Args:
        rows: a dataset or a stream.
        n: number of rows; None returns all, in order.
        seed: of the draw; None takes the first `n`.

    Raises:
        CourseError: `n` is below 1, or the seed below 0.
    """
    from datasets import Dataset

    check_draw(n, seed)
    if n is None:
        return rows
    if seed is None:
        return rows.take(n)
    if isinstance(rows, Dataset):
        return rows.shuffle(seed).take(n)
    return rows.shuffle(seed, buffer_size=BUFFER).take(n)


def _load(source: str, split: str, streaming: bool) -> AnyDataset:
    """A split of a dataset that the library `datasets` reads.

    Args:
        source: "hub:NAME:CONFIG@REVISION", the last two optional; a Parquet or Arrow file; or a
            folder of them.
        split: "train", "validation", "test" or the dataset's own name.
        streaming: read the rows when they are asked for.
    """
    from datasets import packaged_modules

    file = Path(source)
    if file.is_file():
        kind = "arrow" if file.suffix == ".arrow" else "parquet"
        name = hub.Name(source)
        cache = None if streaming else _cache([file])
        builder = _builder(name, kind, data_files={split: source}, cache_dir=cache)
        return _read(builder, name, split, streaming)
    name = hub.parse(source)
    if name.folder is not None:
        if any((name.folder / file).is_file() for file in folders.SAVED):
            return _saved(name.folder, split, streaming)
        cache = None if streaming else _cache(_visible_files(name.folder))
        return _read(_builder(name, str(name.folder), cache_dir=cache), name, split, streaming)
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
            # Without the hub the library takes the tables it made last, even of another revision.
            raise hub.explain(ConnectionError(), name, "dataset")
        return _read(builder, name, split, streaming)


def _saved(folder: Path, split: str, streaming: bool) -> AnyDataset:
    """What `save_to_disk` of the datasets library wrote: one split, or several."""
    import datasets

    try:
        saved = datasets.load_from_disk(folder)
    except Exception as error:  # the library has a dozen kinds
        raise hub.explain(error, hub.Name(str(folder)), "dataset") from error
    if not isinstance(saved, datasets.DatasetDict):
        saved = datasets.DatasetDict({"train": saved})
    rows = saved[_split_among(list(saved), split, folder)]
    for other in saved.values():
        _check_classes(rows.features, other.features, folder)
    return rows.to_iterable_dataset() if streaming else rows


def _visible_files(folder: Path) -> list[Path]:
    """All files below a folder, but for those of git and the like."""
    files = []
    for file in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not is_hidden:
            files.append(file)
    return files


def _cache(files: Iterable[Path]) -> str:
    """Where the library keeps the tables that it makes of these files.

    Its own choice goes by the time at which a file was changed, and copies may keep that.
    """
    import datasets

    return str(Path(datasets.config.HF_DATASETS_CACHE, "course", _hash_of(files)))


def _builder(name: hub.Name, path: str, **files: Any) -> Any:
    """What the library `datasets` makes tables with; it has read no rows yet."""
    import datasets

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # nobody is told who read what
    try:
        builder = datasets.load_dataset_builder(path, name.config, revision=name.revision, **files)
    except Exception as error:  # a dozen kinds, and those of requests and httpx
        raise hub.explain(error, name, "dataset") from error
    if builder.name not in PLAIN:
        raise CourseError(
            f"The dataset {name.place!r} comes as {builder.name}, and the course reads tables only."
        )
    return builder


def _read(builder: Any, name: hub.Name, split: str, streaming: bool) -> AnyDataset:
    """Make the tables of a split, or open it as a stream."""
    splits = [str(key) for key in builder.info.splits or builder.config.data_files or ()]
    chosen = _split_among(splits, split, name.place)
    if builder.name == "parquet" and Path(name.place).exists():
        # The library reads the classes' names in one file, and only the numbers in the others.
        files = list(chain.from_iterable((builder.config.data_files or {}).values()))
        for file in files:
            _check_classes(_features(files[0]), _features(file), file)
    try:
        if streaming:
            return cast(AnyDataset, builder.as_streaming_dataset(split=chosen))
        builder.download_and_prepare()
        return cast(AnyDataset, builder.as_dataset(split=chosen))
    except Exception as error:
        raise hub.explain(error, name, "dataset") from error


def _features(file: str) -> Any:
    """The types of the columns in a Parquet file; none if it is damaged, which is said later."""
    import datasets
    from pyarrow import ArrowException, parquet

    try:
        return datasets.Features.from_arrow_schema(parquet.read_schema(file))
    except (OSError, ArrowException):
        return None


def _check_classes(features: Any, others: Any, place: str | Path) -> None:
    """Refuse splits whose numbers stand for different classes.

    Raises:
        CourseError: two splits have the same column with other names of its classes.
    """
    for column in (features or {}).keys() & (others or {}).keys():
        first = getattr(features[column], "names", None)
        second = getattr(others[column], "names", None)
        if first and second and first != second:
            raise CourseError(
                f"{place}: the classes of {column} are numbered as {', '.join(second)} here, and as"
                f" {', '.join(first)} in another split; write all splits with the same ClassLabel."
            )


def _split_among(splits: list[str], split: str, place: str | Path) -> str:
    """The dataset's own name of a split; where it does not list its splits, the name asked for."""
    for name in (split, *ALIASES.get(split, ())):
        if name in splits or not splits:
            return name
    raise CourseError(
        f"The dataset {str(place)!r} has no split {split!r}; it has {', '.join(splits)}."
    )
