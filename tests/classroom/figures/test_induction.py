"""The induction circuit: an arc for each weight that counts, below and above the tokens."""

import pytest
from matplotlib.colors import to_hex

from classroom import figures
from classroom.figures.style import BLUE, VERMILION

TOKENS = ["Lady", "Bell", "smiled", ".", "Lady"]


@pytest.mark.parametrize(
    ("previous", "look", "below", "above"),
    [
        ([0, 1, 1, 1, 1], [0, 0.9, 0, 0, 0.1], 4, 1),
        ([0, 0.5, 0, 0.01, 0], [0.3, 0.3, 0.3, 0.1, 0], 1, 4),
    ],
)
def test_arcs_are_the_weights(previous, look, below, above):
    axes = figures.induction_circuit(TOKENS, previous, look, "Bell").axes[0]
    arcs = [line for line in axes.lines if len(line.get_xdata()) > 1]
    colours = [to_hex(line.get_color()).upper() for line in arcs]
    assert (colours.count(VERMILION.upper()), colours.count(BLUE.upper())) == (below, above)
    for line in arcs:  # the last token's arcs go back, above; the others stay below
        assert (line.get_ydata() > 0).all() == (to_hex(line.get_color()).upper() == BLUE.upper())


def test_the_answer_has_a_box_of_its_own():
    without, with_answer = (
        figures.induction_circuit(TOKENS, [0] * 5, [0, 1, 0, 0, 0], answer)
        for answer in ("", "Bell")
    )
    assert len(with_answer.axes[0].patches) == len(without.axes[0].patches) + 1
