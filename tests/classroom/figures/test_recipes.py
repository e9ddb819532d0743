"""Masks over the epochs, shared blocks, and a score that is a sum of three terms."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from classroom import figures
from classroom.figures.recipes import block_weights
from classroom.figures.style import VERMILION
from course_lib import CourseError
from course_lib.families import preset

WORDS = ["the", "old", "lamp"]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_hidden_tokens_are_covered():
    mask = torch.tensor([[True, False, False], [False, True, True]])
    axes = figures.masks_by_epoch(WORDS, {"one": mask}, range(4, 6)).axes[0]
    fills = [to_hex(box.get_facecolor()).upper() for box in axes.patches]
    assert [fill == VERMILION.upper() for fill in fills] == mask.flatten().tolist()
    assert texts(axes) == ["?", "old", "lamp", "the", "?", "?"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["4", "5"]


def test_masks_that_do_not_fit_are_refused():
    with pytest.raises(CourseError, match="masks"):
        figures.masks_by_epoch(WORDS, {"one": torch.zeros(2, 4)}, range(2))


def test_shared_blocks_have_one_colour():
    models = {"BERT": preset("bert-base"), "ALBERT": preset("albert-base")}
    bert, albert = figures.shared_layers(models).axes
    for axes, colours in ((bert, 2), (albert, 1)):
        blocks = [box for box in axes.patches if hasattr(box, "get_boxstyle") and box.get_width()]
        blocks = [box for box in blocks if not isinstance(box, Rectangle)]
        fills = {to_hex(box.get_facecolor()) for box in blocks if box.get_width() == 3.4}
        assert len(fills) == colours
    assert "12 × 7.1 million weights\neach used once" in texts(bert)
    assert "1 × 7.1 million weights\nused 12 times" in texts(albert)


def test_a_blocks_weights_do_not_hang_on_their_number():
    assert block_weights(preset("bert-base")) == block_weights(preset("albert-base"))


def test_the_pair_and_its_distance_are_named():
    said = texts(figures.disentangled("new", "store", -1).axes[0])
    assert {"new", "store", "distance −1"} <= set(said)
