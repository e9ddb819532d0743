"""The page that `make run` writes, opened from disk in a browser without a network: whole, and it asks for nothing."""

import pytest
from nbformat import v4

from tests.notebooks import toy
from tools.notebooks import lessons, page, scrub
from tools.notebooks.build import read

pytestmark = pytest.mark.browser

CHECK = """() => ({
  broken: [...document.images].filter(i => !(i.complete && i.naturalWidth)).map(i => i.alt),
  silent: [...document.images].filter(i => !i.alt).length,
  formulas: [...document.querySelectorAll('math')].filter(m => m.getBoundingClientRect().width < 3).length,
  tex: [...document.querySelectorAll('.jp-RenderedMarkdown')].filter(e => /\\$[^$ ]+\\$/.test(e.innerText)).length,
  wide: document.documentElement.scrollWidth > document.documentElement.clientWidth + 1,
})"""
FINE = {"broken": [], "silent": 0, "formulas": 0, "tex": 0, "wide": False}


def opened(tab, tmp_path, notebook):
    file = tmp_path / "page of a lesson.html"
    file.write_text(page.html(notebook, "page"), "utf-8")
    tab.goto(file.as_uri())
    return tab.asked, tab.evaluate(CHECK)


# Tables, formulas, figures and widgets of all kinds stand in these; the others come with the slow tests.
QUICK = ("00_start_here", "09_bert", "15_sbert")
PATHS = [pytest.param(p, id=p.stem, marks=[] if p.stem in QUICK else pytest.mark.slow) for p in lessons()]


@pytest.mark.parametrize("path", PATHS)
def test_lesson(tab, tmp_path, path):
    assert opened(tab, tmp_path, scrub.scrub(read(path))) == ([], FINE)


def test_a_page_that_asks_is_seen(tab, tmp_path):
    cells = [v4.new_markdown_cell("<img src='https://example.org/a.png'>"), *toy.cells()]
    outside, found = opened(tab, tmp_path, v4.new_notebook(cells=cells))
    assert outside == ["https://example.org/a.png"]
    assert len(found["broken"]) == 1
