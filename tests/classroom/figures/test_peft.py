"""The block with new weights in it, and a product of thin matrices."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from classroom import figures
from classroom.figures.style import GREEN, VERMILION
from course_lib import CourseError


def new_boxes(figure, colour):
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return sum(to_hex(box.get_facecolor()).upper() == colour.upper() for box in boxes)


def test_lora_stands_beside_all_six_matrices():
    figure = figures.new_weights({"LoRA": 1234})
    assert new_boxes(figure, VERMILION) == 12 and new_boxes(figure, GREEN) == 0
    assert any("1,234 weights" in text.get_text() for text in figure.axes[0].texts)


def test_adapters_stand_after_both_halves():
    assert new_boxes(figures.new_weights({"adapter": 1, "LoRA": 1}), GREEN) == 6


def test_a_method_without_a_place_is_refused():
    with pytest.raises(CourseError, match="BitFit"):
        figures.new_weights({"BitFit": 1})


def test_the_boxes_of_a_product_tell_their_shapes():
    b, a = torch.ones(6, 2), torch.ones(2, 9)
    texts = [text.get_text() for text in figures.low_rank(b, a, b @ a, {"W": b @ a}).axes[0].texts]
    assert [text for text in texts if "[" in text] == [
        "B [6, 2]\n12 numbers",
        "A [2, 9]\n18 numbers",
        "B A [6, 9]\n54 numbers",
        "W [6, 9]\n54 numbers",
    ]
    assert [text for text in texts if "[" not in text] == ["×", "=", "≈"]


def test_a_product_of_another_shape_is_refused():
    with pytest.raises(CourseError, match="make no"):
        figures.low_rank(torch.ones(6, 2), torch.ones(2, 9), torch.ones(9, 6))
