"""Scores by hand-counted examples and against their definitions."""

import math
import random

import pytest

from course_lib import metrics
from course_lib.errors import CourseError


def test_counted_by_hand() -> None:
    said, true = [1, 1, 0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 1, 0, 0, 0]
    # 2 hits, 2 false alarms, 1 miss, 3 right rejections
    assert metrics.accuracy(said, true) == 5 / 8
    assert metrics.f1(said, true) == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))
    assert metrics.f1(said, true, positive=0) == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert metrics.f1(said, true, macro=True) == pytest.approx((4 / 7 + 6 / 9) / 2)
    assert metrics.matthews(said, true) == pytest.approx((2 * 3 - 2 * 1) / math.sqrt(4 * 3 * 5 * 4))


def test_guessing_the_frequent_class_has_no_correlation() -> None:
    assert metrics.matthews([1] * 10, [1] * 9 + [0]) == 0


def test_correlations() -> None:
    x = [1.0, 2.0, 3.0, 4.0]
    assert metrics.pearson([2 * v + 1 for v in x], x) == pytest.approx(1)
    assert metrics.spearman([v**3 for v in x], x) == pytest.approx(1) and metrics.pearson([v**3 for v in x], x) < 0.96
    assert metrics.pearson([5.0] * 4, x) == 0
    rng = random.Random(0)
    a, b = [rng.random() for _ in range(30)], [rng.random() for _ in range(30)]
    ma, mb = sum(a) / 30, sum(b) / 30
    top = sum((i - ma) * (j - mb) for i, j in zip(a, b, strict=True))
    below = math.sqrt(sum((i - ma) ** 2 for i in a) * sum((j - mb) ** 2 for j in b))
    assert metrics.pearson(a, b) == pytest.approx(top / below)


def test_an_entity_counts_only_with_both_borders_and_its_type() -> None:
    true = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["O", "B-ORG"]]
    assert metrics.entity_f1(true, true) == 1
    said = [["B-PER", "O", "O", "B-LOC", "O"], ["O", "B-PER"]]  # short, right, wrong type
    assert metrics.entity_f1(said, true) == pytest.approx(1 / 3)
    assert metrics.entity_f1([["O"] * 5, ["O", "O"]], true) == 0


def test_answers() -> None:
    assert metrics.exact_match(["The Mill.", "a boat"], ["mill", "the boats"]) == 0.5
    assert metrics.token_f1(["the old mill"], ["mill"]) == pytest.approx(2 / 3)
    assert metrics.token_f1([""], ["mill"]) == 0


@pytest.mark.parametrize(
    ("said", "true", "em", "f1"),
    [
        ("The  Mill!", "mill", 1, 1),
        ("a.b", "ab", 1, 1),  # punctuation goes first, so no new word appears
        ("an_apple", "anapple", 1, 1),  # the underscore is punctuation
        ("Anna", "nna", 0, 0),  # an article is a whole word
        ("well-known", "well known", 0, 0),  # the hyphen goes and leaves one word
        ("by the old mill", "the mill", 0, 0.5),
        ("red red boat", "red boat boat", 0, 2 / 3),  # words count as often as they stand
        ("“mill”", "mill", 0, 0),  # ASCII punctuation only, as in SQuAD's own scoring
        ("the", "a", 1, 1),
    ],
)
def test_answers_are_compared_by_squads_rules(said: str, true: str, em: float, f1: float) -> None:
    assert metrics.exact_match([said], [true]) == em
    assert metrics.token_f1([said], [true]) == pytest.approx(f1)


def test_of_several_true_answers_the_best_counts() -> None:
    assert metrics.exact_match(["mill", "boat"], [["the old mill", "mill"], ["ship"]]) == 0.5
    assert metrics.token_f1(["old mill"], [["mill", "the old mill", "x"]]) == 1
    with pytest.raises(CourseError, match="no true answer"):
        metrics.exact_match(["mill"], [[]])


def test_confusion_has_a_row_for_each_true_class() -> None:
    table = metrics.confusion([0, 0, 1, 2, 2], [0, 1, 1, 1, 2], ["a", "b", "c", "d"])
    assert table == [[1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    with pytest.raises(CourseError, match="nothing to score"):
        metrics.confusion([], [], ["a", "b"])


def test_language_model_scores() -> None:
    assert metrics.perplexity(math.log(50)) == pytest.approx(50)
    assert metrics.perplexity(1e6) == math.inf
    # 8 tokens of 2 bits each spell 4 bytes
    assert metrics.bits_per_byte(2 * math.log(2), 8, 4) == pytest.approx(4)


def test_per_class() -> None:
    table = metrics.per_class([0, 0, 1, 2], [0, 1, 1, 1], ["a", "b", "c"])
    assert table["a"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "count": 1.0}
    assert table["b"]["recall"] == pytest.approx(1 / 3) and table["c"]["count"] == 0


@pytest.mark.parametrize("name", list(metrics.METRICS))
def test_nothing_to_score_and_unequal_lengths(name: str) -> None:
    with pytest.raises(CourseError, match="nothing to score"):
        metrics.METRICS[name]([], [])
    with pytest.raises(CourseError, match="predictions for"):
        metrics.METRICS[name](["a"], ["a", "b"])


def test_bad_input() -> None:
    with pytest.raises(CourseError, match="Sentence 0 has 1"):
        metrics.entity_f1([["O"]], [["O", "O"]])
    with pytest.raises(CourseError, match="needs a text"):
        metrics.bits_per_byte(1.0, 3, 0)
    with pytest.raises(CourseError, match="at least two"):
        metrics.pearson([1.0], [1.0])
