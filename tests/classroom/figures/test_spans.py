"""The table of answers: which cells it has, and which one it frames."""

import pytest
import torch

from classroom import figures
from course_lib.errors import CourseError


def test_the_best_answer_in_order_is_framed() -> None:
    start, end = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([4.0, 0.5, 1.0])
    axes = figures.span_table(["a", "b", "c"], start, end).axes[0]
    frame = [patch for patch in axes.patches if not patch.get_fill()]
    assert [(patch.get_x(), patch.get_y()) for patch in frame] == [(2, -2)]  # c to c: 5 + 1


def test_answers_that_end_before_they_start_have_no_number() -> None:
    axes = figures.span_table(["a", "b"], [1.0, 2.0], [30.0, 40.0]).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert {"31.0", "41.0", "42.0"} <= set(texts) and "32.0" not in texts


def test_every_token_needs_both_logits() -> None:
    with pytest.raises(CourseError, match="2 tokens but \\[3\\] start"):
        figures.span_table(["a", "b"], [1.0, 2.0, 3.0], [1.0, 2.0])
