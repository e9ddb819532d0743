"""The path through the course: the map is what the lessons say, glossary and papers are whole and
fresh.
"""

import copy
import re

import pytest

from classroom.course import lessons as outlines
from classroom.figures import course_map
from classroom.figures.course_map import arrows, route
from tests.slides.rules import contrast
from tools import course, papers
from tools.notebooks import lessons, navigation
from tools.notebooks.build import read

COURSE = outlines()
NAMES = list(COURSE)
LESSONS = {path.stem: read(path) for path in lessons()}
TERMS = course.terms()
ANCHORS = [course.anchor(term) for term in TERMS]
PATHS = pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)


def test_the_table_has_every_lesson_in_order():
    assert [name[:2] for name in NAMES] == [f"{i:02}" for i in range(len(NAMES))]
    assert [path.stem for path in lessons()] == NAMES
    for name, lesson in COURSE.items():
        assert all(need in COURSE and need < name for need in lesson.needs)


@PATHS
def test_the_table_says_what_the_lesson_says(path):
    """Title, previous, next, and what it builds on, read from the opening and the last cell without
    the tool.
    """
    first, place = LESSONS[path.stem].cells[0].source, NAMES.index(path.stem)
    assert first.startswith(f"# {path.stem[:2]} · {COURSE[path.stem].title}"), (
        "python -m tools.course"
    )
    row = next(line for line in first.splitlines() if "You need first" in line)
    assert set(re.findall(r"\((\w+)\.ipynb", row)) == set(COURSE[path.stem].needs), (
        "python -m tools.course"
    )
    before, _, after = first.splitlines()[-1].partition("[glossary]")
    for side, near in ((before, place - 1), (after, place + 1)):
        if 0 <= near < len(NAMES):
            assert f"]({NAMES[near]}.ipynb)" in side, "python -m tools.course"
    if place + 1 < len(NAMES):
        end = f"\nNext: {navigation.link(COURSE[NAMES[place + 1]])}"
        assert end in LESSONS[path.stem].cells[-1].source, "python -m tools.course"


def test_a_new_lesson_gets_its_lines():
    notebook = copy.deepcopy(LESSONS[NAMES[1]])
    notebook.cells[0].source = (
        notebook.cells[0].source.rpartition("\n\n")[0] + "\n\nBefore: x. After: y."
    )
    navigation.lead(notebook, NAMES[1])
    assert notebook == LESSONS[NAMES[1]]


def test_arrows_leave_boxes_alone():
    for need, name in arrows(COURSE):
        boxes = [x.place for x in COURSE.values() if x.name not in (need, name) and not x.wide]
        curve, free = route(COURSE[need].place, COURSE[name].place, boxes, wide=COURSE[name].wide)
        assert all(-0.5 <= x <= 5.5 for x, _ in curve), f"{need} to {name} leaves the picture"
        assert free, (
            f"the arrow from {need} to {name} runs through a box: move one in its lesson.toml"
        )
    assert not route((0.0, 0.0), (0.0, 4.0), [(x / 2, 2.0) for x in range(-9, 10)])[1]


def test_arrows_say_all_that_is_needed_and_no_more():
    drawn = list(arrows(COURSE))
    reached = {name: {need for need, to in drawn if to == name} for name in NAMES}
    for name in NAMES:
        for need in list(reached[name]):
            reached[name] |= reached[need]
        assert set(COURSE[name].needs) <= reached[name]
        assert name == NAMES[0] or reached[name]  # no box stands alone
    assert len({lesson.place for lesson in COURSE.values()}) == len(COURSE)
    assert all(
        lesson.place[1] > COURSE[need].place[1]
        for lesson in COURSE.values()
        for need in lesson.needs
    )


def test_the_map_can_be_read_without_its_colours():
    """Every box names its family, and the list says the same."""
    figure, shown = course_map.lesson_map("00"), course_map.lesson_list()
    said = [text.get_text() for text in figure.axes[0].texts]
    for lesson in COURSE.values():
        assert any(text.startswith(f"{lesson.number} ") for text in said)
        assert f'href="{lesson.name}.ipynb"' in shown._repr_html_()
        assert f"{lesson.number} {lesson.title}" in repr(shown)


def test_the_map_in_lesson_00_has_the_titles_of_today():
    cell = next(cell for cell in LESSONS[NAMES[0]].cells if "lesson_list()" in cell.source)
    stored = cell.outputs[0].data["text/plain"]
    for lesson in COURSE.values():
        title = f"{lesson.number} {lesson.title} ("
        assert title in stored, f"make build LESSON={NAMES[0]}"


@pytest.mark.parametrize("tint", sorted(set(course_map._TINTS.values())))
def test_the_maps_text_is_dark_on_light(tint):
    assert contrast(course_map.TINTS[tint], course_map.INK) > 7


def test_what_is_written_is_fresh():
    for path, text in course.written(LESSONS).items():
        assert path.read_text("utf-8") == text, "python -m tools.course"


@pytest.mark.parametrize("term", TERMS)
def test_a_term(term):
    """One sentence, an anchor of its own, and a lesson whose text has the word."""
    assert ANCHORS.count(course.anchor(term)) == 1
    entry = TERMS[term]
    says = entry["says"]
    assert says[0].isupper() and says.endswith(".") and 4 <= len(says.split()) <= 40
    assert not re.search(r"[.!?] [A-Z]", says)
    text = "\n".join(cell.source for cell in LESSONS[entry["lesson"]].cells)
    assert entry.get("word", term).casefold() in text.casefold()


@PATHS
def test_every_paper_of_a_lesson_is_listed(path):
    notebook, known = LESSONS[path.stem], papers.listed()
    assert papers.unread(notebook) == [], "Authors, *Title*, Venue Year"
    cited = papers.read_on(notebook)
    assert cited
    for paper in cited:
        matching = [p for p in known if p.same(paper)]
        assert len(matching) == 1, f"python -m tools.course adds {paper.title}"
        words = paper.venue.split()
        assert not words or set(words) & set(matching[0].venue.split()), (
            f"{paper.title}: {matching[0].venue}?"
        )


def test_every_listed_paper_is_of_a_lesson():
    cited = [paper for notebook in LESSONS.values() for paper in papers.read_on(notebook)]
    sources = [text for texts in papers.figures().values() for text in texts]
    for paper in papers.listed():
        assert paper.says.endswith((".", "?")) and len(paper.says.split()) >= 1
        assert any(paper.same(other) for other in cited) or any(
            papers.behind(text, [paper]) for text in sources
        )


def test_every_source_of_figures_is_listed():
    known = papers.listed()
    for name, texts in papers.figures().items():
        for text in texts:
            years = {
                int(year)
                for year in re.findall(r"\b(?:19|20)\d\d\b", text)
                if f"to {year}" not in text
            }
            assert {p.year for p in papers.behind(text, known)} >= years, f"{name}: {text}"


@pytest.mark.parametrize(
    ("old", "new"),
    [("All You Need", "All You Want"), ("NeurIPS 2017", "NeurIPS 2018"), ("Vaswani", "Vasvani")],
)
def test_a_changed_citation_is_seen(old, new):
    notebook = copy.deepcopy(LESSONS[NAMES[1]])
    assert old in notebook.cells[-1].source
    notebook.cells[-1].source = notebook.cells[-1].source.replace(old, new)
    notebook.cells[-1].source += "\n\n* *A Paper Without Authors or Year*. It is good."
    assert any(
        not any(p.same(paper) for p in papers.listed()) for paper in papers.read_on(notebook)
    )
    assert papers.unread(notebook) == ["A Paper Without Authors or Year"]
