"""Who sees whom: the output that answers for a gap, and what reaches it in the picture."""

import pytest
import torch
from matplotlib.colors import to_hex

from classroom import figures
from classroom.figures.contexts import answering
from classroom.figures.style import BLUE, VERMILION
from course_lib import CourseError

LEFT = torch.ones(5, 5).tril().bool()
BOTH = torch.ones(5, 5).bool()


@pytest.mark.parametrize(("mask", "output"), [(LEFT, 0), (LEFT.T, 2), (BOTH, 1)])
def test_the_output_that_answers(mask, output):
    assert answering(mask, gap=1) == output


@pytest.mark.parametrize(
    ("masks", "from_left", "from_right"), [([LEFT], 1, 0), ([LEFT, LEFT.T], 1, 3), ([BOTH], 1, 3)]
)
def test_arrows_come_from_what_the_output_sees(masks, from_left, from_right):
    axes = figures.who_sees_whom(["a", "?", "b", "c", "d"], {"net": masks}, gap=1).axes[0]
    arrows = [text.arrow_patch for text in axes.texts if getattr(text, "arrow_patch", None)]
    colours = [to_hex(arrow.get_edgecolor()).upper() for arrow in arrows]
    assert (colours.count(BLUE.upper()), colours.count(VERMILION.upper())) == (
        from_left,
        from_right,
    )


def test_the_cells_of_a_mask_have_the_colours_of_their_sides():
    axes = figures.who_sees_whom(list("ab?de"), {"ELMo": [LEFT, LEFT.T], "BERT": [BOTH]}, 2).axes
    forward, backward = (mesh.get_array().tolist() for mesh in axes[2].collections)
    (two_sided,) = (mesh.get_array().tolist() for mesh in axes[3].collections)
    assert (forward[1], backward[1]) == ([-1, -1, 0, 0, 0], [0, 1, 1, 1, 1])
    assert two_sided[1] == [-1, 2, 1, 1, 1]


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(CourseError, match="GPT"):
        figures.who_sees_whom(["a", "b"], {"GPT": [LEFT]}, gap=1)


def test_the_likeliest_word_stands_on_top():
    said = {"x": ("a", [("first", 0.6), ("second", 0.1)])}
    axes = figures.gap_guesses("a [MASK]", said).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["second", "first"]
