"""A search engine that runs in the page itself: words, vectors, or both; no kernel, no network,
also in exported HTML.

Inside are the passages, their vectors and a table of word vectors for the queries, a byte a number.
assets/search-engine.js is `course_lib.analysis.retrieval` once more; assets/search.js is what the
reader moves."""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from classroom.figures.display import Html
from classroom.widgets.card import card, lines, rounded
from course_lib.analysis.retrieval import K1, RRF, B, Index, words
from course_lib.data.embedders import WORD, WordAverage
from course_lib.errors import CourseError

MOST = 400_000  # characters in a page
SHOWN = 5


def search_page(
    index: Index, table: WordAverage, queries: Sequence[str], *, title: str = "Search"
) -> Html:
    """A page with a search box over an index: by words, by vectors, or by both (reciprocal ranks).

    Without scripts the first query's passages are left, found by Python. table: word vectors for
    the queries, of the index's width (`distil_queries`). queries: to begin with."""
    data = pack(index, table)
    with_table = Index(index.texts)
    with_table.vectors, with_table.embedder = index.vectors, table
    hits = with_table.search(queries[0], SHOWN, how="rrf")
    found = [_marked(hit.text, queries[0]) for hit in hits]
    page = Html(
        card(
            "search", title, data, scripts=("search-engine", "search"), queries=queries, hits=found
        ),
        f"{title}: {len(index.texts)} passages. For {queries[0]!r} the first is: {hits[0].text}",
    )
    if len(page.html) > MOST:
        raise CourseError(
            f"This page has {len(page.html):,} characters, {MOST:,} is the most; give fewer"
            " passages."
        )
    return page


def pack(index: Index, table: WordAverage) -> dict[str, Any]:
    """What the engine in the page reads."""
    if index.vectors is None or index.vectors.shape[1] != table.vectors.shape[1]:
        raise CourseError(
            "A search page needs an index with vectors, as wide as those of the table of words."
        )
    vectors, _ = rounded(F.normalize(index.vectors, dim=-1))
    rows, scales = rounded(table.vectors)
    names = sorted(table.numbers, key=table.numbers.__getitem__)
    return {
        "texts": index.texts,
        "words": " ".join(names),
        "size": index.vectors.shape[1],
        "vectors": _packed(vectors),
        "table": _packed(rows),
        "scales": _packed(scales),
        "k1": K1,
        "b": B,
        "rrf": RRF,
        "shown": SHOWN,
    }


def _marked(text: str, query: str) -> list[str]:
    """The text in parts, of which every second is a word of the query."""
    asked = set(words(query))
    return WORD.sub(
        lambda word: f"\0{word[0]}\0" if word[0].casefold() in asked else word[0], text
    ).split("\0")


def _packed(values: Tensor) -> list[str]:
    return lines(values.detach().contiguous().numpy().tobytes())
