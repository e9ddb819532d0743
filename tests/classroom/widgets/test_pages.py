"""The search engine in a page says what Python says; run by node where there is one."""

import json
import shutil
import subprocess
from typing import Any

import pytest
import torch

from classroom import widgets
from classroom.widgets import card, search
from course_lib.analysis.retrieval import Index
from course_lib.data.embedders import WordAverage
from course_lib.errors import CourseError


def said_by_node(engine: str, data: dict[str, Any], expression: str) -> Any:
    """The value of a JavaScript expression behind a script of assets/ and its data; skips where
    there is no node.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    script = card.script(engine)
    source = f"var data={json.dumps(data)};{script};console.log(JSON.stringify({expression}))"
    ran = subprocess.run(
        [node, "-"], input=source, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


PASSAGES = [
    "The old lamp, the lamp.",
    "A boat sank in the river.",
    "An old <b>boat</b> & a river_bank; naïve.",
    "Unheard of.",
]
NAMES = ["lamp", "boat", "sank", "old", "river", "unheard"]
VECTORS = torch.randn(len(NAMES), 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def table() -> WordAverage:
    """As the page has it: rounded."""
    rows, scale = card.rounded(VECTORS)
    return WordAverage({name: i for i, name in enumerate(NAMES)}, rows * scale[:, None])


@pytest.fixture(scope="module")
def index(table: WordAverage) -> Index:
    """Its vectors rounded too."""
    made = Index(PASSAGES, embedder=table)
    assert made.vectors is not None
    whole, _ = card.rounded(made.vectors)
    made.vectors = torch.nn.functional.normalize(whole.float(), dim=-1)
    return made


@pytest.mark.parametrize("how", ["bm25", "dense", "rrf"])
def test_the_search_page_finds_what_python_finds(
    index: Index, table: WordAverage, how: Any
) -> None:
    for query in ("old boat", "lamp lamp river", "Naïve boat", "the sank"):
        found = said_by_node(
            "search-engine", search.pack(index, table), f"search({json.dumps(query)}, '{how}')"
        )
        hits = index.search(query, 10, how=how)
        assert [number for number, _ in found] == [hit.number for hit in hits], query
        assert [score for _, score in found] == pytest.approx([hit.score for hit in hits], abs=1e-3)


def test_the_search_page_without_scripts_shows_the_first_query(
    index: Index, table: WordAverage
) -> None:
    page = widgets.search_page(index, table, ["old boat", "sank"], title="Search the toys")
    assert "<mark>old</mark> &lt;b&gt;<mark>boat</mark>&lt;/b&gt; &amp;" in page.html
    assert (
        page.html.count("data-query style") == 2
        and "http" not in page.html
        and "4 passages" in page.text
    )
    assert (
        widgets.search_page(index, table, ["old boat"]).html
        == widgets.search_page(index, table, ["old boat"]).html
    )


def test_what_cannot_be_a_search_page(
    index: Index, table: WordAverage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CourseError, match="with vectors"):
        search.pack(Index(PASSAGES), table)
    with pytest.raises(CourseError, match="as wide"):
        search.pack(index, WordAverage(table.numbers, table.vectors[:, :4]))
    monkeypatch.setattr(search, "MOST", 1000)
    with pytest.raises(CourseError, match="characters"):
        widgets.search_page(index, table, ["old"])
