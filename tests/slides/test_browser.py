"""Decks as a class sees them: opened from disk in a browser without a network, stepped through,
printed.
"""

import re
from pathlib import Path

import pytest

from course_lib import zoo
from tests.slides.toy import cell, code, deck, picture
from tools.slides import decks, page, pdf
from tools.slides.deck import slides

pytestmark = pytest.mark.browser

NAMES = [path.stem for path in decks()]
LOOKS, MARGINS = (
    (Path(__file__).parent / f"{name}.js").read_text("utf-8") for name in ("looks", "margins")
)


def opened(tab, path, width=1280, height=720):
    tab.set_viewport_size({"width": width, "height": height})
    tab.goto(path.as_uri())
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    return tab.evaluate(LOOKS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1024, 768)], ids=["16:9", "4:3"])
def test_every_slide_is_there_fits_and_asks_for_nothing(tab, pages, stored, name, width, height):
    assert opened(tab, pages[name], width, height) == [] and (tab.asked, tab.said) == ([], [])
    there = tab.evaluate("[...document.querySelectorAll('.slides > section')].map(s => s.id)")
    assert there == [slide.name for slide in slides(stored[name])]


@pytest.fixture
def two_mice(tab, pages):
    """A slide with a question and notes."""
    tab.goto(pages["1_attention"].as_uri() + "#/two-mice")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    return tab


def test_an_answer_comes_on_the_next_step(two_mice):
    tab = two_mice
    answer = tab.locator("#two-mice .answer")
    assert tab.locator("#two-mice blockquote").first.is_visible()
    assert not answer.is_visible()
    tab.keyboard.press("ArrowRight")
    answer.wait_for(state="visible", timeout=120_000)
    assert "never sees the sentence" in answer.inner_text()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("Reveal.getCurrentSlide().id") != "two-mice"


def test_the_speaker_sees_notes(two_mice):
    with two_mice.expect_popup() as popup:
        two_mice.keyboard.press("s")
    popup.value.wait_for_function(
        "document.body.innerText.includes('Let people vote')", timeout=120_000
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_live_slide_is_live(tab, pages, name):
    """It shows what can be used, and not the picture that stands in for it on paper."""
    tab.goto(pages[name].as_uri() + "#/live")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    live = tab.locator("#live")
    assert live.locator("figure").count() == 0
    assert live.locator("input:visible, button:visible").count() > 0
    tab.goto(pages[name].as_uri() + "?print-pdf")
    tab.wait_for_selector(".pdf-page")
    assert tab.locator("#live figure").count() == 1


def test_a_translation_is_written_token_by_token(tab, pages):
    tab.goto(pages["1_attention"].as_uri() + "#/live")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    card = tab.locator("#interpreter")
    button, written = card.locator("button"), card.locator("p").nth(1)
    card.locator("select").select_option(index=1)
    assert (button.inner_text(), card.locator("li").count()) == ("Look", 0)
    said = []
    while button.inner_text() == "Look":
        button.click()
        said.append(card.locator("li").first.inner_text().split()[-1])
        assert card.locator("li").count() == 5
        button.click()
        assert written.locator("b").all_inner_texts() == said
    assert " ".join(said) == "A woman reads a book to her child . [SEP]"
    button.click()
    assert written.locator("b").count() == 0


TEXTS = (
    "I can't unbutton the accordion, they've said.",
    "Straße, naïve  CAFÉ: 1234 and 12345678!",
    "good🙂 猫 Мост  ",
)


@pytest.mark.parametrize("text", TEXTS)
def test_the_page_cuts_as_the_tokenizers_do(tab, pages, text):
    tab.goto(pages["2_embeddings_to_elmo"].as_uri() + "#/live")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    card = tab.locator("#cutter")
    card.locator("input").fill(text)
    bpe, wordpieces = (card.locator("p").nth(i).locator("b").all_inner_texts() for i in (0, 1))
    expected = zoo.load("gpt-english").tokenizer.encode(text).tokens
    assert bpe == [token.replace("Ġ", "·") for token in expected]
    assert wordpieces == zoo.load("bert-english").tokenizer.encode(text, special=False).tokens


def test_a_search_ranks_by_words_and_by_meaning(tab, pages):
    tab.goto(pages["3_encoders"].as_uri() + "#/live")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    card = tab.locator("#finder")
    first = {way: card.locator(f"#by-{way} li").first for way in ("words", "vectors")}
    card.locator("input").fill("my loaf is flat")
    assert all("loaf spreads out flat" in row.inner_text() for row in first.values())
    assert "flat" in first["words"].locator("b").all_inner_texts()
    for number, said in {0: "If you wake at three", 1: "A swimmer", 2: "For a burn"}.items():
        card.locator("button").nth(number).click()
        assert said in first["vectors"].inner_text()
        assert said not in first["words"].inner_text()
    card.locator("input").fill("xqzzy")
    assert [row.count() for row in first.values()] == [0, 0]


def toy(tmp_path, *cells):
    path = tmp_path / "toy.html"
    body = [cell("## Toy", "slide", name="toy"), *cells, cell("**1 min** · Say it.", "notes")]
    path.write_text(page.html(deck(*body)), "utf-8")
    return path


def test_a_good_toy_passes(tab, tmp_path):
    assert opened(tab, toy(tmp_path, cell("Text."))) == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([cell("many lines\n\n" * 30)], "leaves the slide"),
        ([cell("<div style='width:2000px'>wide</div>")], "leaves the slide"),
        ([cell("<div style='margin-top:-90px'>over the heading</div>")], "leaves its place"),
        ([cell("<p style='font-size:11px'>tiny</p>")], "small type"),
        ([code("", picture(alt=""))], "no text alternative"),
        ([code("", picture()), cell("line\n\n" * 11)], "too small to read"),
    ],
    ids=["tall", "wide", "overlap", "tiny", "silent", "squeezed"],
)
def test_bad_looks_are_seen(tab, tmp_path, cells, message):
    found = opened(tab, toy(tmp_path, *cells))
    assert any(message in line for line in found), found


def test_a_request_and_an_error_are_seen(tab, tmp_path):
    bad = cell(
        "<img alt='A picture from somewhere else' src='https://example.org/a.png'><script>nothing()</script>"
    )
    opened(tab, toy(tmp_path, bad))
    assert tab.asked == ["https://example.org/a.png"] and any(
        "nothing is not defined" in line for line in tab.said
    )


# The printed deck.


def facts(data):
    """What a PDF says of itself, read from its plain objects."""
    return {
        "pages": len(re.findall(rb"/Type\s*/Page\b(?!s)", data)),
        "tagged": b"/Marked true" in data and b"/StructTreeRoot" in data,
        "language": b"/Lang (en" in data,
        "headings": len(re.findall(rb"/S /H[12]\b", data)),
        "pictures": len(re.findall(rb"/Alt\s*[(<]", data)),
        "titles": [
            _string(*found)
            for found in re.findall(rb"/Title (?:\(((?:[^)\\]|\\.)*)\)|<(\w+)>)", data)
        ],
    }


def _string(plain, coded):
    """A PDF's string, written out or in the hexadecimal digits of UTF-16."""
    return (
        bytes.fromhex(coded.decode()).decode("utf-16")
        if coded
        else re.sub(r"\\(.)", r"\1", plain.decode("latin-1"))
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_page_has_margins(tab, pages, name):
    tab.goto(pages[name].as_uri() + "?print-pdf&pdfSeparateFragments=false")
    tab.wait_for_selector(".pdf-page")
    assert tab.evaluate(MARGINS) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_pdf(browser, pages, stored, name, tmp_path):
    pdf.write(browser, pages[name], tmp_path / "deck.pdf")
    data = (tmp_path / "deck.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    found, count = facts(data), len(slides(stored[name]))
    assert (
        found["tagged"]
        and found["language"]
        and (found["pages"], found["headings"]) == (count, count)
    )
    assert found["pictures"] == pages[name].read_text("utf-8").count("<figure>") > 0
    said = [stored[name].metadata["title"], *(slide.title for slide in slides(stored[name]))]
    assert sorted(found["titles"]) == sorted(said)  # the document's, and the outline
    assert len(data) < 5_000_000


def test_an_untagged_pdf_is_seen(tab, tmp_path):
    tab.goto(toy(tmp_path, cell("Text.")).as_uri())
    found = facts(tab.pdf(tagged=False, outline=False))
    assert (found["tagged"], found["headings"], found["titles"][1:]) == (False, 0, [])
