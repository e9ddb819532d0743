"""A search engine: words (BM25), vectors (exact, by products), and both together.

BM25: Robertson and Zaragoza 2009, equation 3.15, with Lucene's idf, which is never negative.
Reciprocal rank fusion: Cormack et al. 2009. Letters: n texts, E width of a vector.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from course_lib.data.embedders import Embedder, encode, has_unit_vectors
from course_lib.data.embedders import words as words
from course_lib.errors import CourseError

How = Literal["bm25", "dense", "rrf"]
Floats = NDArray[np.floating[Any]]
K1 = 1.2  # how slowly a repeated word saturates
B = 0.75  # how much long texts are marked down, 0 to 1
RRF = 60  # Cormack et al. 2009, section 2: ranks below the first few tens hardly differ


class Hit(NamedTuple):
    """One text found. number: its place in the index."""

    number: int
    score: float
    text: str


class BM25:
    """An inverted index: of each word, the texts that hold it.

    A text's score is the sum over the query's words (a word asked twice counts twice) of

        idf(w) tf / (tf + k1 (1 - b + b length / mean length))
        idf(w) = ln(1 + (n - df + 0.5) / (df + 0.5))
    """

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
        # word -> the texts with it, and what it adds to the score of each
        self.postings: dict[str, tuple[NDArray[np.int64], Floats]] = {}
        for word, entries in postings.items():
            numbers, tf = np.array(entries).T
            df = len(entries)
            idf = np.log1p((len(texts) - df + 0.5) / (df + 0.5))
            added = idf * tf / (tf + norm[numbers])
            self.postings[word] = numbers, added.astype(np.float32)

    def scores(self, query: str) -> Floats:
        """Of every text, [n]; 0 where no word of the query stands."""
        out = np.zeros(self.size, np.float32)
        for word in words(query):
            if word in self.postings:
                numbers, added = self.postings[word]
                out[numbers] += added
        return out


class Index:
    """Texts with their inverted index and, if there is an embedder, their vectors.

    Args:
        texts: at least one.
        embedder: makes the vectors, of length 1.
        batch: how many texts are embedded at once.

    Raises:
        CourseError: if there is no text.
    """

    def __init__(
        self, texts: Sequence[str], *, embedder: Embedder | None = None, batch: int = 32
    ) -> None:
        if isinstance(texts, str) or not texts:
            raise CourseError("An index needs a list of texts, at least one.")
        self.texts = list(texts)
        self.bm25 = BM25(texts)
        self.embedder = embedder
        self.vectors = None
        if embedder is not None:
            is_unit = has_unit_vectors(embedder)
            self.vectors = encode(embedder, texts, batch=batch, normalize=is_unit)  # n E

    def search(self, query: str, k: int = 10, *, how: How = "bm25") -> list[Hit]:
        """The k best texts, best first.

        Args:
            query: the words, or the text whose vector is compared.
            k: how many at most.
            how: "bm25": words; a text without any of them is not a hit. "dense": cosine of the
                vectors. "rrf": the sum of 1 / (60 + rank) over both.

        Raises:
            CourseError: if there is no such search, or the index has no vectors for it.
        """
        return self.search_all([query], k, how=how)[0]

    def search_all(
        self, queries: Sequence[str], k: int = 10, *, how: How = "bm25"
    ) -> list[list[Hit]]:
        """`search` for many queries; they are embedded together."""
        if how not in get_args(How):
            raise CourseError(
                f"There is no search {how!r}; choose one of {', '.join(get_args(How))}."
            )
        if how == "bm25":
            scores = self._by_words(queries)
        elif how == "dense":
            scores = self._by_vectors(queries)
        else:
            scores = []
            pairs = zip(self._by_words(queries), self._by_vectors(queries), strict=True)
            for by_words, by_vectors in pairs:
                both = _reciprocal_ranks(by_words) + _reciprocal_ranks(by_vectors)
                scores.append(both.astype(np.float32))
        return [self._hits(of_query, k) for of_query in scores]

    def _by_words(self, queries: Sequence[str]) -> list[Floats]:
        """Of each query the scores of all texts, [n]; -inf for a text without any of its words."""
        scores = [self.bm25.scores(query) for query in queries]
        return [np.where(of_query > 0, of_query, -np.inf) for of_query in scores]

    def _by_vectors(self, queries: Sequence[str]) -> list[Floats]:
        """Of each query the cosines with all texts, [n]; the products where an embedder asks so."""
        if self.vectors is None or self.embedder is None:
            raise CourseError(
                "This index has no vectors; search by bm25, or build it with an embedder."
            )
        vectors = encode(self.embedder, queries, normalize=has_unit_vectors(self.embedder))
        return [(self.vectors @ vector).numpy() for vector in vectors]

    def _hits(self, scores: Floats, k: int) -> list[Hit]:
        return [Hit(int(i), float(scores[i]), self.texts[i]) for i in best(scores, k)]


def best(scores: Floats, k: int) -> NDArray[np.int64]:
    """The numbers of the k largest scores above -inf, best first, equal ones in order."""
    candidates = np.flatnonzero(scores > -np.inf)
    if len(candidates) > k:
        # Keep all that equal the k-th largest: among these the lower number comes first.
        least = np.partition(scores[candidates], -k)[-k]
        candidates = candidates[scores[candidates] >= least]
    return candidates[np.lexsort((candidates, -scores[candidates]))][:k]


def _reciprocal_ranks(scores: Floats) -> Floats:
    """1 / (60 + rank) of each text; 0 where it is no hit."""
    out = np.zeros(len(scores))
    order = best(scores, len(scores))
    out[order] = 1 / (RRF + np.arange(1, len(order) + 1))
    return out
