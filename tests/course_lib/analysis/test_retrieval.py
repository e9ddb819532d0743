"""The search engine: BM25 by hand, fusion by hand, what cannot be searched."""

import math

import numpy as np
import pytest
import torch

from course_lib.analysis import retrieval
from course_lib.analysis.retrieval import BM25, Hit, Index, best
from course_lib.data.embedders import WordAverage
from course_lib.errors import CourseError

TEXTS = [
    "The old mill stood by the river.",
    "A boat sank in the river, the old river.",
    "Anna baked bread.",
]


@pytest.fixture(scope="module")
def vectors() -> WordAverage:
    known = sorted({word for text in TEXTS for word in retrieval.words(text)})
    rng = torch.Generator().manual_seed(0)
    return WordAverage(
        {word: i for i, word in enumerate(known)}, torch.randn(len(known), 6, generator=rng)
    )


@pytest.fixture(scope="module")
def index(vectors: WordAverage) -> Index:
    return Index(TEXTS, embedder=vectors)


def test_bm25_by_hand() -> None:
    """Lengths 7, 9, 3, mean 19 / 3; "old" stands in 2 of 3 texts, "river" once in the first, twice
    in the next.
    """
    bm25 = BM25(TEXTS)
    idf = math.log(1 + 1.5 / 2.5)
    norm = [1.2 * (0.25 + 0.75 * length / (19 / 3)) for length in (7, 9, 3)]
    expected = [idf * 2 / (1 + norm[0]), idf * (2 / (2 + norm[1]) + 1 / (1 + norm[1])), 0.0]
    assert bm25.scores("River old unheard") == pytest.approx(expected, rel=1e-6)
    # asked twice counts twice
    assert bm25.scores("river river") == pytest.approx(2 * bm25.scores("river"))
    assert bm25.scores("bread")[2] == pytest.approx(math.log(1 + 2.5 / 1.5) / (1 + norm[2]))
    assert bm25.scores("") == pytest.approx([0, 0, 0])


def test_equal_scores_keep_the_texts_order() -> None:
    scores = np.array([1, 3, -np.inf, 3, 2, 3], np.float32)
    assert best(scores, 2).tolist() == [1, 3] and best(scores, 9).tolist() == [1, 3, 5, 4, 0]


def test_words_find_only_what_holds_them(index: Index) -> None:
    assert [hit.number for hit in index.search("river bread")] == [2, 1, 0]
    assert index.search("nothing") == [] and [hit.text for hit in index.search("river", 1)] == [
        TEXTS[1]
    ]


def test_dense_is_the_cosine(index: Index, vectors: WordAverage) -> None:
    hits = index.search("the old boat", how="dense")
    query = vectors.embed(["the old boat"])[0]
    for hit in hits:
        stored = vectors.embed([hit.text])[0]
        assert hit.score == pytest.approx(
            float(torch.cosine_similarity(query, stored, dim=0)), abs=1e-6
        )
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True) and len(
        hits
    ) == 3


@pytest.mark.parametrize("query", ["the bread by the river", "bread"])
def test_fusion_by_hand(index: Index, query: str) -> None:
    """A text without the words gets no rank from them."""
    found: tuple[list[Hit], list[Hit]] = index.search(query), index.search(query, how="dense")
    ranks = [{hit.number: rank for rank, hit in enumerate(hits, 1)} for hits in found]
    for hit in index.search(query, how="rrf"):
        expected = sum(1 / (60 + rank[hit.number]) for rank in ranks if hit.number in rank)
        assert hit.score == pytest.approx(expected, rel=1e-6)


def test_bad_input(index: Index) -> None:
    for call, said in (
        (lambda: Index([]), "at least one"),
        (lambda: Index("text"), "list of texts"),
        (lambda: index.search("river", how="fast"), "no search 'fast'"),
        (lambda: Index(TEXTS).search("river", how="dense"), "no vectors"),
    ):
        with pytest.raises(CourseError, match=said):
            call()
