"""The widget of next words: one frame a token, the word that comes is marked, nothing is invented."""

import pytest

from course_lib import view
from course_lib.errors import CourseError

LIKELY = [[(" bought", 0.5), (" sold", 0.25)], [(" the", 1.0), (" a", 0.0)]]


def test_each_token_has_a_frame() -> None:
    made = view.next_words(["Nadia", " bought"], LIKELY, [1.5, 0.0])
    assert made.html.count("data-frame ") == 2
    assert "after “Nadia”: 1.5 bits, as open as 3 equally likely words; in the text comes “bought”" in made.html
    assert "after “bought”: 0.0 bits" in made.html
    assert made.html.count("font-weight:700;padding") == 1  # "bought" comes, "sold" does not
    assert "bought 50%, sold 25%" in repr(made)


def test_what_is_written_is_escaped() -> None:
    assert "<i>" not in view.next_words(["<i>"], [[("<i>", 1.0)]], [0.0]).html


def test_one_distribution_a_token() -> None:
    with pytest.raises(CourseError, match="one distribution a token"):
        view.next_words(["a", "b"], LIKELY[:1], [0.0, 0.0])
