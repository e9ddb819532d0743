"""The drawing of an encoder-decoder that restores a text: its words, and who sees whom."""

import pytest
from matplotlib.patches import Circle

from classroom import figures
from classroom.figures.style import BLUE, GREEN
from course_lib.errors import CourseError

SOURCE = ["She", ("[MASK]", "orange"), "."]
TARGET = ["She", "sat", "down", "."]


def colours(picture):
    """The colours of its arrows."""
    [axes] = picture.axes
    return [one.arrow_patch.get_edgecolor() for one in axes.texts if hasattr(one, "arrow_patch")]


def count(picture, colour):
    from matplotlib.colors import to_rgba

    return colours(picture).count(to_rgba(colour))


@pytest.mark.parametrize("at", [0, 2, 3])
def test_a_position_sees_the_whole_source_and_what_was_read(at):
    picture = figures.restoring(SOURCE, TARGET, at)
    assert count(picture, GREEN) == len(SOURCE)
    assert count(picture, BLUE) == at + 1


def test_the_decoder_reads_the_target_one_place_later():
    picture = figures.restoring(SOURCE, TARGET, 1)
    [axes] = picture.axes
    shown = {(text.get_text(), round(text.get_position()[1], 2)) for text in axes.texts}
    heights = sorted({height for text, height in shown if text == "She"})
    assert len(heights) == 3  # source, decoder, labels
    read = {text for text, height in shown if height == heights[1]}
    assert {"[start]", "She", "sat", "down"} <= read and "." not in read
    assert sum(isinstance(patch, Circle) for patch in axes.patches) == len(SOURCE) + len(TARGET)


def test_a_token_that_is_not_there():
    with pytest.raises(CourseError, match="no token 4"):
        figures.restoring(SOURCE, TARGET, 4)
