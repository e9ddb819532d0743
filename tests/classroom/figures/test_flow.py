"""Boxes and arrows: each box has its text, each arrow its two ends."""

import pytest

from classroom import figures
from course_lib.errors import CourseError

BOXES = {"a": (0, 0, "plain"), "b": (4, 0, "blue"), "c": (4, -2, "green")}


def test_arrows_lead_from_side_to_side():
    axes = figures.flow(
        BOXES, [("a", "b", "then"), ("b", "c", ""), ("c", "a", "")], box=(2, 1)
    ).axes[0]
    assert len(axes.patches) == 3
    said = [text.get_text() for text in axes.texts]
    assert {"a", "b", "c", "then"} <= set(said)
    ends = [(note.xyann, note.xy) for note in axes.texts if getattr(note, "arrow_patch", None)]
    assert ends == [((1, 0), (3, 0)), ((4, -0.5), (4, -1.5)), ((3, -2), (1, 0))]


def test_an_arrow_needs_boxes():
    with pytest.raises(CourseError, match="no box d"):
        figures.flow(BOXES, [("a", "d", "")])
