"""The widget of soft targets: one frame a temperature, a column a model, the rest of the vocabulary together."""

import pytest

from course_lib import view
from course_lib.errors import CourseError

SAID = {
    1.0: {"teacher": [0.75, 0.125], "student": [0.5, 0.25]},
    4.0: {"teacher": [0.4, 0.3], "student": [0.35, 0.25]},
}


def test_each_temperature_has_a_frame_with_every_model() -> None:
    made = view.soft_targets(["the", "[MASK]"], 1, ["lamp", "chair"], SAID, truth="lamp")
    assert made.html.count("data-frame ") == 2
    for piece in ("temperature 1", "temperature 4", "75.0%", "12.5%", "50.0%", "40.0%", "all other words"):
        assert piece in made.html
    assert made.html.count("25.0%") == 2 + 1  # the student's chair twice, and what is left of its words at 1
    assert made.html.count("#007A5A;height") == 4  # the true word: two models, two temperatures
    assert "teacher: lamp 75%, chair 12%; student: lamp 50%, chair 25%" in repr(made)


def test_what_is_written_is_escaped() -> None:
    assert "<i>" not in view.soft_targets(["<i>"], 0, ["<i>"], {1.0: {"<i>": [1.0]}}).html


@pytest.mark.parametrize("said", [{}, {1.0: {"teacher": [0.5]}}])
def test_one_probability_a_word(said: dict[float, dict[str, list[float]]]) -> None:
    with pytest.raises(CourseError, match="one probability"):
        view.soft_targets(["a"], 0, ["a", "b"], said)
