"""A search engine: words (BM25), vectors (exact, by products), and both together.

    index = Index.build(["The mill is old.", "A boat sank."], embedder=encoder)
    for hit in index.search("old mill", how="rrf"):
        print(hit.score, snippet(hit.document["text"], "old mill"))

BM25: Robertson and Zaragoza 2009, equation 3.15, with Lucene's idf, which is never negative. Reciprocal rank fusion:
Cormack et al. 2009. Letters: n documents, Q queries, W words of the vocabulary, E width of a vector.
"""

import hashlib
import re
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.models.sentence import Embedder, encode

How = Literal["bm25", "dense", "rrf", "weighted"]
Where = Mapping[str, Any] | Callable[[Mapping[str, Any]], bool]
Floats = NDArray[np.float32]
WORD = re.compile(r"\w+")
RRF = 60  # Cormack et al. 2009, section 2: ranks below the first few tens hardly differ
FORMAT = 1
ARRAYS = ("starts", "documents", "counts", "lengths")  # of BM25, as stored


class FingerprintedEmbedder(Embedder, Protocol):
    """An embedder whose vectors may be stored: the fingerprint says whether two would give the same."""

    def fingerprint(self) -> str:
        """A hash of all that decides a vector."""
        ...


class Hit(NamedTuple):
    """One document found. number: its place in the index. document: `text` and whatever fields it came with."""

    number: int
    score: float
    document: dict[str, Any]


def words(text: str) -> list[str]:
    """The words that are indexed: runs of letters and digits, in lower case."""
    return WORD.findall(text.casefold())


class BM25:
    """An inverted index: for each word, the documents that hold it and how often.

    A document's score is the sum over the query's words (a word asked twice counts twice) of
    idf(w) tf / (tf + k1 (1 - b + b length / mean length)), idf(w) = ln(1 + (n - df + 0.5) / (df + 0.5)).
    Older texts multiply by k1 + 1, which changes no order. Lengths are exact (Lucene rounds them to a byte).

    Args:
        starts, documents, counts: the postings of word w are documents[starts[w] : starts[w + 1]] and their counts.
        lengths: words of each document. vocabulary: word -> w.
        k1: how slowly a repeated word saturates. b: how much long documents are marked down, 0 to 1.
    """

    def __init__(
        self,
        starts: NDArray[np.int64],
        documents: NDArray[np.int32],
        counts: NDArray[np.int32],
        lengths: NDArray[np.int32],
        vocabulary: Mapping[str, int],
        *,
        k1: float = 1.2,
        b: float = 0.75,
    ) -> None:
        if k1 < 0 or not 0 <= b <= 1:
            raise CourseError(f"BM25 needs k1 of at least 0 and b from 0 to 1; got {k1} and {b}.")
        self.starts, self.documents, self.counts, self.lengths = starts, documents, counts, lengths
        self.vocabulary, self.k1, self.b = vocabulary, k1, b
        n, df = len(lengths), np.diff(starts)
        self.idf = np.log1p((n - df + 0.5) / (df + 0.5))
        norm = k1 * (1 - b + b * lengths / max(float(lengths.mean()), 1e-9))
        self.weights = (np.repeat(self.idf, df) * counts / (counts + norm[documents])).astype(np.float32)

    @classmethod
    def build(cls, texts: Sequence[str], *, k1: float = 1.2, b: float = 0.75) -> "BM25":
        """Index these texts."""
        from scipy.sparse import coo_array

        vocabulary: dict[str, int] = {}
        columns, lengths = array("i"), array("i")
        for text in texts:
            found = words(text)
            columns.extend(vocabulary.setdefault(word, len(vocabulary)) for word in found)
            lengths.append(len(found))
        sizes = np.frombuffer(lengths, dtype=np.int32) if lengths else np.zeros(0, np.int32)
        rows = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
        ones = np.ones(len(columns), np.int32)
        cells = (np.asarray(columns, dtype=np.int32), rows)
        table = coo_array((ones, cells), shape=(len(vocabulary), len(texts))).tocsr()  # adds up repeated cells
        table.sort_indices()
        starts = table.indptr.astype(np.int64)
        return cls(starts, table.indices.astype(np.int32), table.data, sizes, vocabulary, k1=k1, b=b)

    def scores(self, query: str) -> Floats:
        """The score of every document, [n]; 0 where no word of the query stands."""
        out = np.zeros(len(self.lengths), np.float32)
        for word in words(query):
            if (w := self.vocabulary.get(word)) is not None:
                postings = slice(self.starts[w], self.starts[w + 1])
                out[self.documents[postings]] += self.weights[postings]
        return out


def nearest(
    queries: Float[Tensor, "Q E"], vectors: Float[Tensor, "n E"], k: int = 10, *, chunk: int = 16_384
) -> tuple[Float[Tensor, "Q k"], Tensor]:
    """Exact dense search: the k largest products of each query, and their documents' numbers, Int[Q k].

    `chunk` documents are multiplied at a time, so memory does not grow with n. Normalise for cosines.
    """
    if queries.shape[-1] != vectors.shape[-1]:
        raise CourseError(f"Queries have {queries.shape[-1]} values, the stored vectors {vectors.shape[-1]}.")
    if k < 1 or chunk < 1:
        raise CourseError(f"k is {k} and chunk is {chunk}; both must be at least 1.")
    best = torch.empty(len(queries), 0)
    numbers = torch.empty(len(queries), 0, dtype=torch.int64)
    for start in range(0, len(vectors), chunk):
        scores = queries @ vectors[start : start + chunk].T
        here = torch.arange(start, start + scores.shape[1]).expand_as(scores)
        best, numbers = torch.cat([best, scores], 1), torch.cat([numbers, here], 1)
        best, kept = best.topk(min(k, best.shape[1]), dim=1)
        numbers = numbers.gather(1, kept)
    return best, numbers


class Index:
    """Documents with their inverted index and, if there is an embedder, their vectors; made by `build` or `load`."""

    def __init__(
        self,
        documents: Sequence[Mapping[str, Any]],
        bm25: BM25,
        vectors: Float[Tensor, "n E"] | None = None,
        embedder: FingerprintedEmbedder | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.documents = [dict(document) for document in documents]
        self.bm25, self.vectors, self.embedder, self.fingerprint = bm25, vectors, embedder, fingerprint

    @classmethod
    def build(
        cls,
        documents: Sequence[str | Mapping[str, Any]],
        *,
        embedder: FingerprintedEmbedder | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        batch: int = 32,
        progress: bool = False,
    ) -> "Index":
        """Index texts, or mappings with a `text` and other fields to filter by.

        Raises:
            CourseError: no documents, or one without a text.
        """
        rows = [{"text": d} if isinstance(d, str) else dict(d) for d in documents]
        if isinstance(documents, str) or not rows:
            raise CourseError("An index needs a list of documents, at least one.")
        for number, row in enumerate(rows):
            if not isinstance(row.get("text"), str):
                raise CourseError(f"Document {number} has no text; give a string, or a mapping with `text`.")
        texts = [row["text"] for row in rows]
        bm25 = BM25.build(texts, k1=k1, b=b)
        if embedder is None:
            return cls(rows, bm25)
        vectors = encode(embedder, texts, batch=batch, normalize=True, progress=progress)
        return cls(rows, bm25, vectors, embedder, embedder.fingerprint())

    def search(
        self, query: str, k: int = 10, *, how: How = "bm25", where: Where | None = None, weight: float = 0.5
    ) -> list[Hit]:
        """The k best documents, best first; equal scores in the documents' order.

        Args:
            how: "bm25": words; a document without any is not found. "dense": cosine of the vectors. "rrf": the sum of
                1 / (60 + rank) over both. "weighted": weight * dense + (1 - weight) * bm25, each stretched to 0..1
                over the documents that may be found.
            where: field -> value, or a collection of allowed values; or a function of the document. Only documents
                that fit are ranked.

        Raises:
            CourseError: no such way, k below 1, or no vectors or embedder where they are needed.
        """
        return self.search_all([query], k, how=how, where=where, weight=weight)[0]

    def search_all(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        how: How = "bm25",
        where: Where | None = None,
        weight: float = 0.5,
    ) -> list[list[Hit]]:
        """`search` for many queries; they are encoded together."""
        if how not in get_args(How):
            raise CourseError(f"There is no search {how!r}; choose one of {', '.join(get_args(How))}.")
        if k < 1 or not 0 <= weight <= 1:
            raise CourseError(f"k is {k} and weight is {weight}; k is at least 1, weight from 0 to 1.")
        if not queries:
            return []
        if where is None:
            allowed = np.ones(len(self.documents), dtype=bool)
        else:
            allowed = np.array([_fits(document, where) for document in self.documents])
        asked = None if how == "bm25" else self._encoded(queries)
        found = []
        for number, query in enumerate(queries):
            by_words = None if how == "dense" else np.where(allowed, self.bm25.scores(query), 0)
            by_vectors = None if asked is None else np.where(allowed, self._cosines(asked[number]), -np.inf)
            scores = _combined(by_words, by_vectors, how, weight, allowed)
            found.append([Hit(int(i), float(scores[i]), self.documents[i]) for i in best(scores, k)])
        return found

    def save(self, folder: str | Path) -> None:
        """Write the index. A crash leaves the earlier one whole: the arrays go to a file named after their content,
        and index.json, written last, names it."""
        from safetensors.torch import save

        bm25, folder = self.bm25, Path(folder)
        tensors = {name: torch.from_numpy(np.array(getattr(bm25, name))) for name in ARRAYS}
        if self.vectors is not None:
            tensors["vectors"] = self.vectors.contiguous()
        data = save(tensors)
        sha256 = hashlib.sha256(data).hexdigest()
        file = folder / f"index-{sha256[:16]}.safetensors"
        with atomic_write(file, "wb") as handle:
            handle.write(data)
        write_json(
            folder / "index.json",
            {
                "format": FORMAT,
                "arrays": {"file": file.name, "sha256": sha256},
                "model": self.fingerprint,
                "k1": bm25.k1,
                "b": bm25.b,
                "vocabulary": sorted(bm25.vocabulary, key=bm25.vocabulary.__getitem__),
                "documents": self.documents,
            },
        )
        for old in folder.glob("index-*.safetensors"):
            if old != file:
                old.unlink()

    @classmethod
    def load(cls, folder: str | Path, *, embedder: FingerprintedEmbedder | None = None) -> "Index":
        """Open an index.

        Args:
            embedder: the one the vectors were made with; without it only words can be searched.

        Raises:
            CourseError: no index, a damaged file, or another model than the one that made the vectors.
        """
        from safetensors.torch import load

        folder = Path(folder)
        values = read_json(folder / "index.json")
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise CourseError(f"{folder}/index.json is not an index of this version; make the index again.")
        file = folder / values["arrays"]["file"]
        try:
            data = file.read_bytes()
        except OSError as error:
            raise CourseError(f"{file} cannot be read ({error.strerror}); make the index again.") from None
        if hashlib.sha256(data).hexdigest() != values["arrays"]["sha256"]:
            raise CourseError(f"{file} is damaged: its SHA-256 is another; make the index again.")
        if embedder is not None and values["model"] is not None and embedder.fingerprint() != values["model"]:
            raise CourseError(f"The vectors in {folder} are another model's; open it with that one, or index again.")
        tensors = load(data)
        vocabulary = {word: number for number, word in enumerate(values["vocabulary"])}
        arrays: Any = {name: tensors[name].numpy() for name in ARRAYS}
        bm25 = BM25(**arrays, vocabulary=vocabulary, k1=values["k1"], b=values["b"])
        return cls(values["documents"], bm25, tensors.get("vectors"), embedder, values["model"])

    def _encoded(self, queries: Sequence[str]) -> Tensor:
        if self.vectors is None or self.embedder is None:
            raise CourseError("This index has no vectors or was opened without its model; search by bm25, or give it.")
        return encode(self.embedder, queries, normalize=True)

    def _cosines(self, query: Float[Tensor, "E"]) -> Floats:
        assert self.vectors is not None
        cosines: Floats = (self.vectors @ query).numpy()
        return cosines


def best(scores: Floats, k: int) -> NDArray[np.int64]:
    """The numbers of the k largest scores above -inf, best first, equal ones in order."""
    candidates = np.flatnonzero(scores > -np.inf)
    if len(candidates) > k:
        least = np.partition(scores[candidates], -k)[-k]  # with all that equal it, so that ties are cut by number
        candidates = candidates[scores[candidates] >= least]
    return candidates[np.lexsort((candidates, -scores[candidates]))][:k]


def snippet(text: str, query: str, width: int = 160, marks: tuple[str, str] = ("**", "**")) -> str:
    """The part of a text that holds most of the query's words, these between `marks`.

    Args:
        width: characters, at most, without the marks and the "…" where something was cut off. A longer word is kept.
    """
    asked = set(words(query))
    spans = [(match.start(), match.end(), match[0].casefold()) for match in WORD.finditer(text)]
    if not spans:
        return text[:width]
    chosen, most = (0, 0), -1
    last = 0
    for first, (start, _, _) in enumerate(spans):
        last = max(last, first)
        while last + 1 < len(spans) and spans[last + 1][1] - start <= width:
            last += 1
        inside = [word for _, _, word in spans[first : last + 1] if word in asked]
        if (value := 1000 * len(set(inside)) + len(inside)) > most:  # different words first, then their number
            chosen, most = (first, last), value
        if last + 1 == len(spans):
            break
    first, last = chosen
    start = 0 if first == 0 and spans[last][1] <= width else spans[first][0]
    end = len(text) if last + 1 == len(spans) and len(text) - start <= width else spans[last][1]
    out, at = ["…" if start else ""], start
    for left, right, word in spans[first : last + 1]:
        if word in asked:
            out += [text[at:left], marks[0], text[left:right], marks[1]]
            at = right
    return "".join([*out, text[at:end], "…" if end < len(text) else ""])


def _fits(document: Mapping[str, Any], where: Where) -> bool:
    if callable(where):
        return bool(where(document))

    def fits(value: Any, wanted: Any) -> bool:
        several = isinstance(wanted, Collection) and not isinstance(wanted, str | bytes | Mapping)
        return value in wanted if several else bool(value == wanted)

    return all(name in document and fits(document[name], wanted) for name, wanted in where.items())


def _combined(
    by_words: Floats | None, by_vectors: Floats | None, how: How, weight: float, allowed: NDArray[np.bool_]
) -> Floats:
    """One score a document, [n]; -inf where it is not found."""
    if by_words is None:
        assert by_vectors is not None
        return by_vectors
    matching = np.where(by_words > 0, by_words, -np.inf).astype(np.float32)
    if by_vectors is None:
        return matching
    if how == "rrf":
        fused = _reciprocal_ranks(matching) + _reciprocal_ranks(by_vectors)
    else:
        fused = weight * _stretched(by_vectors, allowed) + (1 - weight) * _stretched(by_words, allowed)
    return np.where(allowed, fused, -np.inf).astype(np.float32)


def _reciprocal_ranks(scores: Floats) -> NDArray[np.float64]:
    out = np.zeros(len(scores))
    order = best(scores, len(scores))
    out[order] = 1 / (RRF + np.arange(1, len(order) + 1))
    return out


def _stretched(scores: Floats, allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """To 0..1 over the allowed documents; all 0 where they do not differ."""
    out = np.zeros(len(scores))
    if allowed.any():
        low, high = float(scores[allowed].min()), float(scores[allowed].max())
        if high > low:
            out[allowed] = (scores[allowed] - low) / (high - low)
    return out
