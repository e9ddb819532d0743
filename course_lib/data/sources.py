"""Open a source of texts or examples by its name.

    open_source("tasks/sentiment", "train", "task")    a source that comes with the course
    open_source("reviews.csv", "train", "task")        a file or a folder
    open_source("hub:imdb", "test", "task")            a dataset of the Hugging Face hub
    installed_source("world")                          a source that an installed package registers

The course reads most files itself (folders.py). Parquet files and the hub are read by the library
`datasets`.
"""

import hashlib
import pkgutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from course_lib import hub
from course_lib.data import folders, text_files
from course_lib.data.columns import Row
from course_lib.errors import CourseError
from course_lib.files import DATA, expand_home

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

AnyDataset: TypeAlias = "Dataset | IterableDataset"
# Files that the course reads itself, or a dataset that the library `datasets` reads.
Opened: TypeAlias = "folders.SplitFiles | AnyDataset"

TEXTS = ("docs", "manual", "text")  # texts that come with the course
TASKS = ("inference", "names", "questions", "sentiment", "similarity", "summaries")
SHIPPED = {name: DATA / name for name in TEXTS}
SHIPPED |= {f"tasks/{name}": DATA / "tasks" / name for name in TASKS}
SHUFFLE_BUFFER = 1000  # a stream is shuffled within this many rows
# The builders of `datasets` that read tables. Others decode images or archives, which the course
# does not need.
TABLE_BUILDERS = ("arrow", "cache", "conll", "csv", "json", "parquet", "text")
# Other names of a split, in datasets that do not have the usual one.
SPLIT_ALIASES: dict[str, tuple[str, ...]] = {"validation": ("valid", "val", "dev")}


class InstalledSource(Protocol):
    """A module that a package registers under the entry point `course_lib.sources`.

    A module without tasks has `documents` only.
    """

    def documents(self, n: int | None, split: str, seed: int) -> Iterable[Row]:
        """Rows with a column `text`."""

    def examples(self, task: str, n: int | None, split: str, seed: int) -> list[Row]:
        """Labelled rows of a task."""

    def label_names(self, task: str) -> Sequence[str]:
        """The classes of a task."""


@cache
def installed_source(name: str) -> InstalledSource | None:
    """The source registered under `name`; None if no installed package registers one."""
    points = list(entry_points(group="course_lib.sources", name=name))
    return cast(InstalledSource, points[0].load()) if points else None


def open_source(
    source: str, split: str, purpose: folders.Purpose, streaming: bool = False
) -> Opened:
    """Open a split of any source that is not an installed package.

    Args:
        source: a name in SHIPPED; the path of a file or folder; or "hub:NAME:CONFIG@REVISION",
            where :CONFIG and @REVISION may be missing and NAME may be a folder.
        split: "train", "validation", "test", or the source's own name of a split.
        purpose: "corpus" if only texts are read, "task" if labels are read too. For a task, a
            .txt file may be a table.
        streaming: whether `datasets` reads rows only when they are used. Files that the course
            reads itself are always read so.

    Returns:
        The files, if the course reads them itself; else a dataset.

    Raises:
        CourseError: there is no such source or split.
    """
    if source.startswith(hub.PREFIX):
        name = hub.parse(source)
        if name.folder is None:
            return _load_hub(name, split, streaming)
        return _load_folder(name, split, streaming)
    try:
        found = folders.find(SHIPPED.get(source, Path(source)), split, purpose)
    except OSError as error:
        raise CourseError(f"{source[:80]} cannot be read ({error.strerror}).") from None
    if found.kind != folders.PARQUET:
        return found
    # `find` gives the Parquet files of the split, or a whole folder, in which `datasets` finds the
    # splits.
    if found.files[0].is_file():
        return _load_files(found.files, split, streaming)
    return _load_folder(hub.Name(str(found.files[0])), split, streaming)


def digest(source: str) -> str | None:
    """A hash of the training and validation files that `corpus` would read.

    It is None for the hub, where a revision identifies the files, and for an installed source,
    which has no files.
    """
    if installed_source(source) is not None:
        return None
    if source.startswith(hub.PREFIX) and hub.parse(source).folder is None:
        return None
    path = SHIPPED.get(source, Path(source.removeprefix(hub.PREFIX)))
    files: list[Path] = []
    for split in ("train", "validation"):
        with suppress(CourseError):  # a source may lack a split
            found = folders.find(path, split, "corpus")
            files += chain.from_iterable(map(_files_of, found.files))
    return _hash_of(files)


def _hash_of(files: Iterable[Path]) -> str:
    """A hash of the files' names and contents."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        total.update(f"{file.name} {content}\n".encode())
    return total.hexdigest()[:16]


def _files_of(path: Path) -> list[Path]:
    """The files that a path of `SplitFiles` means."""
    if path.is_dir():  # of Parquet or Arrow files
        return sorted(file for file in path.rglob("*") if file.suffix in (".parquet", ".arrow"))
    if path.is_file():
        return [path]
    return list(text_files.languages(path).values())  # "train" means train.en and train.de


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
        seed: the seed of the draw; None takes the first `n`.

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
    return rows.shuffle(seed, buffer_size=SHUFFLE_BUFFER).take(n)


def _load_files(files: list[Path], split: str, streaming: bool) -> AnyDataset:
    """Parquet or Arrow files: a dataset whose only split is `split`."""
    builder_name = "arrow" if files[0].suffix == ".arrow" else "parquet"
    name = hub.Name(str(files[0]))  # messages name the first file
    cache_dir = None if streaming else _cache_dir(files)
    data_files = {split: [str(file) for file in files]}
    builder = _builder(name, builder_name, data_files=data_files, cache_dir=cache_dir)
    return _read(builder, name, split, streaming)


def _load_folder(name: hub.Name, split: str, streaming: bool) -> AnyDataset:
    """A folder that is laid out as on the hub, or that `save_to_disk` of `datasets` wrote."""
    folder = expand_home(name.place)
    if any((folder / file).is_file() for file in folders.SAVED):
        return _load_saved(folder, split, streaming)
    cache_dir = None if streaming else _cache_dir(_visible_files(folder))
    builder = _builder(name, str(folder), cache_dir=cache_dir)
    return _read(builder, name, split, streaming)


def _load_hub(name: hub.Name, split: str, streaming: bool) -> AnyDataset:
    """A dataset of the Hugging Face hub, or its copy in the cache if the hub does not answer."""
    from datasets import packaged_modules

    if name.place in {module.name for module in pkgutil.iter_modules(packaged_modules.__path__)}:
        # The library would take such a name ("csv") for its reader of that format, and search the
        # current folder for files.
        raise CourseError(
            f"{hub.PREFIX}{name.place} names a format and no dataset; write hub:OWNER/NAME, or the"
            " path of a folder."
        )
    with hub.reached():
        builder = _builder(name, name.place)
        # Without the hub `datasets` substitutes its builder "cache", which takes the tables that
        # were made last, even those of another revision. That builder's hash is their commit.
        if builder.name == "cache" and builder.hash != hub.commit(name):
            raise hub.absent(name, "dataset")
        return _read(builder, name, split, streaming)


def _load_saved(folder: Path, split: str, streaming: bool) -> AnyDataset:
    """What `save_to_disk` of `datasets` wrote: one split, or several."""
    import datasets

    try:
        saved = datasets.load_from_disk(folder)
    except Exception as error:  # the library has a dozen kinds
        raise hub.explain(error, hub.Name(str(folder)), "dataset") from error
    if not isinstance(saved, datasets.DatasetDict):
        saved = datasets.DatasetDict({"train": saved})
    rows = saved[_own_split(split, list(saved), folder)]
    for other in saved.values():
        _check_classes(rows.features, other.features, folder)
    return rows.to_iterable_dataset() if streaming else rows


def _visible_files(folder: Path) -> list[Path]:
    """All files below a folder, except hidden ones, such as those of git."""
    files = []
    for file in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not is_hidden:
            files.append(file)
    return files


def _cache_dir(files: Iterable[Path]) -> str:
    """The folder in which `datasets` keeps the tables that it makes of these files.

    The folder's name has a hash of their contents. By itself the library would compare only the
    times at which files were changed, and a copy of a file may keep the time.
    """
    import datasets

    return str(Path(datasets.config.HF_DATASETS_CACHE, "course", _hash_of(files)))


def _builder(name: hub.Name, path: str, **options: Any) -> Any:
    """The builder by which `datasets` makes tables. It has read no rows yet.

    Args:
        name: the dataset's name; it gives the configuration and the revision.
        path: what `datasets` opens: a repository, a folder, or the name of a builder.
        options: `data_files` and `cache_dir` of `datasets.load_dataset_builder`.

    Raises:
        CourseError: the dataset cannot be opened, or does not consist of tables.
    """
    import datasets

    hub.check_cache()
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # report no downloads to the hub
    try:
        builder = datasets.load_dataset_builder(
            path, name.config, revision=name.revision, **options
        )
    except Exception as error:  # the library has a dozen kinds, and httpx has others
        raise hub.explain(error, name, "dataset") from error
    if builder.name not in TABLE_BUILDERS:
        raise CourseError(
            f"The dataset {name.place!r} comes as {builder.name}, and the course reads tables only."
        )
    return builder


def _read(builder: Any, name: hub.Name, split: str, streaming: bool) -> AnyDataset:
    """Make the tables of a split, or open it as a stream."""
    # Not every builder knows its splits before it has read the files.
    splits = [str(key) for key in builder.info.splits or builder.config.data_files or ()]
    own_split = _own_split(split, splits, name.place)
    if builder.name == "parquet" and Path(name.place).exists():
        # The library takes the classes' names from the first file, and only their numbers from the
        # others.
        files = list(chain.from_iterable((builder.config.data_files or {}).values()))
        for file in files:
            _check_classes(_features(files[0]), _features(file), file)
    try:
        if streaming:
            return cast(AnyDataset, builder.as_streaming_dataset(split=own_split))
        builder.download_and_prepare()
        return cast(AnyDataset, builder.as_dataset(split=own_split))
    except Exception as error:
        raise hub.explain(error, name, "dataset") from error


def _features(file: str) -> Any:
    """The types of the columns in a Parquet file; None if it is damaged.

    No error is raised here: `datasets` reads the file next, and its error is explained.
    """
    import datasets
    from pyarrow import ArrowException, parquet

    try:
        return datasets.Features.from_arrow_schema(parquet.read_schema(file))
    except (OSError, ArrowException):
        return None


def _check_classes(features: Any, others: Any, source: str | Path) -> None:
    """Refuse two files or splits that number their classes differently.

    Args:
        features: the types of the first one's columns; None if they are not known.
        others: those of the other one.
        source: the other one's name, for the message.

    Raises:
        CourseError: both have the same column, with other names or another order of its classes.
    """
    for column in (features or {}).keys() & (others or {}).keys():
        first = getattr(features[column], "names", None)
        second = getattr(others[column], "names", None)
        if first and second and first != second:
            raise CourseError(
                f"{source}: the classes of {column} are numbered as {', '.join(second)} here, and"
                f" as {', '.join(first)} in another split; write all splits with the same"
                " ClassLabel."
            )


def _own_split(split: str, splits: list[str], source: str | Path) -> str:
    """A dataset's own name of a split: "valid" for "validation".

    Args:
        split: the name that the user gives.
        splits: the dataset's own names; empty if they are not known, then `split` is returned.
        source: the dataset's name, for the message.

    Raises:
        CourseError: the dataset has no such split.
    """
    if not splits:
        return split
    for name in (split, *SPLIT_ALIASES.get(split, ())):
        if name in splits:
            return name
    raise CourseError(
        f"The dataset {str(source)!r} has no split {split!r}; it has {', '.join(splits)}."
    )
