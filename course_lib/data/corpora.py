"""Text by one name, whichever door it comes through: `corpus(source)`, a `datasets.Dataset` with a column `text`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.data import readers
from course_lib.data.docs import docstrings
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from datasets import Dataset

TOWN = 0  # the seed of the world itself; the shipped checkpoints learned this town's words
WORLD_DOCUMENTS = 2000  # of an endless corpus, if no number is asked for
TEXT_FILES = (".txt", ".tokens", ".raw", ".md")
NAMES = {"train": ("train",), "validation": ("valid", "val", "dev"), "test": ("test",)}


def corpus(source: str | Path, *, split: str = "train", n: int | None = None, seed: int = 0) -> "Dataset":
    """Documents, one a row, in the column `text`.

    Args:
        source: "world", the generated town (its rows have `sentences`, `tokens`, `entities` and more); "docs", the
            docstrings of the installed libraries; the path of a text or WikiText file, or of a folder with files for
            each split; or "hub:NAME", optionally "hub:NAME:CONFIG@REVISION".
        split: "train", "validation" or "test".
        n: so many documents, drawn by `seed` (fewer if there are not so many); None: all there are, of the endless
            world 2,000.
        seed: which documents of the world, or which n of the others.

    Raises:
        CourseError: no such source, file, split or column; an empty corpus; a file that is not UTF-8.
    """
    name = str(source)
    if name == "world":
        from course_lib.data.world import World

        rows = World(TOWN).documents(WORLD_DOCUMENTS if n is None else n, split, seed)
        return dataset(rows)
    if name == "docs":
        return sample(dataset([dict(row) for row in docstrings(split)]), n, seed)
    if name.startswith("hub:"):
        return sample(from_hub(name, split), n, seed, needs="text", source=name)
    return sample(dataset(_from_files(Path(source), split)), n, seed)


def dataset(rows: list[dict[str, Any]], features: Any = None) -> "Dataset":
    """Rows as a `datasets.Dataset`; none at all is an error."""
    from datasets import Dataset

    if not rows:
        raise CourseError("There are no rows: the corpus is empty, or n is 0.")
    return Dataset.from_list(rows, features=features)


def sample(
    rows: "Dataset", n: int | None, seed: int, *, needs: str | None = None, source: str = "the data"
) -> "Dataset":
    """`n` of the rows, drawn by `seed`; all of them, in order, if n is None."""
    if needs is not None and needs not in rows.column_names:
        raise CourseError(f"{source} has no column {needs!r}; its columns are {', '.join(rows.column_names)}.")
    if n is not None and n < 1:
        raise CourseError(f"n is {n}; ask for at least one row, or leave it out for all.")
    return rows if n is None else rows.shuffle(seed=seed).select(range(min(n, len(rows))))


def from_hub(name: str, split: str) -> "Dataset":
    """A dataset of the Hugging Face hub (or a folder in its layout): "hub:NAME:CONFIG@REVISION", the last two optional.

    Raises:
        CourseError: it cannot be had, the network being absent or the name wrong.
    """
    import datasets

    place, _, revision = name.removeprefix("hub:").partition("@")
    place, _, config = place.partition(":")
    try:
        return datasets.load_dataset(place, config or None, split=split, revision=revision or None)
    except Exception as error:  # the library has a dozen kinds, from requests', httpx's and its own
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise CourseError(
            f"The dataset {place!r} could not be loaded from the Hugging Face hub ({reason}); "
            "check its name and the network, or give the path of a folder instead."
        ) from error


def split_files(path: Path, split: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a split: the path itself, or those of a folder whose names say "train", "valid" or "dev", "test".

    A single file is the training split. A folder whose names say nothing is the training split as well.
    """
    if split not in NAMES and not (path / split).suffix and not any(path.glob(f"{split}.*")):
        raise CourseError(f"There is no split {split!r} of {path}; choose one of {', '.join(NAMES)}.")
    if not path.exists():
        raise CourseError(
            f'There is no file or folder {path}; a source is "world", "docs", "hub:NAME" or a path that exists.'
        )
    if path.is_file():
        if split != "train":
            raise CourseError(f"{path} is a single file, so it has no {split} split; give its folder, or use train.")
        return [path]
    files = sorted(f for f in path.iterdir() if f.suffix in suffixes and f.is_file())
    exact = [f for f in files if f.stem == split]
    said = {f: _split_of(f) for f in files}
    chosen = exact or [f for f in files if said[f] == split]
    if not chosen and split == "train" and not any(said.values()):
        chosen = [f for f in files if f.name not in ("SOURCE.txt", "README.md", "LICENSE.txt")]
    if not chosen:
        there = ", ".join(f.name for f in files) or "none of a known format"
        raise CourseError(f"{path} has no file for the {split} split; its files: {there}.")
    return chosen


def _split_of(file: Path) -> str | None:
    name = file.name.lower()
    return next((split for split, words in NAMES.items() if any(word in name for word in words)), None)


def _from_files(path: Path, split: str) -> list[dict[str, Any]]:
    return [row for file in split_files(path, split, TEXT_FILES) for row in readers.read_text(file)]
