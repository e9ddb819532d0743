"""Decks as a class sees them: opened from disk in a browser without a network, stepped through, printed."""

import re

import pytest

from tests.slides.toy import cell, code, deck, picture
from tools.slides import decks, page, pdf
from tools.slides.deck import slides

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

NAMES = [path.stem for path in decks()]
# Everything that is wrong with the looks of a deck, all steps shown, in the slide's own pixels.
LOOKS = """() => {
  const wrong = [];
  const inside = (r, box, slack) => r.left >= box.left - slack && r.right <= box.right + slack
    && r.top >= box.top - slack && r.bottom <= box.bottom + slack;
  [...document.querySelectorAll('.slides > section')].forEach((slide, index) => {
    Reveal.slide(index);
    slide.querySelectorAll('.fragment').forEach(f => f.classList.add('visible'));
    const box = slide.getBoundingClientRect(), scale = box.width / Reveal.getConfig().width;
    const say = (what, e) => wrong.push([slide.id, what, e.tagName, e.textContent.trim().slice(0, 40)].join(' '));
    const shown = e => { const r = e.getBoundingClientRect(); return r.width && r.height ? r : null; };
    const room = {left: box.left + 20 * scale, right: box.right - 20 * scale, top: box.top,
                  bottom: box.bottom - 26 * scale};
    for (const e of slide.querySelectorAll('.sheet *')) {
      const r = shown(e);
      if (r && !inside(r, room, 1)) say('leaves the slide', e);
    }
    for (const row of slide.querySelectorAll('.sheet > .row, .column > .row')) {
      for (const e of row.querySelectorAll('*')) {
        const r = shown(e);
        if (r && !inside(r, row.getBoundingClientRect(), 4 * scale)) { say('leaves its place', e); break; }
      }
    }
    for (const image of slide.querySelectorAll('img')) {
      const ratio = image.getBoundingClientRect().width / scale / image.naturalWidth;
      if (!image.complete || !image.naturalWidth) say('broken', image);
      if (!(ratio >= 0.62)) say('too small to read, ' + ratio.toFixed(2), image.parentNode);
      if (image.alt.length < 20) say('no text alternative', image.parentNode);
    }
    for (const e of slide.querySelectorAll('.sheet *')) {
      const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
      if (text && !e.closest('math') && parseFloat(getComputedStyle(e).fontSize) < 18) say('small type', e);
    }
    for (const e of slide.querySelectorAll('math')) if (shown(e) === null) say('empty', e);
    if (!Reveal.getSlideNotes(slide)) say('no notes', slide);
  });
  return wrong;
}"""

MARGINS = """() => [...document.querySelectorAll('.pdf-page')].flatMap(page => {
  const box = page.getBoundingClientRect();
  return [...page.querySelectorAll('.sheet *')].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width && r.height && (r.left < box.left + 20 || r.right > box.right - 20 || r.top < box.top + 20
      || r.bottom > box.bottom - 20);
  }).map(e => page.querySelector('section').id + ' ' + e.tagName + ' ' + e.textContent.trim().slice(0, 30));
})"""


def opened(tab, path, width=1280, height=720):
    tab.set_viewport_size({"width": width, "height": height})
    tab.goto(path.as_uri())
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    return tab.evaluate(LOOKS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1024, 768)], ids=["16:9", "4:3"])
def test_every_slide_fits_and_asks_for_nothing(tab, pages, name, width, height):
    assert opened(tab, pages[name], width, height) == []
    assert (tab.asked, tab.said) == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_every_slide_is_there(tab, pages, stored, name):
    tab.goto(pages[name].as_uri())
    there = tab.evaluate("[...document.querySelectorAll('.slides > section')].map(s => s.id)")
    assert there == [slide.name for slide in slides(stored[name])]


def test_an_answer_comes_on_the_next_step(tab, pages):
    tab.goto(pages["1_attention"].as_uri() + "#/two-mice")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    answer = tab.locator("#two-mice .answer")
    assert tab.locator("#two-mice blockquote").first.is_visible()
    assert not answer.is_visible()
    tab.keyboard.press("ArrowRight")
    answer.wait_for(state="visible", timeout=5000)
    assert "never sees the sentence" in answer.inner_text()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("Reveal.getCurrentSlide().id") != "two-mice"


def test_the_speaker_sees_notes(tab, pages):
    tab.goto(pages["1_attention"].as_uri() + "#/two-mice")
    tab.wait_for_function("window.Reveal && Reveal.isReady()")
    with tab.expect_popup() as popup:
        tab.keyboard.press("s")
    popup.value.wait_for_function("document.body.innerText.includes('Let people vote')", timeout=20_000)


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
    bad = cell("<img alt='A picture from somewhere else' src='https://example.org/a.png'><script>nothing()</script>")
    opened(tab, toy(tmp_path, bad))
    assert tab.asked == ["https://example.org/a.png"]
    assert any("nothing is not defined" in line for line in tab.said)


# The printed deck.


def facts(data):
    """What a PDF says of itself, read from its plain objects."""
    return {
        "pages": len(re.findall(rb"/Type\s*/Page\b(?!s)", data)),
        "tagged": b"/Marked true" in data and b"/StructTreeRoot" in data,
        "language": b"/Lang (en" in data,
        "headings": len(re.findall(rb"/S /H[12]\b", data)),
        "pictures": len(re.findall(rb"/Alt\s*[(<]", data)),
        "titles": [_string(*found) for found in re.findall(rb"/Title (?:\(((?:[^)\\]|\\.)*)\)|<(\w+)>)", data)],
    }


def _string(plain, coded):
    """A PDF's string, written out or in the hexadecimal digits of UTF-16."""
    return bytes.fromhex(coded.decode()).decode("utf-16") if coded else re.sub(r"\\(.)", r"\1", plain.decode("latin-1"))


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
    assert found["tagged"] and found["language"]
    assert (found["pages"], found["headings"]) == (count, count)
    assert found["pictures"] == pages[name].read_text("utf-8").count("<figure>") > 20
    said = [stored[name].metadata["title"], *(slide.title for slide in slides(stored[name]))]
    assert sorted(found["titles"]) == sorted(said)  # the document's, and the outline
    assert len(data) < 5_000_000


def test_an_untagged_pdf_is_seen(tab, tmp_path):
    tab.goto(toy(tmp_path, cell("Text.")).as_uri())
    found = facts(tab.pdf(tagged=False, outline=False))
    assert (found["tagged"], found["headings"], found["titles"][1:]) == (False, 0, [])
