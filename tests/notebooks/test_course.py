"""The path through the course: the map's table is what the lessons say, glossary and papers are whole and fresh."""

import copy
import json
import re

import pytest

from course_lib.view import course_map
from course_lib.view.course_map import arrows, planned, route
from tools import course, papers
from tools.notebooks import ROOT, lessons, navigation
from tools.notebooks.build import read

COURSE = planned()
NAMES = list(COURSE)
TERMS = json.loads((ROOT / "data" / "glossary.json").read_text("utf-8"))["terms"]
PATHS = pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)


def test_the_table_has_every_lesson_in_order():
    assert [name[:2] for name in NAMES] == [f"{i:02}" for i in range(len(NAMES))]
    assert {path.stem for path in lessons()} <= set(NAMES)
    for name, lesson in COURSE.items():
        assert all(need in COURSE and need < name for need in lesson.needs)


@PATHS
def test_the_table_says_what_the_lesson_says(path):
    """Title, previous, next, and what it builds on, read from the opening cell without the tool."""
    first, place = read(path).cells[0].source, NAMES.index(path.stem)
    assert first.startswith(f"# {path.stem[:2]} · {COURSE[path.stem].title}"), "python -m tools.course"
    row = next(line for line in first.splitlines() if "You need first" in line)
    assert set(re.findall(r"\((\w+)\.ipynb", row)) == set(COURSE[path.stem].needs), "python -m tools.course"
    before, _, after = first.splitlines()[-1].partition("[glossary]")
    standing = {p.stem for p in lessons()}
    for side, near in ((before, place - 1), (after, place + 1)):
        if 0 <= near < len(NAMES):
            link = f"]({NAMES[near]}.ipynb)"
            assert (link in side) == (NAMES[near] in standing), "python -m tools.course"


@PATHS
def test_the_end_leads_on(path):
    last = read(path).cells[-1].source
    place = NAMES.index(path.stem) + 1
    if place < len(NAMES):
        assert f"\nNext: {navigation.link(COURSE[NAMES[place]])}" in last, "python -m tools.course"


def test_a_new_lesson_gets_its_lines():
    notebook = copy.deepcopy(read(lessons()[1]))
    notebook.cells[0].source = notebook.cells[0].source.rpartition("\n\n")[0] + "\n\nBefore: x. After: y."
    navigation.lead(notebook, lessons()[1].stem)
    assert notebook == read(lessons()[1])


def test_arrows_leave_boxes_alone():
    for need, name in arrows(COURSE):
        boxes = [x.place for x in COURSE.values() if x.name not in (need, name) and x.number != "21"]
        _, free = route(COURSE[need].place, COURSE[name].place, boxes, wide=name[:2] == "21")
        assert free, f"the arrow from {need} to {name} runs through a box: move one in data/course.json"
    assert not route((0.0, 0.0), (0.0, 4.0), [(x / 2, 2.0) for x in range(-9, 10)])[1]


def test_arrows_say_all_that_is_needed_and_no_more():
    drawn = list(arrows(COURSE))
    reached = {name: {need for need, to in drawn if to == name} for name in NAMES}
    for name in NAMES:
        for need in list(reached[name]):
            reached[name] |= reached[need]
        assert set(COURSE[name].needs) <= reached[name]
    assert len({lesson.place for lesson in COURSE.values()}) == len(COURSE)
    assert all(lesson.place[1] > COURSE[need].place[1] for lesson in COURSE.values() for need in lesson.needs)


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_map_can_be_read_without_its_colours():
    """Dark text on light fills; every box names its family; lessons to come differ by the line, not by colour alone."""
    for tint in course_map._TINTS.values():
        light, dark = _luminance(course_map.TINTS[tint]), _luminance(course_map.INK)
        assert (light + 0.05) / (dark + 0.05) > 7
    figure = course_map.lesson_map("00", ready=["00"])
    said = [text.get_text() for text in figure.axes[0].texts]
    for lesson in COURSE.values():
        assert any(text.startswith(f"{lesson.number} ") for text in said)
    styles = {box.get_linestyle() for box in figure.axes[0].patches if hasattr(box, "get_boxstyle")}
    assert len(styles) == 2


def test_the_list_says_the_same():
    shown = course_map.lesson_list()
    for lesson in COURSE.values():
        assert (f'href="{lesson.name}.ipynb"' in shown._repr_html_()) == lesson.ready
        assert f"{lesson.number} {lesson.title}" in repr(shown)


def test_what_is_written_is_fresh():
    notebooks = {path.stem: read(path) for path in lessons()}
    for path, text in course.written(notebooks).items():
        assert path.read_text("utf-8") == text, "python -m tools.course"


@pytest.mark.parametrize("row", TERMS, ids=lambda row: row["term"])
def test_a_term(row):
    """One sentence, and a lesson whose text has the word."""
    says = row["says"]
    assert says[0].isupper() and says.endswith(".") and 4 <= len(says.split()) <= 40
    assert not re.search(r"[.!?] [A-Z]", says)
    assert row["lesson"] in COURSE
    path = ROOT / "notebooks" / f"{row['lesson']}.ipynb"
    if path.exists():
        text = "\n".join(cell.source for cell in read(path).cells).casefold()
        assert row.get("word", row["term"]).casefold() in text


def test_terms_stand_once():
    anchors = [course.anchor(row["term"]) for row in TERMS]
    assert len(set(anchors)) == len(anchors) > 100


@PATHS
def test_every_paper_of_a_lesson_is_listed(path):
    notebook, known = read(path), papers.listed()
    assert papers.unread(notebook) == [], "Authors, *Title*, Venue Year"
    cited = papers.read_on(notebook)
    assert cited
    for paper in cited:
        matching = [p for p in known if p.same(paper)]
        assert len(matching) == 1, f"python -m tools.course adds {paper.title}"
        words = paper.venue.split()
        assert not words or set(words) & set(matching[0].venue.split()), f"{paper.title}: {matching[0].venue}?"


def test_every_listed_paper_is_of_a_lesson():
    cited = [paper for path in lessons() for paper in papers.read_on(read(path))]
    sources = [text for texts in papers.figures().values() for text in texts]
    for paper in papers.listed():
        assert paper.says.endswith((".", "?")) and len(paper.says.split()) >= 1
        assert any(paper.same(other) for other in cited) or any(papers.behind(text, [paper]) for text in sources)


def test_every_source_of_figures_is_listed():
    known = papers.listed()
    for name, texts in papers.figures().items():
        for text in texts:
            years = {int(year) for year in re.findall(r"\b(?:19|20)\d\d\b", text) if f"to {year}" not in text}
            assert {p.year for p in papers.behind(text, known)} >= years, f"{name}: {text}"


@pytest.mark.parametrize(
    ("old", "new"),
    [("All You Need", "All You Want"), ("NeurIPS 2017", "NeurIPS 2018"), ("Vaswani", "Vasvani")],
)
def test_a_changed_citation_is_seen(old, new):
    notebook = copy.deepcopy(read(lessons()[1]))
    last = notebook.cells[-1]
    assert old in last.source
    last.source = last.source.replace(old, new)
    assert any(not any(p.same(paper) for p in papers.listed()) for paper in papers.read_on(notebook))


def test_a_title_that_cannot_be_read_is_seen():
    notebook = copy.deepcopy(read(lessons()[1]))
    notebook.cells[-1].source += "\n\n* *A Paper Without Authors or Year*. It is good."
    assert papers.unread(notebook) == ["A Paper Without Authors or Year"]
