"""The page that `make run` writes, opened from disk in a browser without a network: whole, and it
asks for nothing.
"""

import base64

import pytest
from nbformat import v4

from classroom.widgets import card
from tests.notebooks import toy
from tools.notebooks import lessons, page, scrub
from tools.notebooks.build import read

pytestmark = pytest.mark.browser

CHECK = """() => document.querySelectorAll('details.answer').forEach(e => e.open = true) || ({
  broken: [...document.images].filter(i => !(i.complete && i.naturalWidth)).map(i => i.alt),
  silent: [...document.images].filter(i => !i.alt).length,
  formulas: [...document.querySelectorAll('math')]
     .filter(m => m.getBoundingClientRect().width < 3).length,
  tex: [...document.querySelectorAll('.jp-RenderedMarkdown')]
     .filter(e => /\\$[^$ ]+\\$/.test(e.innerText)).length,
  wide: document.documentElement.scrollWidth > document.documentElement.clientWidth + 1,
})"""
FINE = {"broken": [], "silent": 0, "formulas": 0, "tex": 0, "wide": False}


def opened(tab, tmp_path, notebook):
    file = tmp_path / "page of a lesson.html"
    file.write_text(page.html(notebook, "page"), "utf-8")
    tab.goto(file.as_uri())
    return tab.asked, tab.evaluate(CHECK)


# Tables, formulas, figures and widgets of all kinds stand in these; the others come with the slow
# tests.
QUICK = ("00_start_here", "09_bert", "15_sbert")
PATHS = [
    pytest.param(p, id=p.stem, marks=[] if p.stem in QUICK else pytest.mark.slow) for p in lessons()
]


@pytest.mark.parametrize("path", PATHS)
def test_lesson(tab, tmp_path, path):
    assert opened(tab, tmp_path, scrub.scrub(read(path))) == ([], FINE)


ATTACK = (
    "<!--<script>'\"></title></script><img src=x"
    " onerror='window.hit=1'><script>window.hit=1</script>"
)


def test_what_comes_from_data_stays_text(tab, tmp_path):
    """In a title, a tag, a picture's text alternative, printed text, an error, a widget's data."""
    png = {"image/png": base64.b64encode(b"x").decode()}
    shown = [v4.new_output("display_data", png, metadata={"image/png": {"alt": ATTACK}})]
    shown += [
        v4.new_output("stream", text=ATTACK),
        v4.new_output("execute_result", {"text/plain": ATTACK}),
    ]
    shown += [v4.new_output("error", ename=ATTACK, evalue=ATTACK, traceback=[ATTACK])]
    made = card.inline_json([ATTACK, {ATTACK: 1}])
    shown += [
        v4.new_output("display_data", {"text/html": f"<script>window.kept = {made}</script>"})
    ]
    cell = v4.new_code_cell(ATTACK, outputs=shown, metadata={"tags": [ATTACK]})
    file = tmp_path / "attack.html"
    file.write_text(page.html(v4.new_notebook(cells=[cell]), ATTACK), "utf-8")
    tab.goto(file.as_uri())
    assert tab.evaluate("[window.hit, document.images.length, window.kept[0]]") == [None, 1, ATTACK]


def test_a_page_that_asks_is_seen(tab, tmp_path):
    cells = [v4.new_markdown_cell("<img src='https://example.org/a.png'>"), *toy.cells()]
    outside, found = opened(tab, tmp_path, v4.new_notebook(cells=cells))
    assert outside == ["https://example.org/a.png"] and len(found["broken"]) == 1
