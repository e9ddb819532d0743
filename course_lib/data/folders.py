"""Finds the files of a split in a folder, by their names alone.

A file's extension gives its kind. A word such as "train", "dev" or "test" in its name gives its
split. If several files have the same split, the user names one of them: MultiNLI has dev_matched
and dev_mismatched.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from course_lib.data import readers
from course_lib.data.columns import Mapped, Placed
from course_lib.data.readers import LANGUAGE, Reader, languages, unpacked
from course_lib.errors import CourseError

# What files are read for: `corpus` reads texts, `task` reads labels too.
Purpose = Literal["task", "corpus"]

SPLITS = {
    "train": "train|training|trn",
    "validation": "validation|valid|val|development|devel|dev|testa",
    "test": "test|testing|tst|testb",
}
NOT_DATA = re.compile(
    r"(?i)((\d*-)?readme|licen[cs]e|copying|notice|citation|changelog|dataset_infos?)\b.*"
    r"|source\.txt|\..*"
)
SAVED = ("dataset_dict.json", "state.json")  # `save_to_disk` of the datasets library writes one
# SNLI and MultiNLI have the same rows in two files, as JSON lines and as a table in a .txt file.
TWICE = re.compile(r"(snli|multinli)_[\d.]+_\w+")


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: the kind's name in messages.
        endings: the file extensions; one of a compressed file (.gz) may follow.
        reader: file -> records; None leaves the reading to the library `datasets`.
        many: whether a split may be any number of files, as books are.
    """

    name: str
    endings: tuple[str, ...]
    reader: Reader | None = None
    many: bool = False


# WikiText, Gutenberg
TEXT = FileKind("text", (".txt", ".tokens", ".raw", ".md"), readers.read_text, many=True)
# GLUE, STS, AG News; for a task .txt with tabs, too
TABLE = FileKind("table", (".tsv", ".csv"), readers.read_table)
# .en and .de side by side: Multi30k, WMT
PARALLEL = FileKind("parallel", (), readers.read_parallel)
# the Hugging Face hub
PARQUET = FileKind("parquet", (".parquet", ".arrow"))
# CoNLL 2003, WNUT
CONLL = FileKind(
    "conll",
    (".conll", ".bio", ".iob", ".iob2", ".testa", ".testb"),
    readers.read_conll,
)
KINDS = (
    TEXT,
    TABLE,
    PARALLEL,
    PARQUET,
    # SQuAD 1.1 and 2, SuperGLUE
    FileKind("json", (".json", ".jsonl", ".ndjson"), readers.read_records),
    CONLL,
    # Universal Dependencies
    FileKind("conllu", (".conllu",), readers.read_conllu),
    # CNN / Daily Mail
    FileKind("stories", (".story",), readers.read_story, many=True),
)
ENDING = {ending: kind for kind in KINDS for ending in kind.endings}


@dataclass(frozen=True)
class Found:
    """The files of one split, all of one kind.

    For parallel text a path has no language: "train" means train.en and train.de.
    """

    kind: FileKind
    files: list[Path]

    def records(self, wanted: Mapped | None = None) -> Iterator[Placed]:
        """The records of the files, one file after another. Their places include the file."""
        for file in self.files:
            for place, record in cast(Reader, self.kind.reader)(file, wanted):
                yield f"{file}, {place}", record


def find(path: Path, split: str, purpose: Purpose) -> Found:
    """The files of a split: the path itself, or files in a folder, chosen by their names.

    A single file is the training split. So is the only file of a folder if its name has no split,
    and so are several such files if they are texts. A file that is named exactly like the split
    ("dev.tsv") is preferred to others whose names contain it ("dev_ids.tsv").

    Args:
        path: a file; a folder of files; or a folder with a folder for each split.
        split: "train", "validation", "test", or a file's own name.
        purpose: the function that reads the files, "corpus" or "task".

    Raises:
        CourseError: there is no file for the split, or several files fit.
    """
    path = path.expanduser()
    if not path.is_dir():
        return _single(path, split, purpose)
    if any((path / name).is_file() for name in SAVED):
        return Found(PARQUET, [path])
    files, kind = _data(path, purpose)
    if not files:
        return _of_folders(path, split, purpose)
    if kind == PARQUET:
        return Found(PARQUET, [path])  # `datasets` tells the splits
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
    return Found(kind, chosen)


def split_of(name: str) -> str | None:
    """The split in a file's or folder's name: "train", "validation", "test" or None."""
    for split, words in SPLITS.items():
        if re.search(rf"(?i)(?<![a-z])({words})(set)?(?![a-z])", name):
            return split
    return None


def _chosen(files: list[Path], split: str) -> list[Path]:
    """The files of a split: by their own name, or by the split that their name says."""
    words = SPLITS.get(split, re.escape(split))
    named = [
        file for file in files if file.name == split or re.fullmatch(f"(?i){words}", _stem(file))
    ]
    if len(named) == 1:
        return named
    chosen = [file for file in files if split_of(file.name) == split]
    # "dev_matched" is multinli_1.0_dev_matched.jsonl
    return chosen or named or [file for file in files if re.search(rf"[_.-]{words}$", _stem(file))]


def _stem(file: Path) -> str:
    return unpacked(file).stem


def _own_names(files: list[Path], split: str) -> list[str]:
    """What tells the files of a split apart: dev_matched, dev_mismatched; or their whole names."""
    words = rf"(?i)(?<![a-z])({SPLITS.get(split, split)})(?![a-z]).*"
    matches = [re.search(words, _stem(file)) for file in files]
    ends = [match[0] for match in matches if match]
    return ends if len(set(ends)) == len(files) else [_stem(file) for file in files]


def _are_parts(files: list[Path]) -> bool:
    """Whether files differ only in a number: train-00000-of-00002, train-00001-of-00002."""
    return len({re.sub(r"\d+", "0", file.name) for file in files}) == 1


def _single(path: Path, split: str, purpose: Purpose) -> Found:
    """One file, or the files of several languages that begin with this path."""
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
        return Found(CONLL if readers.is_conll(path) else TABLE, [path])
    if ending in ENDING:
        return Found(ENDING[ending], [path])
    if purpose == "task" and len(parallel) > 1:
        return Found(PARALLEL, [bare])
    if purpose == "corpus" and (parallel or not ending):
        return Found(TEXT, [path])
    with readers.PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
        readers.refuse_no_text(path, file)
    raise CourseError(
        f"{path}: its name does not tell its format; give it one of the endings {' '.join(ENDING)}."
    )


def _data(path: Path, purpose: Purpose) -> tuple[list[Path], FileKind]:
    """The folder's files of its one kind."""
    files = [
        file
        for file in sorted(path.iterdir())
        if file.is_file() and not NOT_DATA.fullmatch(file.name)
    ]
    by_kind: dict[str, list[Path]] = defaultdict(list)
    stems: Counter[Path] = Counter()  # of files that a language's code ends
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
    if not all(TWICE.fullmatch(file.stem) for file in texts) or "json" not in by_kind:
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
    """Text files: for a task they are tables or tags, or notes beside files of another kind."""
    if purpose == "corpus":
        by_kind["text"] = texts
        return
    tables = [file for file in texts if readers.is_table(file)]
    tags = [file for file in texts if readers.is_conll(file)]
    if tags:
        by_kind["conll"] += tags
    elif tables and "table" not in by_kind:
        by_kind["table"] = tables
    elif not by_kind:
        by_kind["text"] = texts


def _of_folders(path: Path, split: str, purpose: Purpose) -> Found:
    """The files of the split's own folder in this folder."""
    inside = [
        folder
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    for folder in inside:
        if folder.name == split or split_of(folder.name) == split:
            files, kind = _data(folder, purpose)
            if files:
                return Found(kind, files)
    if any(any(folder.glob("*.parquet")) for folder in inside):
        return Found(PARQUET, [path])
    folders = f"; it has the folders {_names(inside)}, one of which may be meant" if inside else ""
    raise CourseError(f"{path} has no file of a known format for the {split} split{folders}.")


def _names(paths: list[Path]) -> str:
    """The names for a message, eight of them at most."""
    names = [path.name for path in paths[:8]]
    if len(paths) > 8:
        names.append("...")
    return ", ".join(names)
