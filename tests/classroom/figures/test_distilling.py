"""The drawing of a teacher, its student and their losses shows what it is given."""

import pytest
import torch

from classroom import figures
from course_lib.errors import CourseError

WORDS = ["sent", "took"]
SHARES = {"teacher": torch.tensor([0.6, 0.2]), "student": torch.tensor([0.3, 0.1])}


def drawn(layers: tuple[int, int]) -> list[str]:
    vectors = torch.ones(12), -torch.ones(12)
    picture = figures.three_losses("He [MASK] it.", layers, WORDS, SHARES, vectors, "sent")
    return [text.get_text() for text in picture.axes[0].texts]


def test_layers_losses_and_probabilities_are_named() -> None:
    texts = drawn((6, 3))
    assert [texts.count(f"layer {number}") for number in range(1, 8)] == [2, 2, 2, 1, 1, 1, 0]
    assert {"soft loss", "hard loss", "cosine loss", "60%", "20%", "30%", "10%"} <= set(texts)
    assert texts.count("He [MASK] it.") == 2 and texts.count("sent") == 3


def test_copies_go_to_layers_that_exist() -> None:
    copies = [text for text in drawn((4, 2)) if text.startswith("layer")]
    assert len(copies) == 6
    with pytest.raises(CourseError, match="3 layers"):
        drawn((4, 3))
