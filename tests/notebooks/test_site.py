"""All lessons in a row, broken off and gone on with, and the offline site of them; on two toys."""

import re

import pytest
from nbformat import v4

from course_lib.errors import CourseError
from tests.notebooks import toy
from tools.notebooks import api, lessons, page, site, whole
from tools.notebooks.build import read


def _lesson(path, last):
    links = "\n\n[next](01_second.ipynb), [docs](../docs/world.md#tasks), [code](../tools/lock.py)"
    cells = [
        v4.new_markdown_cell(toy.OPENING + links),
        toy.code('SCALE = "lesson"\nSEED = 0', "parameters"),
        toy.code(last),
    ]
    return toy.write(path, cells)


@pytest.mark.slow
def test_a_run_broken_off_goes_on(tmp_path, monkeypatch):
    first = _lesson(tmp_path / "notebooks" / "00_first.ipynb", "print('ran', SCALE, SEED)")
    second = _lesson(tmp_path / "notebooks" / "01_second.ipynb", "1 / 0")
    monkeypatch.setattr(whole, "lessons", lambda: [first, second])
    monkeypatch.setattr(site, "opening", lambda path: (path.stem, "about *numbers*"))
    out, said = tmp_path / "build", []

    def again():
        said.clear()
        return whole.run_all({"SCALE": "smoke", "SEED": 3}, out, say=said.append, progress=False)

    with pytest.raises(
        CourseError, match=r"1 of 2 failed: 01_second\. The same command runs only these again\."
    ):
        again()
    text = "\n".join(said)
    assert re.search(r"00_first +\d+ s +0\.\d GB$", text, re.MULTILINE)
    assert re.search(
        r"^01_second +failed: Cell \d+ failed with ZeroDivisionError", text, re.MULTILINE
    )
    assert not (out / "site").exists()
    executed = next((out / "run").rglob("00_first.ipynb"))
    assert "ran smoke 3" in str(read(executed).cells[-1].outputs)
    stamp = executed.stat().st_mtime_ns

    _lesson(second, "print('mended')")
    index = again()
    text = "\n".join(said)
    assert "GB  kept from an earlier run" in text and re.search(
        r"01_second +\d+ s +0\.\d GB$", text, re.MULTILINE
    )
    assert re.search(r"2 lessons +\d+ s +0\.\d GB$", text, re.MULTILINE)
    assert executed.stat().st_mtime_ns == stamp and index == out / "site" / "index.html"
    assert "Time and memory as measured" in index.read_text("utf-8")
    shown = (index.parent / "00_first.html").read_text("utf-8")
    assert 'href="01_second.html"' in shown and 'href="world.html#tasks"' in shown
    assert (
        "lock.py" not in re.sub(r"<style.*?</style>", "", shown, flags=re.DOTALL)
        and ">code</a>" not in shown
    )

    again()
    assert executed.stat().st_mtime_ns > stamp, "a run that went through is followed by a new one"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The site of two lessons as they are stored."""
    shown = {path.stem: path for path in lessons()[:2]}
    folder = site.build(tmp_path_factory.mktemp("a path") / "site", shown).parent
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_no_page_fetches_anything_and_every_link_leads_to_a_page(pages):
    assert len(pages) >= 2 + 1 + 4
    for name, text in pages.items():
        assert page.fetched(text) == [] and "viewport" in text
        assert all(f'href="{other}.html"' in text for other in ("index", "glossary", "papers"))
        body = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        for _, address in re.findall(r"""<a\b[^>]*?\bhref=(["'])(.+?)\1""", body):
            place, _, anchor = address.partition("#")
            if re.match(r"[a-z]+:", address):
                continue
            assert (place or name) in pages, f"{name}: {address}"
            assert not anchor or f'id="{anchor}"' in pages[place or name], f"{name}: {address}"
        assert ".ipynb" not in re.sub(
            r"<code.*?</code>|<pre.*?</pre>", "", " ".join(re.findall(r"<a .*?>", body))
        )


def test_the_index_leads_to_all_lessons(pages):
    index = pages["index.html"]
    for path in lessons()[:2]:
        assert f'<a href="{path.stem}.html">' in index
    for name in site.DOCS:
        assert f'<a href="{name}.html">{site.doc_title(name)}</a>' in index
    assert "to come" in index and index.count("<tr") == 1 + len(lessons())
    assert "alt=" in index and "Time and memory" not in index


def test_a_link_out_of_the_site_becomes_text():
    pages = {"notebooks/01_a.ipynb": "01_a.html", "docs/world.md": "world.html"}
    made = (
        '<a href="01_a.ipynb#x">a</a> <a class="b" href="../docs/world.md">w</a> <a'
        ' href="../tools/x.py">t</a>'
    )
    made += '<a href="https://example.org">e</a> <a href="#here">h</a>'
    assert (
        site.linked(made, "notebooks", pages)
        == '<a href="01_a.html#x">a</a> <a class="b" href="world.html">w</a> t<a'
        ' href="https://example.org">e</a> <a href="#here">h</a>'
    )


def test_the_api_pages_show_arguments_and_fetch_nothing(tmp_path):
    api.build(tmp_path, "course_lib.model.attention")
    shown = (tmp_path / "course_lib" / "model" / "attention.html").read_text("utf-8")
    assert "<li><strong>mask:</strong>  True = may attend" in shown
    assert page.fetched(shown) == []


def test_the_index_leads_to_the_api_pages_where_there_are_some():
    assert f'href="api/{api.FIRST}"' in site.index({}, {}, {}, with_api=True)
    assert api.FIRST not in site.index({}, {}, {})


@pytest.mark.browser
def test_pages_fit_a_phone_and_ask_for_nothing(browser, pages, tmp_path):
    for name, text in pages.items():
        (tmp_path / name).write_text(text, "utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 800})
    sheet = context.new_page()
    asked = []
    sheet.on("request", lambda request: asked.append(request.url))
    for name in ("index.html", "01_self_attention.html", "papers.html"):
        sheet.goto((tmp_path / name).as_uri())
        assert sheet.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
