"""Every quiz stands in its lesson, and neither place nor length gives the right choice away."""

import re

import pytest

from classroom import course, widgets
from course_lib.errors import CourseError

QUIZZES = {
    f"{lesson[:2]}.{number}": list(quiz["choices"])
    for lesson in course.names()
    for number, quiz in course.contents(lesson, "quiz.json").items()
}


def above_chance(hits: dict[str, float]) -> float:
    """How many standard deviations of guessing the hits lie above those of guessing."""
    chances = [1 / len(QUIZZES[name]) for name in hits]
    return (sum(hits.values()) - sum(chances)) / sum(p * (1 - p) for p in chances) ** 0.5


def test_each_stands_in_its_lesson_once() -> None:
    shown = {path.name[:2]: path.read_text("utf-8") for path in course.notebooks()}
    found = [
        (n, name)
        for n, text in shown.items()
        for name in re.findall(r'widgets\.quiz\(\\"([^"]+)\\"\)', text)
    ]
    assert sorted(found) == sorted((name[:2], name) for name in QUIZZES)


def test_no_place_is_right_more_often_than_others() -> None:
    said = {
        name: re.findall(r"<strong[^>]*>(Right|Not so)", widgets.quiz(name).html)
        for name in QUIZZES
    }
    for place in range(3):
        right = {name: float(verdicts[place] == "Right") for name, verdicts in said.items()}
        assert abs(above_chance(right)) < 1, place


@pytest.mark.parametrize("extreme", [max, min])
def test_length_does_not_tell(extreme) -> None:  # type: ignore[no-untyped-def]
    lengths = {name: [len(choice) for choice in choices] for name, choices in QUIZZES.items()}
    right = {name: (of[0] == extreme(of)) / of.count(extreme(of)) for name, of in lengths.items()}
    assert above_chance(right) < 1


def test_an_unknown_name_is_one_sentence() -> None:
    with pytest.raises(CourseError, match=r"no quiz '09\.99'"):
        widgets.quiz("09.99")
