"""The README says what is: its table has every lesson, its folders and picture exist.

tests/notebooks/test_links.py holds its links, commands and names.
"""

import re

import pytest

from course_lib.errors import CourseError
from tools import readme
from tools.notebooks import ROOT, lessons

TEXT = readme.README.read_text("utf-8")


def test_the_table_has_every_lesson_and_its_marks():
    found = re.findall(r"^\| \[[^]]+\]\(notebooks/(\w+)\.ipynb\) \|", TEXT, re.MULTILINE)
    assert found == [path.stem for path in lessons()]
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
