"""Which files of a folder hold a split, and in which format: told by their names alone."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.data.readers import FORMATS, LANGUAGE, Format, languages, unpacked
from course_lib.errors import CourseError

Door = Literal["task", "corpus"]

SPLITS = {
    "train": "train|training|trn",
    "validation": "validation|valid|val|development|devel|dev",
    "test": "test|testing|tst",
}
NOT_DATA = re.compile(
    r"(?i)((\d*-)?readme|licen[cs]e|copying|notice|citation|changelog|dataset_infos?)\b.*|source\.txt|\..*"
)
ENDING = {ending: format for format in FORMATS.values() for ending in format.endings}


@dataclass(frozen=True)
class Found:
    """The files of one split. For parallel text a path without the languages stands for its files."""

    format: Format
    files: list[Path]


def find(path: Path, split: str, door: Door, format: str | None = None) -> Found:
    """The files of a split: the path itself, or those of a folder whose names say "train", "valid" or "dev", "test".

    A single file is the training split, and so are files whose names say nothing, if there is one or they are texts.
    Instead of the files, folders in the folder may be named so. `split` may also be a file's own name.

    Raises:
        CourseError: no such path, format or split; files of several formats, or several that could be meant.
    """
    path = path.expanduser()
    if format is not None and format not in FORMATS:
        raise CourseError(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
    if not path.is_dir():
        return _single(path, split, door, format)
    inside = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and not folder.name.startswith(".")]
    files, kind = _data(path, door, format)
    if not files:
        return _of_folders(path, inside, split, door, format)
    exact = [file for file in files if unpacked(file).stem == split or file.name == split]
    said = {file: split_of(file.name) for file in files}
    if split not in SPLITS and not exact:
        raise CourseError(
            f"There is no split {split!r} of {path}; choose one of {', '.join(SPLITS)}, or a file's own name."
        )
    chosen = exact or [file for file in files if said[file] == split]
    if not chosen and split == "train" and not any(said.values()):
        if len(files) > 1 and not kind.many:
            raise CourseError(
                f"{path} has {len(files)} {kind.name} files, and no name says which is for training "
                f"({_names(files)}); give the path of one, or call them train, dev and test."
            )
        chosen = files
    if not chosen:
        raise CourseError(f"{path} has no file for the {split} split; its files: {_names(files)}.")
    return Found(kind, chosen)


def split_of(name: str) -> str | None:
    """The split that a file's or folder's name says: "train", "validation" or "test"."""
    for split, words in SPLITS.items():
        if re.search(rf"(?i)(?<![a-z])({words})(set)?(?![a-z])", name):
            return split
    return None


def _single(path: Path, split: str, door: Door, format: str | None) -> Found:
    if not path.exists():
        if door == "task" and len(languages(path)) > 1:
            return Found(FORMATS["parallel"], [path])
        raise CourseError(
            f'There is no file or folder {path}; a source is "world", "docs", "hub:NAME" or a path that exists.'
        )
    if split != "train" and unpacked(path).stem != split:
        raise CourseError(f"{path} is a single file, so it has no {split} split; give its folder, or use train.")
    ending = unpacked(path).suffix.lower()
    if door == "task" and ending == ".txt" and format is None:
        return Found(FORMATS["table"], [path])  # such as lists of word pairs with their similarity
    if format is None and ending not in ENDING:
        others = languages(unpacked(path).with_suffix(""))
        if door == "task" and path in others.values() and len(others) > 1:
            return Found(FORMATS["parallel"], [unpacked(path).with_suffix("")])
        if door == "corpus" and (path in others.values() or not ending):
            return Found(FORMATS["text"], [path])
        known = ", ".join(f"{kind.name} ({' '.join(kind.endings)})" for kind in FORMATS.values() if kind.endings)
        raise CourseError(f"{path}: its format cannot be told from its name; say format=, one of {known}.")
    kind = FORMATS[format] if format else ENDING[ending]
    _require(kind, path, door)
    return Found(kind, [path])


def _data(path: Path, door: Door, format: str | None) -> tuple[list[Path], Format]:
    """The folder's files of its one format."""
    files = [file for file in sorted(path.iterdir()) if file.is_file() and not NOT_DATA.fullmatch(file.name)]
    by_format: dict[str, list[Path]] = {}
    stems: Counter[Path] = Counter()  # of files that a language's code ends
    for file in files:
        if (kind := ENDING.get(unpacked(file).suffix.lower())) is not None:
            by_format.setdefault(kind.name, []).append(file)
        elif LANGUAGE.fullmatch(unpacked(file).suffix[1:]):
            stems[unpacked(file).with_suffix("")] += 1
    if tongues := [stem for stem, count in stems.items() if count > 1]:
        by_format["parallel"] = tongues
    if format is not None:
        _require(FORMATS[format], path, door)
        return by_format.get(format, []), FORMATS[format]
    fit = [name for name in by_format if name == "parquet" or getattr(FORMATS[name], door) is not None]
    if len(fit) > 1:
        each = ", ".join(f"{by_format[name][0].name} ({name})" for name in fit)
        raise CourseError(
            f"{path} holds files of several formats, {each}; give the path of one file, or say which by format=."
        )
    if not fit and by_format:
        _require(FORMATS[next(iter(by_format))], path, door)
    return (by_format[fit[0]], FORMATS[fit[0]]) if fit else ([], FORMATS["text"])


def _of_folders(path: Path, inside: list[Path], split: str, door: Door, format: str | None) -> Found:
    """The files of the folder in this folder that is named for the split."""
    chosen = [folder for folder in inside if folder.name == split or split_of(folder.name) == split]
    if chosen:
        parts = [_data(folder, door, format) for folder in chosen]
        kinds = {kind.name for files, kind in parts if files}
        if len(kinds) == 1:
            return Found(FORMATS[kinds.pop()], [file for files, _ in parts for file in files])
    if any(True for folder in inside for _ in folder.glob("*.parquet")):
        return Found(FORMATS["parquet"], [path])
    if packed := [file for file in sorted(path.iterdir()) if file.suffix in (".zip", ".tar", ".tgz")]:
        raise CourseError(f"{path} has no data files but {_names(packed)}; unpack that first.")
    known = f" of the format {format}" if format else " of a known format"
    folders = f"; it has the folders {_names(inside)}, one of which may be meant" if inside else ""
    raise CourseError(f"{path} has no file for the {split} split; its files: none{known}{folders}.")


def _require(kind: Format, path: Path, door: Door) -> None:
    if kind.name == "parquet" or getattr(kind, door) is not None:
        return
    if door == "corpus":
        raise CourseError(f"{path} holds examples of a task ({kind.name}); read them by data.task.")
    raise CourseError(f"{path} holds plain text and no labels; read it by data.corpus.")


def _names(paths: list[Path], most: int = 8) -> str:
    names = ", ".join(path.name for path in paths[:most])
    return names + (f" and {len(paths) - most} more" if len(paths) > most else "")
