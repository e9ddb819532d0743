"""The README says what is: its table is what was measured, its commands, folders, links and picture exist."""

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


def test_the_table_is_fresh():
    assert readme.update(TEXT) == TEXT, "python -m tools.readme"


def test_a_stale_table_is_seen():
    stale = re.sub(r"\| (\d+) \| ([\d.]+) GB \|", lambda m: f"| {int(m[1]) + 1} | {m[2]} GB |", TEXT)
    assert stale != TEXT
    assert readme.update(stale) == TEXT
    with pytest.raises(CourseError, match="lost the marks"):
        readme.update("no table here")


def test_lessons_keep_their_time():
    """At most 90 seconds on two cores, as the course promises."""
    assert {name: s for name, (s, _) in rows(TEXT).items() if s > 90} == {}


def test_the_picture_is_a_lesson_s_figure():
    assert readme.PICTURE.read_bytes() == readme.picture(), "python -m tools.readme"


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    here = [link for link in links if "://" not in link]
    assert len(here) > 5
    assert [link for link in here if not (ROOT / link).exists()] == []


def test_commands_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    said = set(re.findall(r"\bmake ([a-z]+)\b", TEXT)) - {"the"}
    assert {"lab", "test", "check", "run"} <= said <= targets
    for module in re.findall(r"python -m (tools[\w.]*)", TEXT):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def test_the_map_of_folders_is_whole():
    said = set(re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE))
    there = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "_"))}
    assert said == there - {"build", "out"} - {n for n in there if n.endswith(".egg-info")}
