"""Find the files of a split (training, validation or test data) in a folder, by their names.

    sst2/train.tsv  sst2/dev.tsv  sst2/readme.md
    find(Path("sst2"), "validation", "task").files    [sst2/dev.tsv]

The extension tells the kind of file, here a table. A word such as "train", "dev" or "test" tells
the split. If several files have the same split, the user must name one of them: MultiNLI, for
example, has dev_matched and dev_mismatched.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from course_lib.data import json_files, lines, table_files, tagged_files, text_files
from course_lib.data.columns import ColumnMap, Located
from course_lib.data.lines import unpacked
from course_lib.data.text_files import LANGUAGE, languages
from course_lib.errors import CourseError
from course_lib.files import expand_home

# What the files are read for: "corpus" needs texts, "task" needs labels, too.
Purpose = Literal["task", "corpus"]
# (file, what the user says about its columns) -> its records with their locations
Reader = Callable[[Path, ColumnMap | None], Iterator[Located]]

SPLITS = {
    "train": "train|training|trn",
    "validation": "validation|valid|val|development|devel|dev|testa",
    "test": "test|testing|tst|testb",
}
# Files beside the data, such as README.md, and hidden files.
NOT_DATA = re.compile(
    r"(?i)((\d*-)?readme|licen[cs]e|copying|notice|citation|changelog|dataset_infos?)\b.*"
    r"|source\.txt|\..*"
)
# The library `datasets` writes one of these files into a folder (`save_to_disk`).
SAVED = ("dataset_dict.json", "state.json")
# SNLI and MultiNLI have the same rows twice, as JSON lines and as a table in a .txt file. These are
# the names of the .txt files, which are skipped.
DUPLICATE = re.compile(r"(snli|multinli)_[\d.]+_\w+")


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: the kind's name, for messages.
        endings: the file extensions. That of a compressed file (.gz) may follow.
        reader: reads a file; None: the library `datasets` does.
        many: whether a split may consist of several files, such as books.
    """

    name: str
    endings: tuple[str, ...]
    reader: Reader | None = None
    many: bool = False


# WikiText, Gutenberg
TEXT = FileKind("text", (".txt", ".tokens", ".raw", ".md"), text_files.read_text, many=True)
# GLUE, STS, AG News; for a task .txt with tabs, too
TABLE = FileKind("table", (".tsv", ".csv"), table_files.read_table)
# .en and .de side by side: Multi30k, WMT
PARALLEL = FileKind("parallel", (), text_files.read_parallel)
# the Hugging Face hub
PARQUET = FileKind("parquet", (".parquet", ".arrow"))
# CoNLL 2003, WNUT
CONLL = FileKind(
    "conll",
    (".conll", ".bio", ".iob", ".iob2", ".testa", ".testb"),
    tagged_files.read_conll,
)
KINDS = (
    TEXT,
    TABLE,
    PARALLEL,
    PARQUET,
    # SQuAD 1.1 and 2, SuperGLUE
    FileKind("json", (".json", ".jsonl", ".ndjson"), json_files.read_records),
    CONLL,
    # Universal Dependencies
    FileKind("conllu", (".conllu",), tagged_files.read_conllu),
    # CNN / Daily Mail
    FileKind("stories", (".story",), text_files.read_story, many=True),
)
ENDING = {ending: kind for kind in KINDS for ending in kind.endings}


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split, all of one kind.

    The files of translations are given without their language: "train" means train.en and
    train.de.
    """

    kind: FileKind
    files: list[Path]

    def records(self, user_map: ColumnMap | None = None) -> Iterator[Located]:
        """The records of all files, with locations such as "dev.tsv, line 3"."""
        for file in self.files:
            for location, record in cast(Reader, self.kind.reader)(file, user_map):
                yield f"{file}, {location}", record


def find(path: Path, split: str, purpose: Purpose) -> SplitFiles:
    """Find the files of a split: the path itself, or files in a folder, chosen by their names.

    A single file is the training split. The same holds for a folder with one file whose name tells
    no split, and for a folder of several such texts. A file that is named exactly like the split
    ("dev.tsv") comes before others whose names contain it ("dev_ids.tsv").

    Args:
        path: a file; a folder of files; or a folder with a folder for each split.
        split: "train", "validation", "test", or a file's own name.
        purpose: the function that reads the files, "corpus" or "task".

    Raises:
        CourseError: there is no file for the split, or several files fit.
    """
    path = expand_home(path)
    if not path.is_dir():
        return _single(path, split, purpose)
    if any((path / name).is_file() for name in SAVED):
        return SplitFiles(PARQUET, [path])
    files, kind = _data(path, purpose)
    if not files:
        return _of_folders(path, split, purpose)
    if kind == PARQUET:
        return SplitFiles(PARQUET, [path])  # `datasets` finds the splits by itself
    chosen = _chosen(files, split)
    if not chosen and split == "train" and not any(split_of(file.name) for file in files):
        if len(files) > 1 and not kind.many:
            raise CourseError(
                f"{path} has {len(files)} {kind.name} files, and no name says which is for training"
                f" ({_names(files)}); give the path of one, or call them train, dev and test."
            )
        chosen = files
    if not chosen:
        raise CourseError(f"{path} has no file for the {split} split; its files: {_names(files)}.")
    if len(chosen) > 1 and not kind.many and not _are_parts(chosen):
        names = _own_names(chosen, split)
        raise CourseError(
            f"{path} has several files for the {split} split, {_names(chosen)}; name one by"
            f' split="{names[0]}", in a command --test {names[0]}.'
        )
    return SplitFiles(kind, chosen)


def split_of(name: str) -> str | None:
    """The split in a file's or folder's name: "train", "validation", "test" or None."""
    for split, words in SPLITS.items():
        if re.search(rf"(?i)(?<![a-z])({words})(set)?(?![a-z])", name):
            return split
    return None


def _chosen(files: list[Path], split: str) -> list[Path]:
    """The files that are named like the split, or whose names contain a word for it."""
    words = SPLITS.get(split, re.escape(split))
    named = [
        file for file in files if file.name == split or re.fullmatch(f"(?i){words}", _stem(file))
    ]
    if len(named) == 1:
        return named
    chosen = [file for file in files if split_of(file.name) == split]
    # The split may also be the end of a file's name: "dev_matched" finds
    # multinli_1.0_dev_matched.jsonl.
    return chosen or named or [file for file in files if re.search(rf"[_.-]{words}$", _stem(file))]


def _stem(file: Path) -> str:
    return unpacked(file).stem


def _own_names(files: list[Path], split: str) -> list[str]:
    """Short names for the files of a split, dev_matched and dev_mismatched; else their own."""
    words = rf"(?i)(?<![a-z])({SPLITS.get(split, split)})(?![a-z]).*"
    matches = [re.search(words, _stem(file)) for file in files]
    ends = [match[0] for match in matches if match]
    return ends if len(set(ends)) == len(files) else [_stem(file) for file in files]


def _are_parts(files: list[Path]) -> bool:
    """Whether files are parts of one: train-00000-of-00002 and train-00001-of-00002."""
    return len({re.sub(r"\d+", "0", file.name) for file in files}) == 1


def _single(path: Path, split: str, purpose: Purpose) -> SplitFiles:
    """One file, or translations whose names start with this path."""
    bare = unpacked(path).with_suffix("") if path.exists() else path
    parallel = languages(bare)
    ending = unpacked(path).suffix.lower()
    if not path.exists() and (purpose == "corpus" or len(parallel) < 2):
        raise CourseError(
            f'There is no {path}; a source is "text", "docs", "hub:NAME", a path that exists, or a'
            " name that an installed package registers."
        )
    if path.exists() and not path.is_file():
        raise CourseError(f"{path} is neither a file nor a folder; write its text into a file.")
    if split != "train" and _stem(path) != split:
        whole = 'take this file whole: split="train", in a command --test train'
        raise CourseError(
            f"{path}: it has no {split} split; {whole}, or give a folder with a file for each"
            " split."
        )
    if purpose == "task" and ending == ".txt":  # such as lists of word pairs with their similarity
        return SplitFiles(CONLL if tagged_files.is_conll(path) else TABLE, [path])
    if ending in ENDING:
        return SplitFiles(ENDING[ending], [path])
    if purpose == "task" and len(parallel) > 1:
        return SplitFiles(PARALLEL, [bare])
    if purpose == "corpus" and (parallel or not ending):
        return SplitFiles(TEXT, [path])
    with lines.PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
        lines.refuse_no_text(path, file)
    raise CourseError(
        f"{path}: its name does not tell its format; give it one of the endings {' '.join(ENDING)}."
    )


def _data(path: Path, purpose: Purpose) -> tuple[list[Path], FileKind]:
    """The data files of a folder, which must all be of one kind, and this kind."""
    files = [
        file
        for file in sorted(path.iterdir())
        if file.is_file() and not NOT_DATA.fullmatch(file.name)
    ]
    by_kind: dict[str, list[Path]] = defaultdict(list)
    stems: Counter[Path] = Counter()  # train.en and train.de: "train" counts 2
    for file in files:
        bare = unpacked(file)
        kind = ENDING.get(bare.suffix.lower())
        if kind is not None:
            by_kind[kind.name].append(file)
        elif LANGUAGE.fullmatch(bare.suffix[1:]):
            stems[bare.with_suffix("")] += 1
    parallel = [stem for stem, count in stems.items() if count > 1]
    if parallel:
        by_kind["parallel"] = parallel
    texts = by_kind.pop("text", [])
    if not all(DUPLICATE.fullmatch(file.stem) for file in texts) or "json" not in by_kind:
        _add_texts(by_kind, texts, purpose)
    kinds = [kind for kind in KINDS if by_kind.get(kind.name)]
    if len(kinds) > 1:
        each = ", ".join(f"{by_kind[kind.name][0].name} ({kind.name})" for kind in kinds)
        raise CourseError(
            f"{path} holds files of several formats, {each}; give the path of one file."
        )
    kind = kinds[0] if kinds else TEXT
    return by_kind[kind.name], kind


def _add_texts(by_kind: dict[str, list[Path]], texts: list[Path], purpose: Purpose) -> None:
    """Decide what the .txt files of a folder are.

    For a corpus they are texts. For a task they are tables or tagged sentences; beside files of
    another kind they are notes, which are skipped.
    """
    if purpose == "corpus":
        by_kind["text"] = texts
        return
    tables = [file for file in texts if table_files.is_table(file)]
    tags = [file for file in texts if tagged_files.is_conll(file)]
    if tags:
        by_kind["conll"] += tags
    elif tables and "table" not in by_kind:
        by_kind["table"] = tables
    elif not by_kind:
        by_kind["text"] = texts


def _of_folders(path: Path, split: str, purpose: Purpose) -> SplitFiles:
    """The files of a split that has a folder of its own, such as sst2/train/."""
    inside = [
        folder
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    for folder in inside:
        if folder.name == split or split_of(folder.name) == split:
            files, kind = _data(folder, purpose)
            if files:
                return SplitFiles(kind, files)
    if any(any(folder.glob("*.parquet")) for folder in inside):
        return SplitFiles(PARQUET, [path])
    folders = f"; it has the folders {_names(inside)}, one of which may be meant" if inside else ""
    raise CourseError(f"{path} has no file of a known format for the {split} split{folders}.")


def _names(paths: list[Path]) -> str:
    """The files' names, for a message; at most eight."""
    names = [path.name for path in paths[:8]]
    if len(paths) > 8:
        names.append("...")
    return ", ".join(names)
