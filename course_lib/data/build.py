"""From a reader's rows to a `datasets.Dataset`: in memory, memory-mapped where they are many, or streaming."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from course_lib.data.readers import Row, languages
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Rows: TypeAlias = "Dataset | IterableDataset"
Make = Callable[..., Iterator[Row]]  # a function of a module, so that `datasets` can name its cache after it

IN_MEMORY = 64 * 2**20  # bytes of the files; what is larger is written to the cache once and memory-mapped
LATEST = 1  # part of the cache's name: count up when the readers change
BUFFER = 1000  # rows of a stream among which n are drawn


def dataset(rows: Iterable[Mapping[str, Any]], features: Any = None) -> "Dataset":
    """Rows as a `datasets.Dataset` in memory; none at all is an error."""
    from datasets import Dataset

    listed = list(rows)
    if not listed:
        raise CourseError("There are no rows: the source is empty, or n is 0.")
    return Dataset.from_list(listed, features=features)


def from_files(make: Make, files: list[Path], features: Any, *, streaming: bool = False, **how: Any) -> Rows:
    """The rows that `make(files=..., **how)` yields: streaming, or in memory, or beside (larger files) on disk.

    Raises:
        CourseError: what the reader has to say.
    """
    from datasets import Dataset, IterableDataset
    from datasets.exceptions import DatasetGenerationError

    kwargs = {"files": [str(file) for file in files], **how}
    if streaming:
        return IterableDataset.from_generator(make, features=features, gen_kwargs=kwargs)
    real = [part for file in files for part in (languages(file).values() if not file.is_file() else [file])]
    if sum(file.stat().st_size for file in real) <= IN_MEMORY:
        return dataset(make(**kwargs), features)
    stamps = [(str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in real]
    name = hashlib.sha256(repr((LATEST, make.__qualname__, stamps, how, features)).encode()).hexdigest()
    with quiet():
        try:
            return Dataset.from_generator(make, features=features, gen_kwargs=kwargs, fingerprint=name[:32])
        except DatasetGenerationError as error:
            if isinstance(error.__cause__, CourseError):
                raise error.__cause__ from None
            raise CourseError(f"{files[0]} could not be read: {error.__cause__ or error}.") from error
        except OSError as error:
            raise CourseError(
                f"The rows of {files[0]} cannot be kept ({error.strerror or error}); set HF_HOME to a roomy folder."
            ) from error


def sample(rows: Rows, n: int | None, seed: int) -> Rows:
    """`n` of the rows, drawn by `seed` (of a stream: among its next thousand); all of them, in order, if n is None."""
    from datasets import Dataset

    if n is not None and n < 1:
        raise CourseError(f"n is {n}; ask for at least one row, or leave it out for all.")
    if n is None:
        return rows
    if isinstance(rows, Dataset):
        return rows.shuffle(seed=seed).select(range(min(n, len(rows))))
    return rows.shuffle(seed=seed, buffer_size=BUFFER).take(n)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars or warnings of `datasets`: lessons show what they do themselves."""
    import datasets
    from datasets.utils import logging

    shown, level = not datasets.are_progress_bars_disabled(), logging.get_verbosity()
    datasets.disable_progress_bars()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            datasets.enable_progress_bars()
