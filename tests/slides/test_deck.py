"""Decks as data: how cells become slides, what every deck must have, and that each rule finds its
slip.
"""

import copy
import re

import pytest
from nbformat import v4

from course_lib.errors import CourseError
from tests.notebooks.toy import edit
from tests.slides import rules
from tests.slides.toy import cell, code, deck, picture, png
from tools import browser
from tools.notebooks import build
from tools.notebooks import page as lessons_page
from tools.slides import __main__, decks, find, page
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
    found = [(slide.level, slide.part) for slide in (title, part, one, two)]
    assert found == [(1, ""), (1, ""), (2, "1 · Part"), (2, "1 · Part")]
    assert [len(row) for row in one.rows()] == [1, 3, 1]
    assert [p.step for p in one.pieces] == [0, 0, 1, 1, 1] and one.minutes == 1
    assert one.notes.endswith("More for the speaker.") and parts([title, part, one, two]) == {
        "1 · Part": 2
    }


def test_a_slide_as_html():
    text = page.section(slides(toy())[2])
    assert (
        text.startswith('<section id="one">')
        and '<p class="part">1 · Part</p>' in text
        and "<math" in text
    )
    assert text.index("Question") < text.index("Answer")
    assert re.search(
        r'<div class="row answer fragment" data-fragment-index="1">\s*<blockquote>', text
    )
    assert re.search(
        r'<div class="row fills fragment" data-fragment-index="1"><figure><img src="data:image/png',
        text,
    )
    assert 'alt="A blue square, a hundred pixels wide"' in text
    assert "<figcaption>A square to look at.</figcaption>" in text
    assert "draw" not in text  # hidden code
    assert (
        "print" in text
        and '<pre class="output">seen</pre>' in text
        and text.count('<aside class="notes">') == 1
    )


def test_a_page_stands_alone():
    text = page.html(toy())
    body = text[text.index("<body>") : text.index("<script>")]
    assert (
        lessons_page.fetched(body) == []
        and lessons_page.fetched(text[: text.index("<body>")]) == []
    )
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
    assert find("1") == find(str(decks()[0])) == decks()[0]
    with pytest.raises(CourseError, match="Say DECK=<one of: 1_attention"):
        find("7_nothing")


def test_what_is_vendored_is_small_and_licensed():
    files = [f for f in page.VENDOR.iterdir() if f.is_file()]
    assert "Permission is hereby granted" in (page.VENDOR / "LICENSE").read_text("utf-8")
    assert sum(f.stat().st_size for f in files) < 500_000


@pytest.mark.parametrize(
    ("ink", "ground"), [("ink", "yellow-tint"), ("ink", "green-tint"), ("blue", ""), ("quiet", "")]
)
def test_colours_are_told_apart_from_their_ground(ink, ground):
    theme = (page.HERE / "theme.css").read_text("utf-8")
    colour = dict(re.findall(r"--([\w-]+): (#\w{6})", theme)) | {"": "#ffffff"}
    assert rules.contrast(colour[ink], colour[ground]) > 4.5


# The real decks.


@pytest.mark.parametrize("path", decks(), ids=lambda path: path.stem)
def test_every_deck_keeps_the_rules(path):
    assert build.is_scrubbed(path), "python -m tools.slides build"
    assert rules.problems(build.read(path)) == []


# Each rule finds its slip.


@pytest.fixture(scope="module")
def good(stored):
    """The first deck with small pictures, which are read for each slip."""
    notebook, small = copy.deepcopy(stored["1_attention"]), png(60, 60)
    for output in (output for c in notebook.cells for output in c.get("outputs", ())):
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = small
    return notebook


def _same_id(n):
    headed = [c for c in n.cells if c.metadata.get("slideshow", {}).get("slide_type") == "slide"]
    headed[3]["id"] = headed[4]["id"]


def _answer_at_once(n):
    for c in n.cells:
        if c.metadata.get("slideshow", {}).get("slide_type") == "fragment":
            del c.metadata["slideshow"]


def _no_alt(n):
    shown = (
        c
        for c in n.cells
        if c.cell_type == "code" and any("image/png" in o.get("data", {}) for o in c.outputs)
    )
    next(shown).outputs[0].metadata = {}


WARNING = [v4.new_output("stream", name="stderr", text="UserWarning: x")]
FETCHES = '<img src="https://example.org/a.png" alt="A picture from elsewhere">'
SHOWS = {"piece": "figures.show", "kind": "code"}
SLIPS = [
    ("no title", lambda n: n.metadata.pop("title")),
    ("'claims'", edit("## Claims", "## Claims", "## Statements")),
    ("same cell id", _same_id),
    ("do not begin with minutes", edit("**2 min**", "**2 min**", "Two minutes")),
    ("formula in the notes", edit("**2 min**", new=" $x$")),
    (
        "agenda does not give '1 · The problem'",
        edit("| 1 · The problem", "| 1 · The problem", "| 1 · The question"),
    ),
    ("question(s)", _answer_at_once),
    ("question(s)", edit("> **Answer", kind="markdown", source="So it is.")),
    ("hide", lambda n: n.cells[0].metadata.update(tags=["hide"])),
    ("never executed", edit(**SHOWS, execution_count=None)),
    ("a warning", edit(**SHOWS, outputs=WARNING)),
    ("text alternative", _no_alt),
    (
        "example.org",
        edit(**SHOWS, outputs=[v4.new_output("display_data", data={"text/html": FETCHES})]),
    ),
]


@pytest.mark.filterwarnings("ignore:Non-unique cell id")
@pytest.mark.parametrize(("message", "slip"), SLIPS)
def test_each_rule_finds_its_slip(good, message, slip):
    bad = copy.deepcopy(good)
    slip(bad)
    assert any(message in line for line in rules.problems(bad)), rules.problems(bad)
