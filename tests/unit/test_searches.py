"""Collections to search: who answers is told by the words; the distilled table says what the encoder says; the page
finds what Python finds (run by node where there is one)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import search, view
from course_lib.data import searches
from course_lib.errors import CourseError
from course_lib.models.sentence import WordAverage, encode
from course_lib.models.word_table import directions, distil_queries
from course_lib.search import Index, words
from course_lib.view import packed, search_widget
from tests.unit.node import said_by_node


@pytest.fixture(scope="module")
def town() -> searches.Collection:
    return searches.collection("world", split="test", n=60)


def test_a_deed_is_a_verb_and_one_thing() -> None:
    text = "At noon, Kate purchased the lamp. Did Ben buy the vase? Ben did not buy the vase. The coin was bought."
    assert searches.deeds(text) == [("kate", "purchased", "buy", "lamp"), ("", "bought", "buy", "coin")]


def test_queries_are_what_their_kind_says(town: searches.Collection) -> None:
    assert {query.kind for query in town.queries} == set(searches.KINDS)
    for query in town.queries:
        asked = set(words(query.text))
        assert query.passage in query.answers
        for answer in query.answers:
            shared = asked & set(words(town.passages[answer]))
            if query.kind == "other words":
                assert not shared
            elif query.kind == "name, other words":
                assert shared == {words(query.text)[0]}
        if query.kind == "same words":
            assert asked <= set(words(town.passages[query.passage]))


def test_nothing_else_answers(town: searches.Collection) -> None:
    for query in (q for q in town.queries if q.kind == "same words"):
        meaning, thing = words(query.text)
        for number, passage in enumerate(town.passages):
            told = {(deed.verb, deed.thing) for deed in searches.deeds(passage)}
            assert number in query.answers or (meaning, thing) not in told


def test_the_splits_ask_of_different_documents(town: searches.Collection) -> None:
    other = searches.collection("world", split="train", n=60)
    assert not set(town.passages) & set(other.passages)
    assert town == searches.collection("world", split="test", n=60)


def test_other_texts_are_asked_for_by_their_first_sentence(tmp_path: Path) -> None:
    texts = [f"Title number {i}. {'word ' * 90}end{i}." for i in range(3)] + ["Too short. It ends."]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts), "utf-8")
    found = searches.collection(tmp_path / "train.jsonl", split="train")
    assert sorted(q.text for q in found.queries) == [f"Title number {i}." for i in range(3)]
    assert all(len(passage.split()) <= searches.LONGEST for passage in found.passages)
    (tmp_path / "bad.txt").write_text("One sentence only", "utf-8")
    with pytest.raises(CourseError, match="nothing to search"):
        searches.collection(tmp_path / "bad.txt", split="train")


class Adding:
    """A toy encoder: the sum of its words' vectors, and something that depends on their number."""

    def __init__(self, names: list[str]) -> None:
        self.table = WordAverage(
            {name: i for i, name in enumerate(names)},
            torch.randn(len(names), 8, generator=torch.Generator().manual_seed(0)),
        )

    def embed(self, texts: Any) -> torch.Tensor:
        return self.table.embed(texts) + 0.2 * torch.tensor([[float(len(t))] * 8 for t in texts]).sin()

    def fingerprint(self) -> str:
        return "adding"


NAMES = ["lamp", "boat", "sank", "old", "river", "unheard"]
QUERIES = ["old lamp", "old boat", "boat sank river", "river lamp", "sank", "old river", "lamp", "boat"] * 3


def test_the_table_comes_nearer_than_the_words_alone() -> None:
    encoder = Adding(NAMES)
    wanted = encode(encoder, QUERIES, normalize=True)
    alone = WordAverage(encoder.table.numbers, encode(encoder, NAMES, normalize=True))
    table = distil_queries(encoder, QUERIES, NAMES, ridge=0.01)

    def gap(by: WordAverage) -> float:
        return (encode(by, QUERIES) - wanted).square().sum().item()

    assert gap(table) < 0.7 * gap(alone)
    torch.testing.assert_close(table.vectors[-1], alone.vectors[-1])  # no query holds it
    looser = distil_queries(encoder, QUERIES, NAMES, ridge=1e4)
    torch.testing.assert_close(looser.vectors, alone.vectors, atol=1e-2, rtol=0)
    for bad in (["lamp", "lamp"], ["two words"], ["Lamp"]):
        with pytest.raises(CourseError, match="single words"):
            distil_queries(encoder, QUERIES, bad)
    with pytest.raises(CourseError, match="ridge"):
        distil_queries(encoder, QUERIES, NAMES, ridge=0)


def test_directions_keep_products() -> None:
    flat = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)) @ torch.randn(3, 9)
    short = flat @ directions(flat, 3)
    torch.testing.assert_close(short @ short.T, flat @ flat.T, rtol=1e-3, atol=1e-3)
    with pytest.raises(CourseError, match="directions"):
        directions(flat, 10)


TEXTS = [
    "The old lamp, the lamp.",
    "A boat sank in the river.",
    "An old <b>boat</b> & a river_bank; naïve.",
    "Nothing.",
]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.build(TEXTS, embedder=Adding(NAMES))


@pytest.fixture(scope="module")
def table(index: Index) -> WordAverage:
    """As the page has it: rounded, and so are the vectors of the index."""
    assert index.vectors is not None
    rows, scale = packed.rounded(Adding(NAMES).table.vectors)
    whole, _ = packed.rounded(index.vectors)
    index.vectors = torch.nn.functional.normalize(whole.float(), dim=-1)
    return WordAverage(Adding(NAMES).table.numbers, rows * scale[:, None])


@pytest.mark.parametrize("how", ["bm25", "dense", "rrf"])
def test_the_page_finds_what_python_finds(index: Index, table: WordAverage, how: Any) -> None:
    both = Index(index.documents, index.bm25, index.vectors, table, table.fingerprint())
    for query in ("old boat", "lamp lamp river", "Naïve boat", "the sank"):
        found = said_by_node(
            search_widget.ENGINE, search_widget.pack(index, table), f"search({json.dumps(query)}, '{how}')"
        )
        hits = both.search(query, 10, how=how)
        assert [number for number, _ in found] == [hit.number for hit in hits], query
        assert [score for _, score in found] == pytest.approx([hit.score for hit in hits], abs=1e-3)


def test_the_page_without_scripts_shows_the_first_query(index: Index, table: WordAverage) -> None:
    page = view.search_page(index, table, ["old boat", "sank"], title="Search the toys")
    assert "<mark>old</mark> &lt;b&gt;<mark>boat</mark>&lt;/b&gt; &amp;" in page.html
    assert page.html.count("data-query style") == 2
    assert "http" not in page.html
    assert "4 passages" in page.text
    assert view.search_page(index, table, ["old boat"]).html == view.search_page(index, table, ["old boat"]).html


def test_what_cannot_be_a_page(index: Index, table: WordAverage) -> None:
    with pytest.raises(CourseError, match="at least one query"):
        view.search_page(index, table, [])
    with pytest.raises(CourseError, match="with vectors"):
        view.search_page(Index.build(TEXTS), table, ["old"])
    narrow = WordAverage(table.numbers, table.vectors[:, :4])
    with pytest.raises(CourseError, match="as wide"):
        view.search_page(index, narrow, ["old"])
    large = Index([{"text": "x" * 500_000}] * 4, search.BM25.build(["x"] * 4), index.vectors)
    with pytest.raises(CourseError, match="characters"):
        view.search_page(large, table, ["old"])
