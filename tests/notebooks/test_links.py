"""Every link, anchor, file, command and library name that a reader meets is right; each kind of
slip is seen.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.notebooks import links
from tools.notebooks import ROOT, lessons


@pytest.mark.parametrize("document", links.documents(), ids=lambda document: document.path.stem)
def test_document(document):
    assert links.problems(document) == []


def test_all_that_is_read_is_checked():
    paths = {document.path for document in links.documents()}
    assert {
        *lessons(),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    } <= paths


HERE = Path(__file__).parent
GOOD = (HERE / "page.md").read_text("utf-8")  # as if it stood in docs/
# what stands there, what stands there then, what is said
SLIPS = json.loads((HERE / "slips.json").read_text("utf-8"))


@pytest.fixture
def page():
    """A page beside the docs, removed afterwards."""
    path = ROOT / "docs" / ".test_links.md"
    yield path
    path.unlink(missing_ok=True)


def test_a_good_page_passes(page):
    page.write_text(GOOD, "utf-8")
    assert links.problems(links.open_document(page)) == []


@pytest.mark.parametrize(("old", "new", "message"), SLIPS["page"])
def test_each_slip_is_seen(page, old, new, message):
    assert GOOD.count(old) == 1
    page.write_text(GOOD.replace(old, new), "utf-8")
    links.anchors.cache_clear()  # the page was another one before
    assert any(message in line for line in links.problems(links.open_document(page)))


@pytest.mark.parametrize(("part", "lesson"), [("text", 9), ("shown", 0)])
def test_a_broken_lesson_is_seen(part, lesson):
    document = links.open_document(lessons()[lesson])
    for old, new, message in SLIPS["lesson" if part == "text" else "output"]:
        assert old in getattr(document, part)
        broken = replace(document, **{part: getattr(document, part).replace(old, new)})
        assert any(message in line for line in links.problems(broken)), message
