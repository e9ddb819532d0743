"""Files in published formats: which of a folder's files hold a split, told by their names alone,
and their records.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from course_lib.data import readers
from course_lib.data.columns import Columns, Placed
from course_lib.data.readers import LANGUAGE, Reader, languages, unpacked
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


@dataclass(frozen=True)
class FileFormat:
    """A published format. many: any number of its files make one split, as books do."""

    name: str
    endings: tuple[str, ...]  # perhaps packed
    reader: Reader | None = None
    many: bool = False


# WikiText, Gutenberg
TEXT = FileFormat("text", (".txt", ".tokens", ".raw", ".md"), readers.read_text, many=True)
# GLUE, STS, AG News; for a task .txt with tabs, too
TABLE = FileFormat("table", (".tsv", ".csv"), readers.read_table)
# .en and .de side by side: Multi30k, WMT
PARALLEL = FileFormat("parallel", (), readers.read_parallel)
# the Hugging Face hub; read by `datasets` itself
PARQUET = FileFormat("parquet", (".parquet", ".arrow"))
FORMATS = (
    TEXT,
    TABLE,
    PARALLEL,
    PARQUET,
    # SQuAD 1.1 and 2, SuperGLUE
    FileFormat("json", (".json", ".jsonl", ".ndjson"), readers.read_records),
    # CoNLL 2003, WNUT
    FileFormat("conll", (".conll", ".bio", ".iob", ".iob2"), readers.read_conll),
    FileFormat("conllu", (".conllu",), readers.read_conllu),  # Universal Dependencies
    FileFormat("stories", (".story",), readers.read_story, many=True),  # CNN / Daily Mail
)
ENDING = {ending: format for format in FORMATS for ending in format.endings}


@dataclass(frozen=True)
class Found:
    """The files of one split. For parallel text a path without the languages stands for its
    files.
    """

    format: FileFormat
    files: list[Path]

    def records(self, door: Door, columns: Columns | None = None) -> Iterator[Placed]:
        """The records of the files, one after the other; places name the file."""
        how = {"header": True} if self.format == TABLE and door == "corpus" else {}
        for file in self.files:
            for place, record in cast(Reader, self.format.reader)(file, columns, **how):
                yield f"{file}, {place}", record


def find(path: Path, split: str, door: Door) -> Found:
    """The files of a split: the path itself, or those in a folder (or folders in it) whose names
    say "train", "dev" ... A single file is the training split, and so are files whose names say
    nothing, if there is one or they are texts. Where one file is called just that ("dev.tsv"),
    others that say it too ("dev_ids.tsv") are left."""
    path = path.expanduser()
    if not path.is_dir():
        return _single(path, split, door)
    files, kind = _data(path, door)
    if not files:
        return _of_folders(path, split, door)
    if kind == PARQUET:
        return Found(PARQUET, [path])  # `datasets` tells the splits
    said = {file: split_of(file.name) for file in files}
    chosen = [file for file in files if said[file] == split]
    words = rf"(?i){SPLITS.get(split, re.escape(split))}"
    named = [
        file for file in files if file.name == split or re.fullmatch(words, unpacked(file).stem)
    ]
    chosen = named if len(named) == 1 or not chosen else chosen
    if not chosen and split == "train" and not any(said.values()):
        if len(files) > 1 and not kind.many:
            says = (
                f"has {len(files)} {kind.name} files, and no name says which is for training"
                f" ({_names(files)})"
            )
            raise CourseError(
                f"{path} {says}; give the path of one, or call them train, dev and test."
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


def _single(path: Path, split: str, door: Door) -> Found:
    bare = unpacked(path).with_suffix("") if path.exists() else path
    parallel, ending = languages(bare), unpacked(path).suffix.lower()
    if not path.exists() and (door == "corpus" or len(parallel) < 2):
        raise CourseError(
            f'There is no {path}; a source is "world", "docs", "hub:NAME" or a path that exists.'
        )
    if split != "train" and unpacked(path).stem != split:
        whole = 'take this file whole: split="train", in a command --test train'
        raise CourseError(
            f"{path}: it has no {split} split; {whole}, or give a folder with a file for each"
            " split."
        )
    if door == "task" and ending == ".txt":
        return Found(TABLE, [path])  # such as lists of word pairs with their similarity
    if ending in ENDING:
        return Found(ENDING[ending], [path])
    if door == "task" and len(parallel) > 1:
        return Found(PARALLEL, [bare])
    if door == "corpus" and (parallel or not ending):
        return Found(TEXT, [path])
    raise CourseError(
        f"{path}: its name does not tell its format; give it one of the endings {' '.join(ENDING)}."
    )


def _data(path: Path, door: Door) -> tuple[list[Path], FileFormat]:
    """The folder's files of its one format."""
    files = [
        file
        for file in sorted(path.iterdir())
        if file.is_file() and not NOT_DATA.fullmatch(file.name)
    ]
    by_format: dict[str, list[Path]] = defaultdict(list)
    stems: Counter[Path] = Counter()  # of files that a language's code ends
    for file in files:
        bare = unpacked(file)
        if (kind := ENDING.get(bare.suffix.lower())) is not None:
            by_format[kind.name].append(file)
        elif LANGUAGE.fullmatch(bare.suffix[1:]):
            stems[bare.with_suffix("")] += 1
    if tongues := [stem for stem, count in stems.items() if count > 1]:
        by_format["parallel"] = tongues
    if door == "task" and (texts := by_format.pop("text", [])):  # beside examples they are notes
        tables = [file for file in texts if readers.is_table(file)]
        if tables and "table" not in by_format:
            by_format["table"] = tables
        elif not by_format:
            by_format["text"] = texts
    kinds = [kind for kind in FORMATS if by_format.get(kind.name)]
    if len(kinds) > 1:
        each = ", ".join(f"{by_format[kind.name][0].name} ({kind.name})" for kind in kinds)
        raise CourseError(
            f"{path} holds files of several formats, {each}; give the path of one file."
        )
    kind = kinds[0] if kinds else TEXT
    return by_format[kind.name], kind


def _of_folders(path: Path, split: str, door: Door) -> Found:
    """The files of the folder in this folder that is named for the split."""
    inside = [
        folder
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    chosen = [folder for folder in inside if folder.name == split or split_of(folder.name) == split]
    for files, kind in (_data(folder, door) for folder in chosen):
        if files:
            return Found(kind, files)
    if any(True for folder in inside for _ in folder.glob("*.parquet")):
        return Found(PARQUET, [path])
    folders = f"; it has the folders {_names(inside)}, one of which may be meant" if inside else ""
    raise CourseError(f"{path} has no file of a known format for the {split} split{folders}.")


def _names(paths: list[Path]) -> str:
    return ", ".join([path.name for path in paths[:8]] + ["..."] * (len(paths) > 8))
