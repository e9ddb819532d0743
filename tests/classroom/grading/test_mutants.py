"""Wrong answers lose the points that they should, right ones in another style keep them: what a
mark is worth.

The answers stand beside this file, in one TOML file for each master.
"""

import tomllib
from pathlib import Path

import pytest

from classroom.checks import base, homework
from tests.classroom.grading.conftest import assignment, points, sampled

ANSWERS = {
    path.stem: tomllib.loads(path.read_text("utf-8"))
    for path in sorted(Path(__file__).parent.glob("hw*.toml"))
}


def answers(kind):
    for name, table in ANSWERS.items():
        for function in set(table) - {"slow"}:
            is_slow = function in table.get("slow", ())
            for number, (says, text) in enumerate(sorted(table[function][kind].items())):
                marks = sampled(number) if is_slow else []
                yield pytest.param(
                    name, function, text, id=f"{name} {function}: {says}", marks=marks
                )


def made(name, function, text):
    """The answer as a function: its own source, or the solution patched."""
    task = assignment(name).tasks[function]
    if not text.lstrip().startswith("def "):
        patches = (part.partition("=>") for part in text.split("&&"))
        return task.exercise.variant(*((old.strip(), new.strip()) for old, _, new in patches))
    space = dict(task.fn.__globals__)
    exec(compile(text, f"<{function}>", "exec"), space)
    return space[function]


@pytest.mark.parametrize(
    ("name", "function", "text"), sorted(answers("wrong"), key=lambda case: case.id)
)
def test_other_mistakes_lose_the_hidden_test(name, function, text):
    found = points(name, function, made(name, function, text))
    assert not next(passed for test, passed in found.items() if test.endswith("hidden"))


@pytest.mark.parametrize(
    ("name", "function", "text"), sorted(answers("right"), key=lambda case: case.id)
)
def test_right_answers_in_another_style_keep_all_points(name, function, text):
    assert all(points(name, function, made(name, function, text)).values())


def test_each_question_has_twelve_wrong_answers_and_six_right_ones(master):
    table = ANSWERS[master.name]
    assert set(table) - {"slow"} == set(master.tasks)
    for question in {test.question for test in master.tests.values()}:
        functions = {test.function for test in master.tests.values() if test.question == question}
        wrong = sum(len(master.tasks[f].mistakes) + len(table[f]["wrong"]) for f in functions)
        right = sum(len(table[f]["right"]) for f in functions)
        assert wrong >= 12 and right >= 6, (question, wrong, right)


def test_what_is_fitted_to_the_shown_numbers_earns_nothing(hw1, tmp_path):
    """The release's own inputs and results, looked up (whatever the seed of an experiment is)."""
    path = tmp_path / "checks.json"
    path.write_text(hw1.checks(), "utf-8")
    for name, sheet in homework.read_sheets(path).items():

        def looked_up(*args, sheet=sheet):
            for case, right in zip(sheet.cases, sheet.right, strict=True):
                if all(
                    key == "seed" or base.close(a, b)
                    for a, (key, b) in zip(args, case.items(), strict=True)
                ):
                    return right
            return sheet.right[0]

        homework.compare(looked_up, sheet)  # the check is content ...
        assert not any(points("hw1", name, looked_up).values())  # ... and the grader is not
