"""Positions as pictures: hands of clocks, hidden keys, strips of shares, letters."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from classroom import figures
from classroom.figures.style import BLUE, VERMILION
from course_lib import CourseError


def test_a_hand_at_angle_zero_points_up():
    axes = figures.clocks(["a"], [[[0.0, 1.0]]], ["fast"]).axes[0]
    (hand,) = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
    (x, y), (end_x, end_y) = hand.xyann, hand.xy
    assert end_x == x
    assert end_y > y


def test_a_causal_bias_hides_the_keys_to_the_right():
    maps = [axes.images[0] for axes in figures.bias_maps({"A": torch.ones(2, 3, 3)}).axes[:2]]
    assert all(image.get_array().mask.sum() == 3 for image in maps)


def test_a_scheme_with_fewer_heads_leaves_room():
    rows = {"A": torch.ones(2, 3, 3), "B": torch.ones(1, 3, 3)}
    panels = figures.bias_maps(rows).axes[:4]
    assert [bool(axes.images) for axes in panels] == [True, True, True, False]


def test_a_strip_has_the_models_shares():
    axes = figures.by_position({"x": [0.0, 1.0], "y": [1.0, 1.0]}, mark=1).axes[0]
    assert axes.images[0].get_array().tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]


def test_wrong_letters_have_another_colour():
    axes = figures.echoes("ab", {"x": "ac"}, mark=1).axes[0]
    letters = [text for text in axes.texts if text.get_text() in ("a", "c")]
    colours = {text.get_text(): to_hex(text.get_color()).upper() for text in letters[1:]}
    assert colours == {"a": BLUE.upper(), "c": VERMILION.upper()}
    assert sum(isinstance(patch, Rectangle) for patch in axes.patches) == 4


def test_too_few_letters_are_refused():
    with pytest.raises(CourseError, match="x says 1"):
        figures.echoes("ab", {"x": "a"}, mark=1)


def test_the_doors_name_all_six_schemes():
    texts = " ".join(text.get_text() for text in figures.position_doors().axes[0].texts)
    assert all(name in texts for name in ("sinusoidal", "learned", "Shaw", "T5", "ALiBi", "rotary"))
