"""The drawing of a teacher, its student and their losses shows what it is given."""

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from classroom import figures
from course_lib.errors import CourseError

WORDS = ["sent", "took"]
SHARES = {"teacher": torch.tensor([0.6, 0.2]), "student": torch.tensor([0.3, 0.1])}


def picture(layers: tuple[int, int]) -> Figure:
    vectors = torch.ones(12), -torch.ones(12)
    return figures.three_losses("He [MASK] it.", layers, WORDS, SHARES, vectors, "sent")


def drawn(layers: tuple[int, int]) -> list[str]:
    return [text.get_text() for text in picture(layers).axes[0].texts]


def test_layers_losses_and_probabilities_are_named() -> None:
    texts = drawn((6, 3))
    assert [texts.count(f"layer {number}") for number in range(1, 8)] == [2, 2, 2, 1, 1, 1, 0]
    assert {"soft loss", "hard loss", "cosine loss", "60%", "20%", "30%", "10%"} <= set(texts)
    assert texts.count("He [MASK] it.") == 2 and texts.count("sent") == 3


def test_copies_go_to_layers_that_exist() -> None:
    texts = picture((4, 2)).axes[0].texts
    assert sum(text.get_text().startswith("layer") for text in texts) == 6
    arrows = [text.arrow_patch for text in texts if isinstance(text, Annotation)]
    dashed = [arrow for arrow in arrows if arrow is not None and arrow.get_linestyle() != "solid"]
    assert len(dashed) == 2  # one to each of the student's layers
    with pytest.raises(CourseError, match="3 layers"):
        drawn((4, 3))
