"""The map of lesson 21, its table, the way to a chat model, DPO's loss on one pair."""

import re
from pathlib import Path

import numpy as np
import pytest

from classroom import course, figures
from course_lib import CourseError

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
GUIDE = course.contents("21_choosing", "guide.json")
LEAVES = [leaf for leaves in GUIDE["branches"].values() for leaf in leaves]


def texts(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_the_map_has_every_need_and_its_lesson():
    shown = texts(figures.decision_map(GUIDE).axes[0])
    for leaf in LEAVES:
        assert leaf["need"] in shown and leaf["take"] in shown
        assert leaf["lesson"] in course.names() and leaf["lesson"][:2] in shown


def test_a_branch_without_leaves_is_refused():
    with pytest.raises(CourseError, match="leaf"):
        figures.decision_map({"question": "What?", "branches": {"a label": []}})


def test_the_table_links_each_row_to_its_lesson():
    table = figures.evidence(GUIDE)
    links = re.findall(r'href="(\w+)\.ipynb(?:#([\w-]+))?"', table.html)
    assert links == [(leaf["lesson"], leaf.get("at", "")) for leaf in LEAVES]
    for lesson, anchor in links:
        page = (NOTEBOOKS / f"{lesson}.ipynb").read_text("utf-8")
        assert not anchor or f'<a id=\\"{anchor}\\">' in page, (lesson, anchor)
    assert all(leaf["shows"] in repr(table) for leaf in LEAVES)


def test_the_steps_show_the_texts():
    shown = texts(figures.chat_steps("Ask?", "So.", "Good.", "Bad.").axes[0])
    assert {"Ask?", "So.", "Good.", "Bad."} <= set(shown)


def test_the_pair_stands_on_the_curve():
    left, right = figures.dpo_pair((-60.0, -58.0), (-57.0, -63.0), 0.1).axes
    assert texts(left) == ["other: gain -5.0", "preferred: gain +3.0"]
    [curve, now, start] = right.lines
    assert now.get_xdata()[0] == pytest.approx(8.0)
    assert now.get_ydata()[0] == pytest.approx(np.log(1 + np.exp(-0.8)))
    assert start.get_ydata()[0] == pytest.approx(np.log(2))
    assert curve.get_xdata().max() > 8.0
