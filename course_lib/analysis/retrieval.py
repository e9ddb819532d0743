"""A search engine: it finds the texts that fit a query best.

    index = Index(["The Nile is a river.", "Paris is a city."], embedder=embedder)
    index.search("a long river", k=1)[0].text    "The Nile is a river."

There are three ways to compare a query with a text. "bm25" compares words: rare words and short
texts count more (Robertson and Zaragoza 2009, equation 3.15; the idf, the weight of a rare word, is
Lucene's, which is never negative). "dense" compares vectors. "rrf" combines both rankings
(reciprocal rank fusion, Cormack et al. 2009). Shapes: n texts, vectors of E numbers.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from course_lib.data.embedders import Embedder, encode, has_unit_vectors
from course_lib.data.embedders import words as words  # `as`: others import it from here
from course_lib.errors import CourseError

How = Literal["bm25", "dense", "rrf"]
Floats = NDArray[np.floating[Any]]
# Constants of BM25, with Lucene's values
K1 = 1.2  # the larger, the more a word counts that a text repeats
B = 0.75  # how much a text's length lowers its scores, 0 to 1
RRF = 60  # a text of rank r scores 1 / (60 + r) (Cormack et al. 2009, section 2)


class Hit(NamedTuple):
    """A text that was found. `number` is its index in `Index.texts`."""

    number: int
    score: float
    text: str


class BM25:
    """An inverted index: for each word, the texts that contain it.

    A text's score is the sum over the query's words (a repeated word counts twice) of

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
        # word -> the numbers of its texts, and the score that it adds to each of them
        self.postings: dict[str, tuple[NDArray[np.int64], Floats]] = {}
        for word, entries in postings.items():
            numbers, tf = np.array(entries).T
            df = len(entries)
            idf = np.log1p((len(texts) - df + 0.5) / (df + 0.5))
            added = idf * tf / (tf + norm[numbers])
            self.postings[word] = numbers, added.astype(np.float32)

    def scores(self, query: str) -> Floats:
        """The score of every text, [n]; 0 for a text without any word of the query."""
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
        embedder: turns texts into vectors. Without one there is no dense search.
        batch: the number of texts in a batch of the embedder.

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
            query: the text to search for.
            k: the largest number of hits.
            how: "bm25": words; a text without any of them is not a hit. "dense": cosine of the
                vectors. "rrf": the sum of 1 / (60 + rank) over both.

        Raises:
            CourseError: if there is no such search, or the index has no vectors for it.
        """
        return self.search_all([query], k, how=how)[0]

    def search_all(
        self, queries: Sequence[str], k: int = 10, *, how: How = "bm25"
    ) -> list[list[Hit]]:
        """`search` for many queries. They are embedded as one batch."""
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
        """For each query the BM25 scores [n]; -inf for a text without any of its words."""
        scores = [self.bm25.scores(query) for query in queries]
        return [np.where(of_query > 0, of_query, -np.inf) for of_query in scores]

    def _by_vectors(self, queries: Sequence[str]) -> list[Floats]:
        """For each query the cosines [n], or dot products if the embedder is meant for them."""
        if self.vectors is None or self.embedder is None:
            raise CourseError(
                "This index has no vectors; search by bm25, or build it with an embedder."
            )
        vectors = encode(self.embedder, queries, normalize=has_unit_vectors(self.embedder))
        return [(self.vectors @ vector).numpy() for vector in vectors]

    def _hits(self, scores: Floats, k: int) -> list[Hit]:
        return [Hit(int(i), float(scores[i]), self.texts[i]) for i in best(scores, k)]


def best(scores: Floats, k: int) -> NDArray[np.int64]:
    """The indices of the k largest scores above -inf, best first; of equal ones the lower first."""
    candidates = np.flatnonzero(scores > -np.inf)
    if len(candidates) > k:
        # Keep all scores equal to the k-th largest, so that the sort below chooses among them.
        kth_largest = np.partition(scores[candidates], -k)[-k]
        candidates = candidates[scores[candidates] >= kth_largest]
    return candidates[np.lexsort((candidates, -scores[candidates]))][:k]


def _reciprocal_ranks(scores: Floats) -> Floats:
    """1 / (60 + rank) for each text; 0 for one that is no hit."""
    out = np.zeros(len(scores))
    order = best(scores, len(scores))
    out[order] = 1 / (RRF + np.arange(1, len(order) + 1))
    return out
