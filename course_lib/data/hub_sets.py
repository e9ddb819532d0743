"""Datasets of the Hugging Face hub, or of folders in its layout, by the `datasets` library; plain tables only."""

import pkgutil
import re
from collections import defaultdict
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from course_lib import hub
from course_lib.data.build import Rows, quiet
from course_lib.errors import CourseError

# The builders of `datasets` that read tables; others decode archives, images or what a file says of itself.
PLAIN = ("arrow", "cache", "conll", "csv", "json", "parquet", "text")
ALIASES = {"validation": ("validation", "valid", "val", "dev"), "test": ("test",), "train": ("train",)}
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?(\..+)")


def load(source: str, split: str, streaming: bool = False) -> Rows:
    """A split of "hub:NAME:CONFIG@REVISION", the last two optional, with the columns as published.

    Without a network, what was fetched before is used again, if it is of that revision. Nothing of it is executed.

    Raises:
        CourseError: it cannot be had, the name, configuration or split being wrong or the network absent.
    """
    from datasets import packaged_modules

    name = hub.parse(source)
    if name.folder is not None:
        return _read(_builder(name, str(name.folder)), name, split, streaming)
    if name.place in {module.name for module in pkgutil.iter_modules(packaged_modules.__path__)}:
        # The library would take such a name for its reader of that format, and search the current folder for files.
        raise CourseError(f"{source} names a format and no dataset; write hub:OWNER/NAME, or the path of a folder.")
    with hub.reached():
        return _read(_of_hub(name), name, split, streaming)


def load_files(files: list[Path], split: str, streaming: bool = False) -> Rows:
    """Parquet or Arrow files of one split, or the folder that has them in folders named by split."""
    import datasets

    if files[0].is_dir():
        return load(f"{hub.PREFIX}{files[0]}", split, streaming)
    kind = "arrow" if files[0].suffix == ".arrow" else "parquet"
    try:
        with quiet():
            names = [str(file) for file in files]
            return datasets.load_dataset(kind, data_files={"rows": names}, split="rows", streaming=streaming)
    except Exception as error:
        raise hub.explain(error, hub.Name(str(files[0].parent)), "dataset") from error


def columns_of(rows: Rows) -> list[str]:
    """The names of the columns; a stream that does not know them is asked for its first row."""
    if rows.column_names is not None:
        return list(rows.column_names)
    first = next(iter(rows.take(1)), None)
    if first is None:
        raise CourseError("There are no rows: the dataset is empty.")
    return list(first)


def _of_hub(name: hub.Name) -> Any:
    """From the hub, else from the tables made of it earlier, else from the files that were fetched."""
    builder, failure = None, hub.explain(ConnectionError(), name, "dataset")
    try:
        builder = _builder(name, name.place)
    except CourseError as error:
        failure = error
    if builder is None or (builder.name == "cache" and builder.hash != hub.commit(name, "dataset")):
        # Where it reaches no hub the library takes the tables made last, of whatever revision.
        fetched = _fetched(name)
        if fetched is None and (builder is None or name.revision):
            raise failure
        builder = fetched or builder
    return builder


def _builder(name: hub.Name, path: str) -> Any:
    import datasets

    try:
        with quiet():
            builder = datasets.load_dataset_builder(path, name.config, revision=name.revision)
    except Exception as error:  # the library has a dozen kinds, and those of requests, httpx and its own
        if "find cache for" in str(error):  # of this configuration, though of others there is one
            raise hub.explain(ConnectionError(), name, "dataset") from error
        if isinstance(error, ValueError) and "config" in str(error).lower():
            raise CourseError(_no_config(name, path, str(error))) from error
        raise hub.explain(error, name, "dataset") from error
    if builder.name not in PLAIN:
        raise CourseError(
            f"{_what(name)} comes as {builder.name}, and the course reads tables only "
            f"({', '.join(kind for kind in PLAIN if kind != 'cache')})."
        )
    return builder


def _fetched(name: hub.Name) -> Any:
    """From the files in the cache of a dataset whose tables were never made; None if they are not all there."""
    folder = hub.snapshot(name, "dataset")
    if folder is None or not _is_whole(folder):
        return None
    try:
        builder = _builder(hub.Name(str(folder), name.config), str(folder))
    except CourseError:
        return None
    return builder if all((builder.config.data_files or {}).values()) else None


def _read(builder: Any, name: hub.Name, split: str, streaming: bool) -> Rows:
    there = [str(one) for one in builder.info.splits or builder.config.data_files or ()]
    chosen = next((alias for alias in (split, *ALIASES.get(split, ())) if alias in there), split)
    if there and chosen not in there:
        raise CourseError(f"{_what(name)} has no split {split!r}; it has {', '.join(there)}.")
    try:
        if streaming:
            return builder.as_streaming_dataset(split=chosen)
        with nullcontext() if builder.repo_id else quiet():  # a download may take long: its progress is shown
            builder.download_and_prepare()
        return builder.as_dataset(split=chosen)
    except Exception as error:
        raise hub.explain(error, name, "dataset") from error


def _what(name: hub.Name) -> str:
    return f"The dataset {name.place!r}" + (f" at revision {name.revision!r}" if name.revision else "")


def _no_config(name: hub.Name, path: str, said: str) -> str:
    """That a configuration has to be named, or is none, and which there are."""
    import datasets

    says = f"has no configuration {name.config!r}" if name.config else "has several configurations"
    _, in_cache, listed = said.partition("in the cache: ")
    known: list[str] = listed.split("\n")[0].split(", ") if in_cache else []
    if not known:
        with quiet(), suppress(Exception):  # the list is only a help
            known = datasets.get_dataset_config_names(path, revision=name.revision)
    choose = f"; choose one of {', '.join(known)}" if known else "; its page says which there are"
    return f"{_what(name)} {says}{choose}, as in hub:{name.place}:{known[0] if known else 'CONFIG'}."


def _is_whole(folder: Path) -> bool:
    """Whether all parts of tables in parts are there ("train-00000-of-00003.parquet")."""
    parts: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for file in folder.rglob("*"):
        if found := SHARD.fullmatch(file.name):
            parts[(str(file.parent), found[1], found[3], found[4])].add(found[2])
    return all(len(numbers) == int(key[2]) for key, numbers in parts.items())
