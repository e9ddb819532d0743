"""Every exercise proves itself; the engine: what is a stub, nonsense, a draw without seed, two
mistakes at once.
"""

import inspect
import math
import re
import sys

import pytest
import torch

from classroom import checks
from classroom.checks.base import WRONG, Crash, difference, normal, report, result
from classroom.checks.exercise import Exercise, exercise, parse
from course_lib.errors import CourseError


def stub(*_: object) -> None:
    raise NotImplementedError


def crashes(*_: object) -> None:
    raise KeyError("lost\nsecond line")


NONSENSE = [
    lambda *_: object(),
    lambda *_: "text",
    lambda *_: {},
    lambda *_: [],
    lambda *_: (),
    lambda *_: torch.zeros(0),
    lambda *_: torch.full((2, 2), math.nan),
    lambda *_: (None, None),
    lambda *_: -1,
    lambda: 1,
    torch.zeros(2),
    crashes,
]


def prove(task: Exercise) -> None:
    """Is the exercise what it says? The right answers pass, and every mistake is named."""
    for name, fn in [("the course's", task.reference), *task.also]:
        verdict = task(fn)
        assert verdict, f"A right answer is refused: {name}. {verdict.message}"
    for says, fn in task.wrong:
        with torch.random.fork_rng(devices=[]):  # a mistake may draw without the generator
            verdict = task(fn)
        known = re.sub(r"\\{.*?\\}", ".*", re.escape(says))  # what a judge fills in may be anything
        told = not verdict and re.search(known, verdict.message)
        assert told, (
            f"This mistake of {task.name} is not told apart: {says} It says: {verdict.message}"
        )
        for got in (result(fn, case) for case in task.draw()):
            unknown = isinstance(got, Crash) and isinstance(got.error, NameError)
            assert not unknown, f"A patch of {task.name} names what is not there: {got}"


@pytest.mark.parametrize("name", checks.exercises())
def test_an_exercise_is_what_it_says(name: str) -> None:
    """Right answers pass, every known mistake is named; stubs and nonsense get one sentence; no
    draw is disturbed.
    """
    task = checks.exercises()[name]
    source = inspect.getsource(sys.modules[task.reference.__module__])
    used = {mistake.says for mistake in task.mistakes}
    unused = [
        key
        for key, says in task.says.items()
        if says not in used and not re.search(rf"\b{key}\b", source)
    ]
    assert unused in ([], ["verified"])
    assert task.name == name and task.__doc__ == task.reference.__doc__
    assert task.mistakes and task.right, "name a mistake and another right answer"
    before = torch.get_rng_state()
    prove(task)
    for fn in (stub, lambda *_: None, lambda *_: ..., None, ...):
        assert "not written yet" in task(fn).message
    assert "It returns None" in task(lambda *given: (task.reference(*given), None)[1]).message
    for fn in NONSENSE:
        verdict = task(fn)
        assert not verdict and verdict.message.startswith(f"{name}: not yet. "), verdict.message
        assert "\n" not in verdict.message and len(verdict.message) < 400
    assert "KeyError" in task(crashes).message and "TypeError" in task(lambda: 1).message
    assert "function itself" in task(torch.zeros(2)).message and torch.equal(
        before, torch.get_rng_state()
    )


@exercise(
    lambda g: [(normal(g, 4),), (normal(g, 2, 3),), (normal(g, 3, 3),)],
    hint=lambda fn, case: (
        toy.says["logarithm"]
        if torch.equal(torch.as_tensor(fn(**case)), case["x"].log_softmax(-1))
        else ""
    ),
)
def toy(x: torch.Tensor) -> torch.Tensor:
    """A softmax, / weights.sum of it: what stands here is never patched."""
    weights = x.exp()
    return weights / weights.sum(-1, keepdim=True)


def made(mistakes: str, **changes: object) -> Exercise:
    return Exercise(toy.reference, toy.cases, parse(mistakes), "", **changes)  # type: ignore[arg-type]


def test_the_toy_is_proven() -> None:
    prove(toy)
    assert toy(lambda x: x.softmax(-1)).message == "toy: right. Verified: one vector and a batch."
    assert "The sum runs over dim=0, which may be the batch." in toy(lambda x: x.softmax(0)).message


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (
            lambda x: x / x.sum(0, keepdim=True),
            "dim=0, which may be the batch. And: The exponential is missing.",
        ),
        (lambda x: x.log_softmax(-1), "logarithm of it"),
        (lambda x: x.softmax(-1) + 0.01, "The numbers differ at index"),
        (lambda x: x.softmax(-1)[..., :1], "has shape [1]; it should have [4], on x [4]"),
        (lambda x: x.softmax(-1) * math.nan, "holds NaN"),
        (lambda x: x.softmax(-1).tolist(), "should return a torch.Tensor, and returns a list"),
        (lambda x: torch.rand_like(x), "Two calls"),
        (lambda x: x.exp_() / x.sum(-1, keepdim=True), "`x` in place"),
        (lambda x: x.tolist().sort(), "It returns None: the `return` of its result is missing"),
    ],
)
def test_what_a_check_says(fn: object, says: str) -> None:
    message = toy(fn).message
    assert message.startswith("toy: not yet. ") and says in message


@pytest.mark.parametrize(
    ("exercise", "says"),
    [
        (made("one: x.exp() => x.exp2()\nother: x.exp() => 2**x"), "not told apart: other"),
        (made("harmless: x.exp() => x.exp() * 2"), "not told apart: harmless"),
        (made("gone: log => exp"), "has no 'log' any more"),
        (made("unknown: x.exp() => exq(x)"), "names what is not there: .*name 'exq'"),
        (made("", right=parse("its input: => x")), "right answer is refused: its input"),
    ],
)
def test_what_does_not_hold_is_not_proven(exercise: Exercise, says: str) -> None:
    with pytest.raises((AssertionError, CourseError), match=says):
        prove(exercise)


def test_a_result_without_end_is_no_draw() -> None:
    """Infinity equals infinity, so two calls agree."""
    endless = Exercise(half, [(1.0,)], parse("endless: => math.inf"), "")
    assert endless(lambda x: math.inf).message == "half: not yet. endless"


def test_an_error_of_ones_own_is_no_known_mistake() -> None:
    """Only the very error that a mistake ends in names it, not any of its type."""

    def breaks(x: torch.Tensor) -> None:
        raise RuntimeError("my own")

    crashing = made("axis: => x @ torch.zeros(99)")
    assert crashing(lambda x: x @ torch.zeros(99)).message == "toy: not yet. axis"
    assert (
        """It raises RuntimeError at `raise RuntimeError("my own")` on x [4]: my own"""
        in crashing(breaks).message
    )


def half(x: float) -> float:
    """The half."""
    return x / 2


def test_a_verdict_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = toy(lambda x: x)
    assert capsys.readouterr().out == f"{WRONG} {verdict.message}\n"
    assert (
        toy.use(half) is toy.reference
        and toy.use(toy.reference) is toy.reference
        and toy.use(half, half) is half
    )
    assert capsys.readouterr().out.splitlines()[:2] == [
        "toy: the course's, until yours passes its check",
        "toy: yours",
    ]
    report("toy", lambda: "many words " * 40)
    assert 100 < max(map(len, capsys.readouterr().out.splitlines())) <= 110
    assert difference({"ids": torch.tensor([1, 2])}, 3, 4).endswith("on ids = [1, 2].")
    ids_only = checks.exercises()["bert_input"](lambda a, b, c, s: ([c, *a, s, *b, s], []))
    assert "Part 1 (`segments`) of" in ids_only.message
    assert (
        verdict._ipython_display_() is None
        and not verdict
        and repr(verdict) == "CheckResult(not passed)"
    )
