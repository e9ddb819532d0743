"""The GPT and the search engine in a page say what Python says; run by node where there is one."""

import json
import shutil
import subprocess
from typing import Any

import pytest
import torch

from classroom import widgets
from classroom.widgets import card, search
from classroom.widgets.playground import SHOWN, pack
from course_lib.analysis.retrieval import Index
from course_lib.data.embedders import WordAverage
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families.gpt import gpt
from course_lib.generation import next_distribution
from course_lib.model import heads
from course_lib.model.transformer import Transformer

TEXTS = [
    "On Monday, Nadia bought the lamp. It's 12 o'clock; naïve cafés don't open.",
    "Two  spaces,\n\na new line,\ttab… 🙂 and   end",
    "They've said: \"we'll see\"!  ",
]


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


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(TEXTS * 3, 330)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> heads.LM:
    """Random, its matrices already rounded as the page has them."""
    torch.manual_seed(0)
    made = heads.LM(
        Transformer(gpt(tokenizer.vocab.size, width=24, layers=2, heads=3, length=40))
    ).eval()
    for weight in made.parameters():
        weight.data = 0.3 * torch.randn_like(weight)
        if weight.dim() == 2:
            whole, scale = card.rounded(weight.data)
            weight.data = whole * scale[:, None]
    return made


def test_it_cuts_texts_as_the_tokenizer_does(model: heads.LM, tokenizer: Tokenizer) -> None:
    both = f"{json.dumps(TEXTS)}.map(function(t) {{ return [encode(t), decode(encode(t))]; }})"
    found = said_by_node("playground-engine", pack(model, tokenizer), both)
    assert found == [list(row) for row in zip(tokenizer.ids(TEXTS), TEXTS, strict=True)]


def test_it_computes_what_the_model_computes(model: heads.LM, tokenizer: Tokenizer) -> None:
    ids = [1, *tokenizer.encode(TEXTS[0]).ids][:20]
    found = said_by_node(
        "playground-engine",
        pack(model, tokenizer),
        f"(function() {{ var c = fresh(); return {ids}.map(function(i) {{ return Array.from(step(c,"
        " i)); }); })()",
    )
    with torch.no_grad():
        torch.testing.assert_close(
            torch.tensor(found), model(torch.tensor([ids]))[0], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    ("temperature", "k", "p"), [(1.0, 0, 1.0), (0.5, 5, 1.0), (1.3, 0, 0.6), (0.8, 6, 0.7)]
)
def test_the_same_choices(
    model: heads.LM, tokenizer: Tokenizer, temperature: float, k: int, p: float
) -> None:
    logits = (
        torch.randn(model.stack.config.embed.vocab, generator=torch.Generator().manual_seed(4)) * 2
    )
    found = said_by_node(
        "playground-engine",
        pack(model, tokenizer),
        f"choices({logits.tolist()}, {temperature}, {k}, {p})",
    )
    expected = next_distribution(
        logits, temperature=temperature, top_k=k or None, top_p=None if p == 1 else p
    )
    assert {i for i, _ in found} == set(expected.nonzero()[:, 0].tolist())
    assert [share for _, share in found] == pytest.approx(
        [float(expected[i]) for i, _ in found], abs=1e-5
    )


def test_draws_follow_the_shares_and_the_seed(model: heads.LM, tokenizer: Tokenizer) -> None:
    script = (
        "(function() { var r = random(3), n = 0;"
        " for (var i = 0; i < 4000; i++) n += draw([[5, 0.7], [6, 0.3]], r) === 5;"
        " return [n / 4000, random(3)() === random(3)(), random(3)() === random(4)()]; })()"
    )
    share, same, other = said_by_node("playground-engine", pack(model, tokenizer), script)
    assert share == pytest.approx(0.7, abs=0.04) and (same, other) == (True, False)


def test_the_card_reads_without_its_script_and_asks_for_no_address(
    model: heads.LM, tokenizer: Tokenizer
) -> None:
    made = widgets.playground(model, tokenizer, {"one": "On Monday, <b>", "two": "They've"})
    page = made.html.split("<script>")[0]
    assert (
        "On Monday, &lt;b&gt;" in page
        and page.count("<option") == 2
        and page.count("%</td>") == SHOWN
    )
    assert "http" not in made.html and repr(made).startswith(
        "Playground: after 'On Monday, <b>' come "
    )


def test_it_refuses_what_it_cannot_run(model: heads.LM, tokenizer: Tokenizer) -> None:
    def other(**changes: Any) -> heads.LM:
        sizes = {"width": 24, "layers": 1, "heads": 2, "length": 40}
        return heads.LM(Transformer(gpt(tokenizer.vocab.size, **sizes | changes)))

    with pytest.raises(CourseError, match="GPT-2's block only"):
        pack(other(norm="post"), tokenizer)
    with pytest.raises(CourseError, match="byte-level"):
        pack(model, train_wordpiece(TEXTS, 90))
    with pytest.raises(CourseError, match="smaller model"):
        pack(other(width=512), tokenizer)


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
