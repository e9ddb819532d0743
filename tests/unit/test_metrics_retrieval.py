"""Retrieval scores by hand and against scikit-learn."""

import math

import numpy as np
import pytest

from course_lib import metrics
from course_lib.errors import CourseError

RANKINGS = [["a", "b", "c", "d"], ["c", "a", "d", "b"]]


def test_counted_by_hand() -> None:
    truth = [{"b", "d"}, {"c"}]  # ranks 2 and 4; rank 1
    assert metrics.mrr(RANKINGS, truth) == pytest.approx((1 / 2 + 1) / 2)
    assert metrics.mrr(RANKINGS, truth, k=1) == 0.5
    assert metrics.recall(RANKINGS, truth, k=2) == pytest.approx((1 / 2 + 1) / 2)
    assert metrics.mean_average_precision(RANKINGS, truth) == pytest.approx(((1 / 2 + 2 / 4) / 2 + 1) / 2)
    assert metrics.mean_average_precision(RANKINGS, truth, k=3) == pytest.approx((1 / 2 / 2 + 1) / 2)
    first = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert metrics.ndcg(RANKINGS, truth) == pytest.approx((first + 1) / 2)


def test_what_was_not_found_counts_as_missed() -> None:
    assert metrics.mean_average_precision([["a"]], [{"a", "z"}]) == 0.5
    assert metrics.recall([[]], [{"a"}]) == 0
    assert metrics.ndcg([["a"]], [{"a", "z"}]) == pytest.approx(1 / (1 + 1 / math.log2(3)))


@pytest.mark.parametrize("k", [1, 3, 10, None])
def test_ndcg_is_scikit_learns(k: int | None) -> None:
    from sklearn.metrics import ndcg_score

    rng = np.random.default_rng(0)
    gains, scores = rng.integers(0, 4, (6, 12)), rng.random((6, 12))
    gains[:, 0] = 1  # something is relevant
    rankings = [[int(i) for i in row] for row in (-scores).argsort(axis=1)]
    truth = [{i: float(gain) for i, gain in enumerate(row)} for row in gains]
    assert metrics.ndcg(rankings, truth, k=k) == pytest.approx(ndcg_score(gains, scores, k=k))


def test_average_precision_is_scikit_learns() -> None:
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(1)
    gains, scores = rng.integers(0, 2, (6, 12)), rng.random((6, 12))
    gains[:, 0] = 1
    rankings = [[int(i) for i in row] for row in (-scores).argsort(axis=1)]
    truth = [set(np.flatnonzero(row).tolist()) for row in gains]
    expected = np.mean([average_precision_score(g, s) for g, s in zip(gains, scores, strict=True)])
    assert metrics.mean_average_precision(rankings, truth) == pytest.approx(expected)


def test_bad_input() -> None:
    for score in (metrics.mrr, metrics.recall, metrics.mean_average_precision, metrics.ndcg):
        with pytest.raises(CourseError, match="no relevant document"):
            score([["a"]], [set()])
        with pytest.raises(CourseError, match="twice"):
            score([["a", "a"]], [{"a"}])
        with pytest.raises(CourseError, match="predictions for"):
            score([["a"]], [])
        with pytest.raises(CourseError, match="k is 0"):
            score([["a"]], [{"a"}], k=0)
    with pytest.raises(CourseError, match="negative gain"):
        metrics.ndcg([["a"]], [{"a": -1.0}])
