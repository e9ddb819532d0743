"""Lesson 17's drawings: what stands in them, and in which colours."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from classroom import figures
from classroom.figures.style import TINTS
from course_lib.errors import CourseError

TEXT, SPANS = ["The", "old", "man", "sold", "it", "last", "year", "."], [(1, 2), (5, 1)]
READ = ["The", "<X>", "sold", "it", "<Y>", "year", "."]
TARGET = ["<X>", "old", "man", "<Y>", "last", "<Z>"]


def tints(picture):
    names = {colour: name for name, colour in TINTS.items()}
    boxes = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    return [names[to_hex(patch.get_facecolor())] for patch in boxes]


def test_a_span_and_its_sentinel_have_one_tint() -> None:
    found = tints(figures.corrupted(TEXT, SPANS, READ, TARGET))
    assert found[: len(TEXT)] == ["plain", "blue", "blue", *["plain"] * 2, "orange", *["plain"] * 2]
    assert found[-len(TARGET) :] == ["blue", "blue", "blue", "orange", "orange", "plain"]


def test_sentinels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CourseError, match="sentinel"):
        figures.corrupted(TEXT, SPANS, READ, ["<X>", "old", "man"])


def test_every_text_is_drawn_beside_its_answer() -> None:
    long = "genre: " + "very long " * 9
    picture = figures.one_model(["correct: She have it.", long], ["She has it.", "novel"])
    places = {text.get_text(): text.get_position() for text in picture.axes[0].texts}
    assert places["correct: She have it."][1] == places["She has it."][1]
    assert places["novel"][1] < places["She has it."][1]
    assert sum(text.endswith("...") for text in places) == 1


def test_a_task_has_one_tint() -> None:
    picture = figures.one_model(["correct: a", "genre: b", "correct: c"], ["A", "B", "C"])
    fills = [to_hex(patch.get_facecolor()) for patch in picture.axes[0].patches]
    found = [name for fill in fills for name, tint in TINTS.items() if tint == fill]
    assert [name for name in found if name in ("blue", "orange", "green")] == [
        *["blue"] * 2,
        *["orange"] * 2,
        *["blue"] * 2,
    ]
