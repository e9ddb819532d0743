"""Store a corpus as token ids, so that it is tokenized only once.

    store = encode_corpus(texts, tokenizer, "build/tokens")
    store[1]                [7, 1], the token ids of document 1

The ids are in memory, or in files that may be larger than memory (memory-mapped: the operating
system reads what is used). A stored corpus is a folder with three files:

    tokens.bin     the token ids: little-endian uint16, or uint32 for vocabularies above 65,536
    starts.bin     the position where each document starts, and the end of the last one: int64
    header.json    the number of tokens and documents, the type, the tokenizer's hash and a note

It is written document by document, so the corpus need not fit into memory.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, finish_save, read_json, write_json
from course_lib.objectives.collate import Ints as Ints

CHUNK = 1000  # documents that the tokenizer encodes at a time, in parallel
# Version of these files, and of the code that reads texts and cuts them into documents. Raise it
# when either changes: then the course refuses older files, and writes them again.
FORMAT = 1


class TokenStore:
    """Documents of token ids, also readable as one stream. `len` is the number of documents.

    >>> store = TokenStore([np.array([5, 6, 1]), np.array([7, 1])])
    >>> store[1].tolist(), store.stream(1, 4).tolist()
    ([7, 1], [6, 1, 7])
    """

    def __init__(self, documents: Sequence[Ints | Sequence[int]]) -> None:
        lengths = [len(d) for d in documents]
        self.starts: Ints = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # The token ids of all documents, one document after another.
        self.flat: Ints = np.concatenate(documents) if documents else np.zeros(0, np.int64)
        self.note: dict[str, Any] = {}
        # A hash of the header. It tells whether the files are still those of an earlier run.
        self.fingerprint = ""

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether a folder holds token files."""
        finish_save(path)
        return (path / "header.json").is_file()

    @staticmethod
    def open(path: str | Path, tokenizer: Tokenizer | None = None) -> "TokenStore":
        """Open a folder that `encode_corpus` wrote. The token ids are read when they are used.

        Args:
            path: the folder.
            tokenizer: the tokenizer that must have made the token ids; None does not check it.

        Raises:
            CourseError: the files are missing, damaged, or those of another tokenizer.
        """
        path = Path(path)
        if not TokenStore.exists(path):
            raise CourseError(
                f"{path} holds no complete token files (no header.json); write them again."
            )
        header = read_json(path / "header.json")
        if not _is_header(header):
            raise CourseError(f"{path}/header.json is damaged; write the token files again.")
        if header.get("format", FORMAT) != FORMAT:
            raise CourseError(
                f"The tokens in {path} were written by another version of the course; write them"
                " again."
            )
        expected = None if tokenizer is None else fingerprint(tokenizer)
        if expected is not None and header.get("tokenizer", expected) != expected:
            raise CourseError(
                f"The tokens in {path} are those of another tokenizer; write them again with this"
                " one."
            )
        store = TokenStore([])
        store.note = header.get("note") or {}
        store.fingerprint = _short_hash(json.dumps(header, sort_keys=True))
        store.flat = _map(path / "tokens.bin", header["dtype"], header["tokens"])
        store.starts = _map(path / "starts.bin", "int64", header["documents"] + 1)
        return store

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> Ints:
        """The ids of one document."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.stream(int(self.starts[index]), int(self.starts[index + 1]))

    @property
    def tokens(self) -> int:
        """Number of tokens in all documents together."""
        return int(self.starts[-1])

    def stream(self, start: int, stop: int) -> Ints:
        """Token ids from position `start` up to `stop`, across documents (int64, a copy)."""
        return self.flat[start:stop].astype(np.int64)


def fingerprint(tokenizer: Tokenizer) -> str:
    """A short hash that tells two tokenizers apart."""
    return _short_hash(tokenizer.backend.to_str())


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def encode_corpus(
    dataset: Iterable[Mapping[str, Any] | str],
    tokenizer: Tokenizer,
    path: str | Path | None = None,
    *,
    note: Mapping[str, Any] | None = None,
) -> TokenStore:
    """Tokenize a corpus once, in memory or into a folder.

    Each document is stored with the tokenizer's end token at its end, if the tokenizer has one, as
    byte-level BPE does. No other special tokens are stored.

    Args:
        dataset: rows with a column `text`, or plain strings.
        tokenizer: encodes the texts.
        path: the folder to write; None keeps the token ids in memory.
        note: what the corpus is; it can be read later as `TokenStore.note`.

    Raises:
        CourseError: no document has any text.
    """
    dtype = "uint16" if tokenizer.vocab.size <= 2**16 else "uint32"
    documents = _encoded(dataset, tokenizer, dtype)
    if path is None:
        store = TokenStore(list(documents))
    else:
        header = {
            "format": FORMAT,
            "dtype": dtype,
            "vocab": tokenizer.vocab.size,
            "tokenizer": fingerprint(tokenizer),
            "note": dict(note or {}),
        }
        _write(Path(path), documents, header)
        store = TokenStore.open(path)
    if store.tokens == 0:
        raise CourseError("The corpus is empty: no document has any text.")
    return store


def _encoded(
    dataset: Iterable[Mapping[str, Any] | str], tokenizer: Tokenizer, dtype: str
) -> Iterator[Ints]:
    """Yield the token ids of each document. CHUNK documents are encoded at a time, in parallel."""
    end = [] if tokenizer.vocab.eos is None else [tokenizer.vocab.eos]
    little_endian = np.dtype(dtype).newbyteorder("<")
    texts = (row if isinstance(row, str) else row["text"] for row in dataset)
    chunk = list(islice(texts, CHUNK))
    while chunk:
        for ids in tokenizer.ids(chunk, special=False):
            yield np.array(ids + end, dtype=little_endian)
        chunk = list(islice(texts, CHUNK))


def _write(path: Path, documents: Iterator[Ints], header: dict[str, Any]) -> None:
    """Write the three files; if writing fails, the folder stays as it was."""
    end = count = 0
    with atomic_folder(path) as new:
        with (new / "tokens.bin").open("wb") as tokens, (new / "starts.bin").open("wb") as starts:
            starts.write(bytes(8))  # the first document starts at 0
            for ids in documents:
                tokens.write(ids.tobytes())
                end += len(ids)
                count += 1
                starts.write(end.to_bytes(8, "little"))
        write_json(new / "header.json", {**header, "tokens": end, "documents": count})


def _is_header(header: Any) -> bool:
    return (
        isinstance(header, dict)
        and header.get("dtype") in ("uint16", "uint32")
        and isinstance(header.get("tokens"), int)
        and isinstance(header.get("documents"), int)
    )


def _map(file: Path, dtype: str, count: int) -> Ints:
    """A file of numbers as a memory-mapped array."""
    number_type = np.dtype(dtype).newbyteorder("<")
    if not file.is_file() or file.stat().st_size != count * number_type.itemsize:
        raise CourseError(
            f"{file} is missing or not of the size its header says; write the token files again."
        )
    if count == 0:
        return np.zeros(0, number_type)  # an empty file cannot be memory-mapped
    return np.memmap(file, dtype=number_type, mode="r", shape=(count,))


def cut_documents(starts: Ints, length: int, overlap: int = 0) -> Ints:
    """Cut documents that are longer than `length` into several rows. No token is lost.

    Two documents, of 5 and of 2 tokens, that stand in the stream one after another:

    >>> cut_documents(np.array([0, 5, 7]), length=3, overlap=1).tolist()
    [[0, 0, 3], [0, 2, 5], [1, 5, 7]]

    Args:
        starts: the stream position where each document starts, and the end of the last one.
        length: maximum number of tokens in a row.
        overlap: number of tokens at the end of a row that its document's next row repeats.

    Returns:
        Int[N 3], for each row: its document, and the stream positions where it starts and stops.
    """
    document_starts = starts[:-1]  # D documents
    document_stops = starts[1:]
    stride = length - overlap
    sizes = document_stops - document_starts
    # 1 + ceil((size - length) / stride) rows for a long document, 1 for a short one, 0 for an empty
    # one. `1 - (length - size) // stride` is that ceiling in whole numbers.
    rows = np.where(sizes > length, 1 - (length - sizes) // stride, np.minimum(sizes, 1))
    documents = np.repeat(np.arange(len(sizes)), rows)  # D -> N rows
    # The index of each row in its document: its own index minus that of the document's first row.
    index = np.arange(len(documents)) - np.repeat(rows.cumsum() - rows, rows)
    row_starts = document_starts[documents] + stride * index
    row_stops = np.minimum(row_starts + length, document_stops[documents])
    return np.stack([documents, row_starts, row_stops], axis=1)
