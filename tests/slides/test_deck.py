"""Decks as data: how cells become slides, what every deck must have, and that each rule finds its slip."""

import copy
import re

import pytest
from nbformat import v4

from course_lib.errors import CourseError
from tests.slides.toy import cell, code, deck, picture
from tools import browser
from tools.notebooks import build
from tools.notebooks import page as lessons_page
from tools.slides import ROOT, __main__, decks, find, page, rules
from tools.slides.deck import parts, slides

NOTE = "**1 min** · " + "word " * 25


def toy():
    """Setup, title, one part with a slide in two columns whose answer comes a step later."""
    return deck(
        code("x = 1", kind="skip"),
        cell("# A toy", "slide", name="title"),
        cell("**1 min** · Hello.", "notes"),
        cell("# 1 · Part", "slide", name="part"),
        cell("## A <slide> & $x^2$\n\nBelow the heading.", "slide", name="one"),
        cell("> **Question.** Why?", "", "left"),
        code("draw()", picture(), "fragment", "right", "remove_input"),
        cell("> **Answer.** So.", "", "left"),
        code("print('seen')", [v4.new_output("stream", text="seen\n")]),
        cell(NOTE, "notes"),
        cell("More for the speaker."),
        cell("## Two", "slide", name="two"),
    )


def test_cells_become_slides():
    title, part, one, two = slides(toy())
    assert [s.level for s in (title, part, one, two)] == [1, 1, 2, 2]
    assert (title.part, part.part, one.part, two.part) == ("", "", "1 · Part", "1 · Part")
    assert [len(row) for row in one.rows()] == [1, 3, 1]
    assert [p.step for p in one.pieces] == [0, 0, 1, 1, 1]
    assert one.minutes == 1
    assert one.notes.endswith("More for the speaker.")
    assert parts([title, part, one, two]) == {"1 · Part": 2}


def test_a_slide_as_html():
    text = page.section(slides(toy())[2])
    assert text.startswith('<section id="one">')
    assert '<p class="part">1 · Part</p>' in text
    assert "<math" in text
    assert text.index("Question") < text.index("Answer")
    assert re.search(r'<div class="row answer fragment" data-fragment-index="1">\s*<blockquote>', text)
    assert re.search(r'<div class="row fills fragment" data-fragment-index="1"><figure><img src="data:image/png', text)
    assert 'alt="A blue square, a hundred pixels wide"' in text
    assert "<figcaption>A square to look at.</figcaption>" in text
    assert "draw" not in text  # hidden code
    assert "print" in text
    assert '<pre class="output">seen</pre>' in text
    assert text.count('<aside class="notes">') == 1


def test_a_page_stands_alone():
    text = page.html(toy())
    body = text[text.index("<body>") : text.index("<script>")]
    assert lessons_page.fetched(body) == []
    assert lessons_page.fetched(text[: text.index("<body>")]) == []
    assert "<title>A toy</title>" in text
    assert text.count("</script>") == 3  # what ends a script stands in none of them


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([cell("no heading", "slide")], "first line must be a heading"),
        ([code("1", kind="slide")], "first line must be a heading"),
        ([cell("text", "fragment")], "before the first slide"),
        ([cell("## x", "subslide")], "slide type 'subslide'"),
    ],
)
def test_what_cannot_be_a_slide_is_one_sentence(cells, message):
    with pytest.raises(CourseError, match=message):
        slides(deck(*cells))


def test_stale_code_is_refused():
    made = toy()
    made.cells[0].execution_count = None
    with pytest.raises(CourseError, match="never executed"):
        page.html(made)


def test_without_a_browser_there_is_still_a_page(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(browser, "chromium", lambda: None)
    __main__.make(["1"], tmp_path / "out")
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["1_attention.html"]
    assert "No PDF was made. There is no Chromium" in capsys.readouterr().err


def test_find():
    assert find("1").stem == "1_attention"
    assert find(str(decks()[0])) == decks()[0]
    with pytest.raises(CourseError, match="Say DECK=<one of: 1_attention"):
        find("7_nothing")


def test_what_is_vendored_is_small_and_licensed():
    files = [f for f in page.VENDOR.iterdir() if f.is_file()]
    assert "Permission is hereby granted" in (page.VENDOR / "LICENSE").read_text("utf-8")
    assert sum(f.stat().st_size for f in files) < 500_000


def test_colours_are_told_apart_from_their_ground():
    theme = (page.HERE / "theme.css").read_text("utf-8")
    colour = dict(re.findall(r"--([\w-]+): (#\w{6})", theme))
    pairs = [("ink", "yellow-tint"), ("ink", "green-tint"), ("blue", None), ("quiet", None)]
    for ink, ground in pairs:
        assert contrast(colour[ink], colour[ground] if ground else "#ffffff") > 4.5, ink


def contrast(a, b):
    """Of two colours, as the accessibility guidelines reckon it: 1 to 21."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# The real decks.


@pytest.mark.parametrize("path", decks(), ids=lambda path: path.stem)
def test_every_deck_keeps_the_rules(path):
    assert build.is_scrubbed(path), "python -m tools.slides build"
    assert rules.problems(build.read(path)) == []


def test_the_readme_says_how():
    text = (ROOT / "README.md").read_text("utf-8")
    assert "make slides" in text
    for path in decks():
        assert f"slides/{path.name}" in text


# Each rule finds its slip.


@pytest.fixture(scope="module")
def good(stored):
    return stored["1_attention"]


def _first(n, piece, kind=None):
    return next(c for c in n.cells if piece in c.source and kind in (None, c.cell_type))


def _no_title(n):
    del n.metadata["title"]


def _few(n):
    n.cells = n.cells[:30]


def _no_claims(n):
    _first(n, "## Claims").source = "## Statements"


def _same_id(n):
    headed = [c for c in n.cells if c.metadata.get("slideshow", {}).get("slide_type") == "slide"]
    headed[3]["id"] = headed[4]["id"]


def _no_minutes(n):
    note = _first(n, "**2 min**")
    note.source = note.source.replace("**2 min**", "Two minutes")


def _silent(n):
    note = _first(n, "Let people vote")
    note.source = note.source.partition("·")[0] + "· Go on."


def _formula(n):
    _first(n, "**2 min**").source += " $x$"


def _longer(n):
    note = _first(n, "**2 min**")
    note.source = note.source.replace("**2 min**", "**3 min**")


def _other_agenda(n):
    agenda = _first(n, "| 1 · The problem")
    agenda.source = re.sub(r"(1 · The problem .*\|) *\d+ *\|", r"\1 99 |", agenda.source)


def _answer_at_once(n):
    for c in n.cells:
        if c.metadata.get("slideshow", {}).get("slide_type") == "fragment":
            del c.metadata["slideshow"]


def _no_answer(n):
    _first(n, "> **Answer", "markdown").source = "So it is."


def _wall(n):
    _first(n, "## What to remember").source += "\n\n" + "many more words " * 30


def _unknown_tag(n):
    n.cells[0].metadata["tags"] = ["hide"]


def _unexecuted(n):
    _first(n, "view.show", "code").execution_count = None


def _warning(n):
    _first(n, "view.show", "code").outputs = [v4.new_output("stream", name="stderr", text="UserWarning: x")]


def _no_alt(n):
    shown = next(
        c for c in n.cells if c.cell_type == "code" and any("image/png" in o.get("data", {}) for o in c.outputs)
    )
    shown.outputs[0].metadata = {}


def _fetches(n):
    html = '<img src="https://example.org/a.png" alt="A picture from elsewhere">'
    _first(n, "view.show", "code").outputs = [v4.new_output("display_data", data={"text/html": html})]


SLIPS = [
    (_no_title, "no title"), (_few, "to 56 fit a lecture"), (_no_claims, "'claims'"), (_same_id, "same cell id"),
    (_no_minutes, "do not begin with minutes"), (_silent, "fewer than"), (_formula, "formula in the notes"),
    (_longer, "not 90"), (_other_agenda, "agenda does not give '1 · The problem'"), (_answer_at_once, "question(s)"),
    (_no_answer, "question(s)"), (_wall, "words, more than"), (_unknown_tag, "hide"), (_unexecuted, "never executed"),
    (_warning, "a warning"), (_no_alt, "text alternative"), (_fetches, "example.org"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Non-unique cell id")
@pytest.mark.parametrize(("slip", "message"), SLIPS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_rule_finds_its_slip(good, slip, message):
    bad = copy.deepcopy(good)
    slip(bad)
    assert any(message in line for line in rules.problems(bad)), rules.problems(bad)
