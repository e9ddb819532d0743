"""A corpus as token numbers: in memory, or in memory-mapped files that may be larger than memory.

A stored corpus is a folder: `header.json`, the index, and for each shard `tokens-00000.bin` (little-endian uint16, or
uint32 for vocabularies above 65,536) with `starts-00000.bin` (int64: where each document begins, and the end
of the last). Text streams in and shards stream out; a thousand documents are in memory at a time. The header is written
last, so a folder without one is an interrupted run and is refused.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.tokenizers import Tokenizer

Ints = npt.NDArray[np.integer[Any]]

CHUNK = 1000  # documents tokenized at a time
SHARD_TOKENS = 2**28  # 512 MB of uint16


class TokenStore:
    """Documents of token ids, also readable as one stream. `len` is the number of documents.

    >>> store = TokenStore([np.array([5, 6, 1]), np.array([7, 1])])
    >>> store[1].tolist(), store.stream(1, 4).tolist()
    ([7, 1], [6, 1, 7])
    """

    def __init__(self, documents: Sequence[Ints | Sequence[int]]) -> None:
        lengths = [len(d) for d in documents]
        self.starts: Ints = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.concatenate([np.asarray(d) for d in documents]) if documents else np.zeros(0, np.int64)
        self._shards: list[Ints] = [flat]
        self._shard_starts: Ints = np.array([0, len(flat)])
        self._vocab: int | None = None
        self.note: dict[str, Any] = {}

    @staticmethod
    def open(path: str | Path, tokenizer: Tokenizer | None = None) -> "TokenStore":
        """Open a folder written by `encode_corpus`; nothing but where documents begin is read until it is used.

        Args:
            tokenizer: the one that the tokens should be of.

        Raises:
            CourseError: no header, a file shorter than the header says, tokens of another tokenizer.
        """
        path = Path(path)
        if not (path / "header.json").is_file():
            raise CourseError(f"{path} holds no complete token files (no header.json); write them again.")
        header = read_json(path / "header.json")
        if tokenizer is not None and header.get("tokenizer", fingerprint(tokenizer)) != fingerprint(tokenizer):
            raise CourseError(f"The tokens in {path} are those of another tokenizer; write them again with this one.")
        store = TokenStore([])
        store._vocab, store.note = header["vocab"], header.get("note", {})
        store._shards = [_map(path / s["file"], header["dtype"], s["tokens"]) for s in header["shards"]]
        store._shard_starts = np.cumsum([0, *(s["tokens"] for s in header["shards"])])
        starts = [_map(path / s["starts"], "int64", s["documents"] + 1) for s in header["shards"]]
        shifted = [s[:-1] + base for s, base in zip(starts, store._shard_starts[:-1], strict=True)]
        store.starts = np.concatenate([*shifted, store._shard_starts[-1:]])
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
        """How many tokens there are in all."""
        return int(self.starts[-1])

    def stream(self, start: int, stop: int) -> Ints:
        """Tokens `start` to `stop` of all documents end to end (int64, a copy)."""
        first = int(np.searchsorted(self._shard_starts, start, side="right")) - 1
        parts = []
        for shard, base in zip(self._shards[first:], self._shard_starts[first:], strict=False):
            if base >= stop:
                break
            parts.append(shard[max(start - base, 0) : stop - base])
        ids = np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
        if self._vocab is not None and ids.size and ids.max() >= self._vocab:
            raise CourseError(
                f"Between tokens {start} and {stop} stands id {ids.max()}, but the vocabulary has {self._vocab} "
                "entries: the token files are damaged; write them again."
            )
        return ids


def fingerprint(tokenizer: Tokenizer) -> str:
    """Tells two tokenizers apart."""
    return hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest()[:16]


def encode_corpus(
    dataset: Iterable[Mapping[str, Any] | str],
    tokenizer: Tokenizer,
    path: str | Path | None = None,
    *,
    column: str = "text",
    shard_tokens: int = SHARD_TOKENS,
    note: Mapping[str, Any] | None = None,
) -> TokenStore:
    """Tokenize a corpus once, so that training only reads numbers.

    Each document ends with the tokenizer's end token if it has one (byte-level BPE); no other specials are
    stored.

    Args:
        dataset: rows with a text column (a `datasets.Dataset`, streaming or not), or plain strings.
        path: folder to write; None keeps the tokens in memory.
        shard_tokens: a new pair of files is begun after so many tokens.
        note: what of, to be found again in `TokenStore.note`.

    Raises:
        CourseError: no such column, an empty corpus, or the folder cannot be written.
    """
    end = [] if tokenizer.vocab.eos is None else [tokenizer.vocab.eos]
    dtype = np.dtype("<u2" if tokenizer.vocab.size <= 2**16 else "<u4")
    documents = (
        np.array(ids + end, dtype=dtype)
        for chunk in _chunks(_texts(dataset, column))
        for ids in tokenizer.ids(chunk, special=False)
    )
    if path is None:
        store = TokenStore(list(documents))
    else:
        about = {"vocab": tokenizer.vocab.size, "tokenizer": fingerprint(tokenizer), "note": dict(note or {})}
        _write(Path(path), documents, dtype, about, shard_tokens)
        store = TokenStore.open(path)
    if store.tokens == 0:
        raise CourseError("The corpus is empty: no document has any text.")
    return store


def _write(
    path: Path, documents: Iterator[Ints], dtype: np.dtype[Any], about: dict[str, Any], shard_tokens: int
) -> None:
    (path / "header.json").unlink(missing_ok=True)
    shards: list[dict[str, Any]] = []
    pending = next(documents, None)
    while pending is not None:
        files = {"file": f"tokens-{len(shards):05d}.bin", "starts": f"starts-{len(shards):05d}.bin"}
        starts = [0]
        with atomic_write(path / files["file"], "wb") as tokens:
            while pending is not None and (starts[-1] == 0 or starts[-1] + len(pending) <= shard_tokens):
                tokens.write(pending.tobytes())
                starts.append(starts[-1] + len(pending))
                pending = next(documents, None)
        with atomic_write(path / files["starts"], "wb") as index:
            index.write(np.array(starts, dtype="<i8").tobytes())
        shards.append({**files, "tokens": starts[-1], "documents": len(starts) - 1})
    name = {2: "uint16", 4: "uint32"}[dtype.itemsize]
    write_json(path / "header.json", {"dtype": name, **about, "shards": shards})


def _map(file: Path, dtype: str, count: int) -> Ints:
    kind = np.dtype(dtype).newbyteorder("<")
    if not file.is_file() or file.stat().st_size != count * kind.itemsize:
        raise CourseError(f"{file} is missing or not of the size its header says; write the token files again.")
    return np.memmap(file, dtype=kind, mode="r", shape=(count,)) if count else np.zeros(0, kind)


def _texts(dataset: Iterable[Mapping[str, Any] | str], column: str) -> Iterator[str]:
    for row in dataset:
        if isinstance(row, str):
            yield row
        elif isinstance(row.get(column), str):
            yield row[column]
        else:
            raise CourseError(f"The corpus has no text column {column!r}; it has {', '.join(row)}.")


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def pieces(starts: Ints, length: int, overlap: int = 0) -> Ints:
    """Cut documents longer than `length`, nothing lost: Int[N 3], rows (document, first, past-the-last) in stream
    positions.

    Args:
        starts: where each document begins, and the end of the last one.
        overlap: so many tokens of a piece are seen again at the start of the next.
    """
    firsts, stops, stride = starts[:-1], starts[1:], length - overlap
    sizes = stops - firsts
    counts = np.where(sizes > length, 1 - (length - sizes) // stride, np.minimum(sizes, 1))
    documents = np.repeat(np.arange(len(sizes)), counts)
    numbers = np.arange(len(documents)) - np.repeat(counts.cumsum() - counts, counts)  # of a piece in its document
    begin = firsts[documents] + stride * numbers
    return np.stack([documents, begin, np.minimum(begin + length, stops[documents])], axis=1)
