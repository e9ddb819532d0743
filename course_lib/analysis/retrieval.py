"""A search engine: words (BM25), vectors (exact, by products), and both together.

BM25: Robertson and Zaragoza 2009, equation 3.15, with Lucene's idf, which is never negative.
Reciprocal rank fusion: Cormack et al. 2009. Letters: n texts, E width of a vector."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from course_lib.data.embedders import Embedder, encode
from course_lib.data.embedders import words as words
from course_lib.errors import CourseError

How = Literal["bm25", "dense", "rrf"]
Floats = NDArray[np.floating[Any]]
# how slowly a repeated word saturates; how much long texts are marked down, 0 to 1
K1, B = 1.2, 0.75
RRF = 60  # Cormack et al. 2009, section 2: ranks below the first few tens hardly differ


class Hit(NamedTuple):
    """One text found. number: its place in the index."""

    number: int
    score: float
    text: str


class BM25:
    """An inverted index. A text's score is the sum over the query's words (a word asked twice
    counts twice) of idf(w) tf / (tf + k1 (1 - b + b length / mean length)), idf(w) = ln(1 + (n - df
    + 0.5) / (df + 0.5))."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        lengths = np.zeros(len(texts))
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, text in enumerate(texts):
            counted = Counter(words(text))
            lengths[number] = counted.total()
            for word, count in counted.items():
                postings.setdefault(word, []).append((number, count))
        norm = K1 * (1 - B + B * lengths / max(float(lengths.mean()), 1e-9))
        # word -> texts, what it adds to each
        self.postings: dict[str, tuple[NDArray[np.int64], Floats]] = {}
        for word, found in postings.items():
            where, tf = np.array(found).T
            idf = np.log1p((len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            self.postings[word] = where, (idf * tf / (tf + norm[where])).astype(np.float32)

    def scores(self, query: str) -> Floats:
        """Of every text, [n]; 0 where no word of the query stands."""
        out = np.zeros(self.size, np.float32)
        for word in words(query):
            if word in self.postings:
                where, added = self.postings[word]
                out[where] += added
        return out


class Index:
    """Texts with their inverted index and, if there is an embedder, their vectors of length 1, made
    `batch` at once.
    """

    def __init__(
        self, texts: Sequence[str], *, embedder: Embedder | None = None, batch: int = 32
    ) -> None:
        if isinstance(texts, str) or not texts:
            raise CourseError("An index needs a list of texts, at least one.")
        self.texts, self.bm25, self.embedder = list(texts), BM25(texts), embedder
        # n E
        self.vectors = (
            None if embedder is None else encode(embedder, texts, batch=batch, normalize=True)
        )

    def search(self, query: str, k: int = 10, *, how: How = "bm25") -> list[Hit]:
        """The k best texts, best first. how: "bm25": words; a text without any is not found.
        "dense": cosine of the vectors. "rrf": the sum of 1 / (60 + rank) over both."""
        return self.search_all([query], k, how=how)[0]

    def search_all(
        self, queries: Sequence[str], k: int = 10, *, how: How = "bm25"
    ) -> list[list[Hit]]:
        """`search` for many queries; they are embedded together."""
        if how not in get_args(How):
            raise CourseError(
                f"There is no search {how!r}; choose one of {', '.join(get_args(How))}."
            )
        scores: list[Floats] = []
        if how != "dense":
            by_words = [self.bm25.scores(query) for query in queries]
            scores = [np.where(found > 0, found, -np.inf) for found in by_words]
        if how != "bm25":
            if self.vectors is None or self.embedder is None:
                raise CourseError(
                    "This index has no vectors; search by bm25, or build it with an embedder."
                )
            cosines = [
                (self.vectors @ query).numpy()
                for query in encode(self.embedder, queries, normalize=True)
            ]
            if how == "rrf":
                both = zip(scores, cosines, strict=True)
                cosines = [
                    (_reciprocal_ranks(a) + _reciprocal_ranks(b)).astype(np.float32)
                    for a, b in both
                ]
            scores = cosines
        return [
            [Hit(int(i), float(found[i]), self.texts[i]) for i in best(found, k)]
            for found in scores
        ]


def best(scores: Floats, k: int) -> NDArray[np.int64]:
    """The numbers of the k largest scores above -inf, best first, equal ones in order."""
    candidates = np.flatnonzero(scores > -np.inf)
    if len(candidates) > k:
        # with all that equal it, so that ties are cut by number
        least = np.partition(scores[candidates], -k)[-k]
        candidates = candidates[scores[candidates] >= least]
    return candidates[np.lexsort((candidates, -scores[candidates]))][:k]


def _reciprocal_ranks(scores: Floats) -> Floats:
    out = np.zeros(len(scores))
    order = best(scores, len(scores))
    out[order] = 1 / (RRF + np.arange(1, len(order) + 1))
    return out
