"""The game of replaced words: what was replaced and what was said of it, nothing lost without a script."""

import pytest

from course_lib import view
from course_lib.errors import CourseError
from course_lib.view.replaced import tints

ROUND = view.Filled(
    ["the", "wolf", "ate", "a", "lake"], ["the", "wolf", "saw", "a", "sheep"], [0.1, 0.7, 0.2, 0.0, 0.9]
)


def test_each_word_is_told_by_what_was_done_and_what_was_said() -> None:
    assert ROUND.replaced == [False, False, True, False, True]
    assert ROUND.said == [False, True, False, False, True]
    assert tints(ROUND) == ["plain", "blue", "orange", "plain", "green"]


def test_text_and_folded_answer_are_there_without_a_script() -> None:
    made = view.which_replaced([ROUND, view.Filled(["as", "it", "was"], ["as", "it", "was"], [0.0, 0.1, 0.2])])
    body = made.html.split("<script>")[0]
    assert body.count("data-word") == 8 and body.count("<details>") == 2
    assert "“sheep” for “lake” (suspected with 90%)" in body and "Nothing was replaced." in body
    assert "the wolf ate a lake" in repr(made) and "“saw” for “ate”" in repr(made)


def test_what_is_written_is_escaped() -> None:
    assert "<i>" not in view.which_replaced([view.Filled(["<i>"], ["<b>"], [0.4])]).html.split("<script>")[0]


def test_equally_many_of_each() -> None:
    with pytest.raises(CourseError, match="3 tokens, 3 originals and 1 prob"):
        view.which_replaced([view.Filled(["a", "b", "c"], ["a", "b", "c"], [0.5])])
    with pytest.raises(CourseError, match="at least one text"):
        view.which_replaced([])
