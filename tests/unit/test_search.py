"""The search engine: BM25 by hand, exact neighbours, fusion by hand, filters, snippets, files that stay whole."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib import search
from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.models.sentence import WordAverage
from course_lib.search import BM25, Index, best, nearest, snippet

DOCUMENTS = [
    {"text": "The old mill stood by the river.", "year": 1999, "tags": "mill"},
    {"text": "A boat sank in the river, the old river.", "year": 2004, "tags": "boat"},
    {"text": "Anna baked bread.", "year": 2004, "tags": "bread"},
]


def vectors(seed: int = 0) -> WordAverage:
    known = sorted({word for row in DOCUMENTS for word in search.words(row["text"])})
    rng = torch.Generator().manual_seed(seed)
    return WordAverage({word: i for i, word in enumerate(known)}, torch.randn(len(known), 6, generator=rng))


@pytest.fixture
def index() -> Index:
    return Index.build(DOCUMENTS, embedder=vectors())


def test_bm25_by_hand() -> None:
    """Lengths 7, 9, 3, mean 19 / 3; "old" stands in 2 of 3 documents, "river" once in the first, twice in the next."""
    bm25 = BM25.build([row["text"] for row in DOCUMENTS], k1=1.2, b=0.75)
    idf = math.log(1 + 1.5 / 2.5)
    norm = [1.2 * (0.25 + 0.75 * length / (19 / 3)) for length in (7, 9, 3)]
    expected = [idf * 2 / (1 + norm[0]), idf * (2 / (2 + norm[1]) + 1 / (1 + norm[1])), 0.0]
    assert bm25.scores("River old unheard") == pytest.approx(expected, rel=1e-6)
    assert bm25.scores("river river") == pytest.approx(2 * bm25.scores("river"))  # asked twice counts twice
    assert bm25.scores("bread")[2] == pytest.approx(math.log(1 + 2.5 / 1.5) / (1 + norm[2]))
    assert bm25.scores("") == pytest.approx([0, 0, 0])


def test_what_k1_and_b_do() -> None:
    texts = ["a a a b", "a b c d e f g h", "x"]
    flat = BM25.build(texts, b=0).scores("a")
    assert flat[1] == BM25.build(["a", "a a", "x"], b=0).scores("a")[0]  # without b, the length does not count
    counted = BM25.build(texts, k1=0).scores("a")
    assert counted[0] == counted[1] > 0  # without k1, how often does not count
    for wrong in ({"k1": -1.0}, {"b": 1.5}):
        with pytest.raises(CourseError, match="BM25 needs"):
            BM25.build(texts, **wrong)


def test_bm25_against_its_definition_on_world_text() -> None:
    texts = [row["positive"] for row in World(seed=0).task("retrieval", 30)]
    bm25, split = BM25.build(texts, k1=0.9, b=0.4), [search.words(text) for text in texts]
    mean = sum(map(len, split)) / len(split)
    query = "what did the boat carry on the hill"
    expected = np.zeros(len(texts))
    for word in search.words(query):
        df = sum(word in row for row in split)
        for i, row in enumerate(split):
            tf = row.count(word)
            idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
            expected[i] += idf * tf / (tf + 0.9 * (0.6 + 0.4 * len(row) / mean))
    assert bm25.scores(query) == pytest.approx(expected, rel=1e-5)


def test_a_hundred_thousand_documents() -> None:
    """The postings are what scipy counts, and a query touches its own words' postings only."""
    rng = np.random.default_rng(0)
    numbers = rng.zipf(1.3, (100_000, 8)).clip(max=50_000)
    texts = [" ".join(map("w{}".format, row)) for row in numbers.tolist()]
    bm25 = BM25.build(texts)
    scores = bm25.scores("w1 w77 w4999")
    assert len(bm25.documents) < numbers.size == bm25.counts.sum()
    assert np.array_equal(scores > 0, np.isin(numbers, [1, 77, 4999]).any(axis=1))


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_nearest_is_the_whole_product_sorted(chunk: int) -> None:
    rng = torch.Generator().manual_seed(0)
    queries, stored = torch.randn(3, 5, generator=rng), torch.randn(30, 5, generator=rng)
    scores, numbers = nearest(queries, stored, 4, chunk=chunk)
    expected = (queries @ stored.T).sort(dim=1, descending=True)
    assert torch.equal(numbers, expected.indices[:, :4]) and torch.allclose(scores, expected.values[:, :4])
    assert nearest(queries, stored[:2], 4, chunk=chunk)[1].shape == (3, 2)
    with pytest.raises(CourseError, match="5 values"):
        nearest(queries, torch.randn(4, 6))


def test_equal_scores_keep_the_documents_order() -> None:
    scores = np.array([1, 3, -np.inf, 3, 2, 3], np.float32)
    assert best(scores, 2).tolist() == [1, 3] and best(scores, 9).tolist() == [1, 3, 5, 4, 0]


def test_words_find_only_what_holds_them(index: Index) -> None:
    assert [hit.number for hit in index.search("river bread")] == [2, 1, 0]
    assert index.search("nothing") == []
    assert [hit.number for hit in index.search("river", 1)] == [1]


def test_dense_is_the_cosine(index: Index) -> None:
    hits = index.search("the old boat", how="dense")
    query = vectors().embed(["the old boat"])[0]
    for hit in hits:
        stored = vectors().embed([hit.document["text"]])[0]
        assert hit.score == pytest.approx(float(torch.cosine_similarity(query, stored, dim=0)), abs=1e-6)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True) and len(hits) == 3


def test_fusion_by_hand(index: Index) -> None:
    query = "the bread by the river"
    by_words, by_vectors = index.search(query), index.search(query, how="dense")
    ranks = [{hit.number: rank for rank, hit in enumerate(hits, 1)} for hits in (by_words, by_vectors)]
    for hit in index.search(query, how="rrf"):
        expected = sum(1 / (60 + rank[hit.number]) for rank in ranks if hit.number in rank)
        assert hit.score == pytest.approx(expected, rel=1e-6)

    def stretched(hits: list[search.Hit]) -> dict[int, float]:
        scores = dict.fromkeys(range(3), 0.0) | {hit.number: hit.score for hit in hits}
        low, high = min(scores.values()), max(scores.values())
        return {n: (value - low) / (high - low) for n, value in scores.items()}

    a, b = stretched(by_vectors), stretched(by_words)
    for hit in index.search(query, how="weighted", weight=0.3):
        assert hit.score == pytest.approx(0.3 * a[hit.number] + 0.7 * b[hit.number], abs=1e-6)


def test_a_document_without_the_words_gets_no_rank_from_them(index: Index) -> None:
    scores = {hit.number: hit.score for hit in index.search("bread", how="rrf")}
    ranks = {hit.number: rank for rank, hit in enumerate(index.search("bread", how="dense"), 1)}
    assert scores[0] == pytest.approx(1 / (60 + ranks[0]), rel=1e-6)


@pytest.mark.parametrize("how", ["bm25", "dense", "rrf", "weighted"])
def test_filters(how: search.How, index: Index) -> None:
    def found(where: search.Where) -> set[int]:
        return {hit.number for hit in index.search("the old river bread", how=how, where=where)}

    assert found({"year": 2004}) == {1, 2}
    assert found({"year": [1999, 2004], "tags": "boat"}) == {1}
    assert found({"tags": "oat"}) == set()  # a string is a value, not a collection of letters
    assert found(lambda row: row["year"] < 2000) == {0}
    assert found({"author": "Anna"}) == set()
    whole = index.search_all(["bread", "river"], how=how)
    assert whole == [index.search("bread", how=how), index.search("river", how=how)]


def test_rrf_ranks_among_the_filtered_only(index: Index) -> None:
    hits = index.search("river", how="rrf", where={"year": 1999})
    assert [hit.score for hit in hits] == [pytest.approx(2 / 61)]


def test_snippets() -> None:
    text = "It rained for days. " * 5 + "Then Anna saw the old mill burn, and the mill was gone. " + "It was cold. " * 9
    shown = snippet(text, "OLD mill", 40)
    assert "**old** **mill**" in shown and shown.startswith("…") and shown.endswith("…")
    assert len(shown.replace("**", "").strip("…")) <= 40
    assert shown.replace("**", "").strip("…") in text
    assert snippet("The mill.", "mill", marks=("<b>", "</b>")) == "The <b>mill</b>."
    assert snippet("(The mill)", "x") == "(The mill)" and snippet("?!", "x") == "?!" and snippet("", "x") == ""
    assert snippet("millstone", "mill") == "millstone"  # whole words only
    assert snippet("a" * 50, "b", 10) == "a" * 50


def test_an_index_comes_back_from_its_folder(index: Index, tmp_path: Path) -> None:
    index.save(tmp_path)
    again = Index.load(tmp_path, embedder=vectors())
    for how in ("bm25", "dense", "rrf", "weighted"):
        assert again.search("the old river", how=how) == index.search("the old river", how=how)  # type: ignore[arg-type]
    assert Index.load(tmp_path).search("river") == index.search("river")
    with pytest.raises(CourseError, match="without its model"):
        Index.load(tmp_path).search("river", how="dense")
    with pytest.raises(CourseError, match="another model"):
        Index.load(tmp_path, embedder=vectors(seed=1))
    Index.build(DOCUMENTS[:2]).save(tmp_path)  # over the first
    assert len(list(tmp_path.iterdir())) == 2 and len(Index.load(tmp_path).documents) == 2


def test_a_crash_while_saving_leaves_the_earlier_index(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.save(tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search, "write_json", crash)
        with pytest.raises(KeyboardInterrupt):
            Index.build(["something else"]).save(tmp_path)
    assert Index.load(tmp_path, embedder=vectors()).search("river") == index.search("river")


def test_damaged_files(index: Index, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no file"):
        Index.load(tmp_path)
    index.save(tmp_path)
    file = next(tmp_path.glob("*.safetensors"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CourseError, match="damaged"):
        Index.load(tmp_path)
    file.unlink()
    with pytest.raises(CourseError, match="cannot be read"):
        Index.load(tmp_path)
    values = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(values | {"format": 0}))
    with pytest.raises(CourseError, match="this version"):
        Index.load(tmp_path)


def test_bad_input(index: Index) -> None:
    for documents, message in (([], "at least one"), ("text", "list"), ([{"title": "x"}], "Document 0")):
        with pytest.raises(CourseError, match=message):
            Index.build(documents)
    with pytest.raises(CourseError, match="no search 'fast'"):
        index.search("river", how="fast")  # type: ignore[arg-type]
    for options in ({"k": 0}, {"weight": 1.5}):
        with pytest.raises(CourseError, match="at least 1, weight"):
            index.search("river", **options)  # type: ignore[arg-type]


def test_words_alone_cannot_tell_the_worlds_passages_apart() -> None:
    """The four passages of a retrieval row tell of the same people, things and places: BM25 finds the four."""
    rows = World(seed=0).task("retrieval", 25)
    documents = [
        {"text": text, "row": i} for i, row in enumerate(rows) for text in (row["positive"], *row["negatives"])
    ]
    index = Index.build(documents)
    found = index.search_all([row["query"] for row in rows], 4)
    of_its_row = [hit.document["row"] == i for i, hits in enumerate(found) for hit in hits]
    assert sum(of_its_row) > 0.8 * len(of_its_row)
    right = [hits[0].number % 4 == 0 for hits in found]
    assert sum(right) < 0.7 * len(right)
