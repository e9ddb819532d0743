"""Power laws: known ones are found again, straight lines are scipy's, intervals hold what they promise."""

import numpy as np
import pytest
from scipy.stats import binom, linregress, t

from course_lib.errors import CourseError
from course_lib.scaling import fit, frontier

SIZES = [2e5 * 2**i for i in range(7)]


def law(scale: float, exponent: float, floor: float) -> list[float]:
    return [floor + (scale / x) ** exponent for x in SIZES]


@pytest.mark.parametrize(("scale", "exponent", "floor"), [(8.8e13, 0.076, 0.0), (3e7, 0.3, 0.0)])
def test_an_exact_line_is_found(scale: float, exponent: float, floor: float) -> None:
    found = fit(SIZES, law(scale, exponent, floor))
    assert found.exponent == pytest.approx(exponent, rel=1e-9) and found.scale == pytest.approx(scale, rel=1e-6)
    assert found.interval == pytest.approx((exponent, exponent), abs=1e-9) and found.floor == 0
    assert found.residuals == pytest.approx([0.0] * 7, abs=1e-9)


@pytest.mark.parametrize(("scale", "exponent", "floor"), [(3e7, 0.34, 1.69), (1e6, 0.5, 0.4), (1e9, 0.12, 0.05)])
def test_an_exact_law_with_a_floor_is_found(scale: float, exponent: float, floor: float) -> None:
    found = fit(SIZES, law(scale, exponent, floor), floor=True)
    assert found.exponent == pytest.approx(exponent, rel=1e-4) and found.floor == pytest.approx(floor, rel=1e-2)
    assert found(6.4e7) == pytest.approx(floor + (scale / 6.4e7) ** exponent, rel=1e-4)
    assert found.needed(found(6.4e7)) == pytest.approx(6.4e7)


def test_without_a_floor_it_is_linear_regression() -> None:
    rng = np.random.default_rng(0)
    losses = np.array(law(3e7, 0.2, 0)) * np.exp(0.03 * rng.standard_normal(7))
    found, line = fit(SIZES, losses), linregress(np.log(SIZES), np.log(losses))
    assert found.exponent == pytest.approx(-line.slope)
    half = t.ppf(0.95, 5) * line.stderr
    assert fit(SIZES, losses, confidence=0.9).interval == pytest.approx((-line.slope - half, -line.slope + half))
    assert np.log(found(1e6)) == pytest.approx(line.intercept + line.slope * np.log(1e6))
    assert found.residuals == pytest.approx(np.log(losses) - line.intercept - line.slope * np.log(SIZES))


@pytest.mark.parametrize("floor", [False, True])
def test_the_interval_holds_the_truth_as_often_as_it_says(floor: bool) -> None:
    rng = np.random.default_rng(1)
    x = SIZES * 3  # three seeds of each size
    truth = np.array(law(3e7, 0.34, 1.7 if floor else 0.0) * 3)
    times = 150
    held = 0
    for _ in range(times):
        low, high = fit(x, truth * np.exp(0.004 * rng.standard_normal(21)), floor=floor, confidence=0.8).interval
        held += low < 0.34 < high
    low, high = binom.interval(0.999, times, 0.8)
    assert low <= held <= high


def test_the_floor_is_the_best_one() -> None:
    """No other floor has a smaller squared error in log loss."""
    rng = np.random.default_rng(2)
    losses = np.array(law(3e7, 0.34, 1.7)) * np.exp(0.01 * rng.standard_normal(7))
    found = fit(SIZES, losses, floor=True)
    error = sum(r * r for r in found.residuals)
    for height, exponent, floor in rng.normal(1, 0.02, (300, 3)):
        other = found.floor * floor + (found.scale * height / np.array(SIZES)) ** (found.exponent * exponent)
        assert ((np.log(losses) - np.log(other)) ** 2).sum() >= error


def test_a_law_that_has_no_floor_gets_none() -> None:
    found = fit(SIZES, law(3e7, 0.3, 0.0), floor=True)
    assert found.floor == pytest.approx(0, abs=1e-3) and found.exponent == pytest.approx(0.3, rel=1e-3)


def test_the_unit_of_size_does_not_matter() -> None:
    losses = np.array(law(3e7, 0.34, 1.7)) + [0.01, -0.01, 0.02, 0, -0.02, 0.01, 0]
    for floor in (False, True):
        one, million = fit(SIZES, losses, floor=floor), fit([x / 1e6 for x in SIZES], losses, floor=floor)
        assert one.exponent == pytest.approx(million.exponent, rel=1e-5)
        assert one.scale == pytest.approx(million.scale * 1e6, rel=1e-4)


def test_frontier() -> None:
    compute = [1.0, 2.0, 4.0, 1.0, 3.0, 8.0, 8.0]
    loss = [5.0, 4.0, 3.0, 4.5, 4.2, 3.0, 2.5]
    assert frontier(compute, loss) == [3, 1, 2, 6]


def test_bad_input() -> None:
    found = fit(SIZES, law(3e7, 0.3, 0.0))
    for call, said in (
        (lambda: fit([1, 2], [2, 1]), "at least 3 measurements at 2"),
        (lambda: fit([1, 2, 3], [3, 2, 1.5], floor=True), "with a floor takes at least 4 measurements at 3"),
        (lambda: fit([1, 1, 1, 1], [4, 3, 2, 1]), "4 at 1"),
        (lambda: fit([1, 2, 3], [3, 2]), "3 sizes and 2 losses"),
        (lambda: fit([1, 2, 3], [3, 2, 0]), "above 0"),
        (lambda: fit([1, 2, 3], [3, 2, float("nan")]), "above 0"),
        (lambda: fit([1, 2, 3], [1, 2, 3]), "does not fall"),
        (lambda: fit(SIZES, law(3e7, 0.3, 0.0), confidence=95), "confidence is 95"),
        (lambda: found(0), "above 0, not at 0"),
        (lambda: found.needed(0), "No size reaches the loss 0"),
        (lambda: frontier([1.0], []), "there are 1 and 0"),
        (lambda: frontier([], []), "there are 0 and 0"),
    ):
        with pytest.raises(CourseError, match=said):
            call()
