"""The README says what is: its table is what was measured, its folders and picture exist.

tests/notebooks/test_links.py holds its links, commands and names.
"""

import re

import pytest

from course_lib.errors import CourseError
from tools import readme
from tools.notebooks import ROOT, lessons, record

TEXT = readme.README.read_text("utf-8")


def rows(text):
    """Lesson's file -> (seconds, gigabytes), read from the table itself."""
    pattern = r"^\| \[[^]]+\]\(notebooks/(\w+)\.ipynb\) \|.*\| (\d+) \| ([\d.]+) GB \|$"
    return {name: (int(s), float(gb)) for name, s, gb in re.findall(pattern, text, re.MULTILINE)}


def test_the_table_is_what_was_measured():
    known = record.known()
    found = rows(TEXT)
    assert list(found) == [path.stem for path in lessons()]
    for name, (seconds, gigabytes) in found.items():
        assert seconds == round(known[name]["seconds"])
        assert gigabytes == pytest.approx(known[name]["peak_mb"] / 1024, abs=0.051)
        assert seconds <= 90  # on two cores, as the course promises


def test_the_table_is_fresh_and_a_stale_one_is_seen():
    assert readme.update(TEXT) == TEXT, "python -m tools.readme"
    stale = re.sub(
        r"\| (\d+) \| ([\d.]+) GB \|", lambda m: f"| {int(m[1]) + 1} | {m[2]} GB |", TEXT
    )
    assert stale != TEXT and readme.update(stale) == TEXT
    with pytest.raises(CourseError, match="lost the marks"):
        readme.update("no table here")


def test_the_picture_is_a_lesson_s_figure():
    assert readme.PICTURE.read_bytes() == readme.picture(), "python -m tools.readme"


def test_the_map_of_folders_is_whole():
    said = set(re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE))
    there = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "_"))}
    assert said == there - {"build", "out", "student"} - {
        n for n in there if n.endswith(".egg-info")
    }


def test_every_page_of_docs_is_linked():
    assert {p.name for p in (ROOT / "docs").glob("*.md")} <= set(
        re.findall(r"\]\(docs/(\w+\.md)\)", TEXT)
    )
