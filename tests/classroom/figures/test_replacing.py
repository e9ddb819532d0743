"""The drawings of ELECTRA show what they are given."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from classroom import figures
from course_lib.errors import CourseError

TEXT, FILLED = ["the", "old", "dog", "sat"], ["the", "old", "cat", "sat"]
SHARES = torch.tensor([0.0, 0.1, 0.9, 0.2])


def test_the_suspected_is_darker_and_the_changed_is_framed() -> None:
    axes = figures.suspects(FILLED, SHARES, [False, False, True, False]).axes[0]
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [box.get_linewidth() > 2 for box in boxes] == [False, False, True, False]
    assert to_hex(boxes[0].get_facecolor()) == "#ffffff"
    green = [box.get_facecolor()[1] for box in boxes]  # vermilion has little of it
    assert green[0] > green[1] > green[3] > green[2]
    assert [text.get_text() for text in axes.texts][1::2] == ["0%", "10%", "90%", "20%"]


def test_a_hidden_token_that_was_not_replaced_has_a_dashed_frame() -> None:
    hidden, changed = [True, True, False, False], [False, True, False, False]
    axes = figures.suspects(FILLED, SHARES, changed, hidden).axes[0]
    assert [box.get_linestyle() != "solid" for box in axes.patches] == [True, False, False, False]


def test_a_long_text_goes_on_in_the_next_line() -> None:
    axes = figures.suspects(["word"] * 40, torch.zeros(40)).axes[0]
    assert len({patch.get_y() for patch in axes.patches}) > 1
    with pytest.raises(CourseError, match="2 tokens, 4 probabilities"):
        figures.suspects(["a", "b"], SHARES)


def test_every_token_gets_an_answer_and_only_hidden_ones_are_guessed() -> None:
    chosen = [False, True, True, False]
    axes = figures.electra_networks(TEXT, chosen, FILLED, SHARES).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("[MASK]") == 2 and texts.count("generator") == 1
    assert [text for text in texts if text.endswith("%")] == [
        "no  0%",
        "no  10%",
        "yes  90%",
        "no  20%",
    ]
    assert len(axes.lines) == 2  # the tokens that go round the generator
