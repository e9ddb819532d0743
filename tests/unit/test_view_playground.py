"""The GPT in the page says what the GPT in Python says; run by node where there is one."""

import json

import pytest
import torch

from course_lib import heads, view
from course_lib.errors import CourseError
from course_lib.generate import next_distribution
from course_lib.models.gpt import gpt
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.view import packed, playground_widget
from course_lib.view.playground_script import ENGINE
from tests.unit.node import said_by_node

TEXTS = [
    "On Monday, Nadia bought the lamp. It's 12 o'clock; naïve cafés don't open.",
    "Two  spaces,\n\na new line,\ttab… 🙂 and   end",
    "They've said: \"we'll see\"!  ",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(TEXTS * 3, 330)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> heads.LM:
    """Random, its matrices already rounded as the page has them."""
    torch.manual_seed(0)
    made = heads.LM(Stack(gpt(tokenizer.vocab.size, width=24, layers=2, heads=3, length=40))).eval()
    for weight in made.parameters():
        weight.data = 0.3 * torch.randn_like(weight)
        if weight.dim() == 2:
            whole, scale = packed.rounded(weight.data)
            weight.data = whole * scale[:, None]
    return made


def test_it_cuts_texts_as_the_tokenizer_does(model: heads.LM, tokenizer: Tokenizer) -> None:
    data = playground_widget.pack(model, tokenizer)
    texts = json.dumps(TEXTS)
    assert said_by_node(ENGINE, data, f"{texts}.map(encode)") == tokenizer.ids(TEXTS)
    assert said_by_node(ENGINE, data, f"{texts}.map(function(t) {{ return decode(encode(t)); }})") == TEXTS


def test_it_computes_what_the_model_computes(model: heads.LM, tokenizer: Tokenizer) -> None:
    ids = [1, *tokenizer.encode(TEXTS[0]).ids][:20]
    found = said_by_node(
        ENGINE,
        playground_widget.pack(model, tokenizer),
        f"(function() {{ var c = fresh(); return {ids}.map(function(i) {{ return Array.from(step(c, i)); }}); }})()",
    )
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(found), model(torch.tensor([ids]))[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("temperature", "k", "p"), [(1.0, 0, 1.0), (0.5, 5, 1.0), (1.3, 0, 0.6), (0.8, 6, 0.7)])
def test_it_leaves_the_same_choices(
    model: heads.LM, tokenizer: Tokenizer, temperature: float, k: int, p: float
) -> None:
    logits = torch.randn(model.stack.config.embed.vocab, generator=torch.Generator().manual_seed(4)) * 2
    found = said_by_node(
        ENGINE, playground_widget.pack(model, tokenizer), f"choices({logits.tolist()}, {temperature}, {k}, {p})"
    )
    expected = next_distribution(logits, temperature, k or None, None if p == 1 else p)
    assert {i for i, _ in found} == set(expected.nonzero()[:, 0].tolist())
    assert [share for _, share in found] == pytest.approx([float(expected[i]) for i, _ in found], abs=1e-5)


def test_draws_follow_the_shares_and_the_seed(model: heads.LM, tokenizer: Tokenizer) -> None:
    script = (
        "(function() { var r = random(3), n = 0;"
        " for (var i = 0; i < 4000; i++) n += draw([[5, 0.7], [6, 0.3]], r) === 5;"
        " return [n / 4000, random(3)() === random(3)(), random(3)() === random(4)()]; })()"
    )
    share, same, other = said_by_node(ENGINE, playground_widget.pack(model, tokenizer), script)
    assert share == pytest.approx(0.7, abs=0.04)
    assert (same, other) == (True, False)


def test_the_card_reads_without_its_script(model: heads.LM, tokenizer: Tokenizer) -> None:
    made = view.playground(model, tokenizer, {"one": "On Monday, <b>", "two": "They've"})
    page = made.html.split("<script>")[0]
    assert (
        "On Monday, &lt;b&gt;" in page
        and page.count("<option") == 2
        and page.count("%</td>") == playground_widget.SHOWN
    )
    assert repr(made).startswith("Playground: after 'On Monday, <b>' come ")


def test_it_refuses_what_it_cannot_run(model: heads.LM, tokenizer: Tokenizer) -> None:
    with pytest.raises(CourseError, match="at least one prompt"):
        view.playground(model, tokenizer, {})
    post = heads.LM(Stack(gpt(tokenizer.vocab.size, width=24, layers=1, heads=2, length=40, norm="post")))
    with pytest.raises(CourseError, match="GPT-2's block only"):
        view.playground(post, tokenizer, {"a": "a"})
    with pytest.raises(CourseError, match="byte-level"):
        view.playground(model, train_wordpiece(TEXTS, 90), {"a": "a"})
    large = heads.LM(Stack(gpt(tokenizer.vocab.size, width=512, layers=1, heads=2, length=40)))
    with pytest.raises(CourseError, match="smaller model"):
        view.playground(large, tokenizer, {"a": "a"})


def test_a_page_asks_for_no_address(model: heads.LM, tokenizer: Tokenizer) -> None:
    assert "http" not in view.playground(model, tokenizer, {"a": "a"}).html
