"""ELMo's pictures: the largest answer is the coloured one, each direction has its arrows."""

import pytest
from matplotlib.colors import to_hex

from classroom import figures
from classroom.figures.style import BLUE, GREEN, VERMILION
from course_lib import CourseError


def test_the_window_of_the_largest_answer_is_coloured():
    (axes,) = figures.letter_filters(list("<cat>"), {"at": [0.1, -0.5, 2.0, 0.3]}).axes
    colours = [to_hex(bar.get_facecolor()).upper() for bar in axes.patches]
    assert [place for place, colour in enumerate(colours) if colour == VERMILION] == [2]
    letters = [to_hex(tick.get_color()).upper() for tick in axes.get_xticklabels()]
    assert [place for place, colour in enumerate(letters) if colour == VERMILION] == [2, 3]
    with pytest.raises(CourseError, match="9 answers"):
        figures.letter_filters(list("<cat>"), {"at": [0.0] * 9})


def test_every_step_of_an_lstm_has_three_gates():
    axes = figures.lstm_steps(["muddy", "bank"]).axes[0]
    signs = [text.get_text() for text in axes.texts if text.get_text() in "×+" and text.get_text()]
    assert signs == ["×", "+", "×"] * 2


@pytest.mark.parametrize("count", [1, 4])
def test_each_reader_goes_from_word_to_word(count):
    axes = figures.two_readers([*"abcd"][:count], 0).axes[0]
    arrows = [text.arrow_patch for text in axes.texts if getattr(text, "arrow_patch", None)]
    colours = [to_hex(arrow.get_edgecolor()).upper() for arrow in arrows]
    assert colours.count(BLUE.upper()) == colours.count(GREEN.upper()) == 2 * (count - 1)
    blue = [t for t in axes.texts if getattr(t, "arrow_patch", None)
            and to_hex(t.arrow_patch.get_edgecolor()).upper() == BLUE.upper()]  # fmt: skip
    assert all(text.xy[0] > text.get_position()[0] for text in blue)  # to the right
