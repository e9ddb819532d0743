"""Every exercise of every lesson: its stub runs and is not written yet, its folded answer passes its check."""

import nbformat
import pytest

from tools.notebooks import exercises, lessons

FOUND = [
    pytest.param(exercise, id=f"{path.stem}-{exercise.check}")
    for path in lessons()
    for exercise in exercises.exercises(nbformat.read(path, as_version=4))
]


@pytest.mark.parametrize("exercise", FOUND)
def test_the_stub_is_not_written_yet(exercise):
    verdict = exercise.written()
    assert not verdict.passed and "not written yet" in verdict.message


@pytest.mark.parametrize("exercise", FOUND)
def test_the_folded_answer_passes(exercise):
    assert exercise.answered().passed


def test_every_lesson_has_exercises():
    found = {param.id.split("-")[0] for param in FOUND}
    assert found == {path.stem for path in lessons()}
