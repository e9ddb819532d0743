"""The interval over training samples and test texts."""

import numpy as np
import pytest

from classroom import records


def test_the_interval_is_of_both() -> None:
    """100 tests of which half are right: the same in each sample, or drawn anew in each."""
    fixed = np.tile(np.arange(100) % 2, (20, 1))
    mean, low, high = records.resampled(fixed)
    assert mean == 50
    # the binomial interval of 100 tests, although there are 2,000 answers
    assert low == pytest.approx(50 - 9.8, abs=1) and high == pytest.approx(50 + 9.8, abs=1)
    whole_samples = np.repeat(np.arange(20)[:, None] % 2, 100, 1)  # right or wrong as a whole
    _, low, high = records.resampled(whole_samples)
    assert low == pytest.approx(50 - 21.9, abs=3) and high == pytest.approx(50 + 21.9, abs=3)


def test_a_paired_difference_is_narrow() -> None:
    rng = np.random.default_rng(1)
    one = rng.integers(0, 2, (10, 80))
    assert records.resampled(one - one) == (0, 0, 0)
