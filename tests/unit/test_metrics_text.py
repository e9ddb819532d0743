"""Scores of texts by hand and against the libraries' own settings; bad input of all scores."""

import math

import pytest

from course_lib import metrics
from course_lib.errors import CourseError


def test_bleu_counted_by_hand() -> None:
    said, true = ["the cat sat on the red mat"], ["the cat sat on the mat"]
    precisions = [6 / 7, 4 / 6, 3 / 5, 2 / 4]  # longer than its reference: no penalty
    assert metrics.bleu(said, true) == pytest.approx(100 * math.prod(precisions) ** 0.25)
    short = metrics.bleu(["the cat sat on"], ["the cat sat on the mat"])
    assert short == pytest.approx(100 * math.exp(1 - 6 / 4))  # all n-grams are right, two words are missing


def test_bleu_is_of_the_corpus_not_the_mean_of_sentences() -> None:
    said, true = ["a b c d e", "x"], ["a b c d e", "y"]
    precisions = [5 / 6, 4 / 4, 3 / 3, 2 / 2]
    assert metrics.bleu(said, true) == pytest.approx(100 * math.prod(precisions) ** 0.25)


def test_bleus_settings_are_the_ones_named() -> None:
    assert metrics.bleu(["The cat sat on it."], ["The cat sat on it ."]) == pytest.approx(
        100
    )  # 13a parts the full stop
    assert metrics.bleu(["the cat sat on it"], ["The cat sat on it"]) < 80  # case counts
    from sacrebleu.metrics import BLEU, CHRF

    for metric, named in (
        (BLEU(), "case:mixed|eff:no|tok:13a|smooth:exp"),
        (CHRF(), "case:mixed|eff:yes|nc:6|nw:0|space:no"),
    ):
        metric.corpus_score(["a b"], [["a c"]])
        assert named in metric.get_signature().format()


def test_several_references() -> None:
    two = ["a cat is on the mat", "there is a cat on the mat"]
    for score, full in ((metrics.bleu, 100), (metrics.chrf, 100), (metrics.rouge, 1)):
        assert score([two[1], "x y z a"], [two, "x y z a"]) == pytest.approx(full)  # the second row has one only
        assert score([two[1], "x y z a"], [two[0], "x y z a"]) < 0.95 * full


def test_chrf_counted_by_hand() -> None:
    """Mean precision and recall over the orders that both sides have, then F2; spaces do not count."""
    said, true = "ab c", "abd"
    p = [2 / 3, 1 / 2, 0 / 1]
    r = [2 / 3, 1 / 2, 0 / 1]
    precision, recall = sum(p) / 3, sum(r) / 3
    assert metrics.chrf([said], [true]) == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))
    assert metrics.chrf(["a b c d e f g"], ["abcdefg"]) == pytest.approx(100)
    assert metrics.chrf(["abcdefgh"], ["abcdefghij"]) < metrics.chrf(["abcdefghij"], ["abcdefgh"])  # recall is heavier


def test_rouge_counted_by_hand() -> None:
    said, true = ["the police killed the gunman"], ["police kill the gunman"]
    assert metrics.rouge(said, true, kind="rouge1") == pytest.approx(2 * 4 / (5 + 4))  # "killed" and "kill": one stem
    assert metrics.rouge(said, true, kind="rouge2") == pytest.approx(2 * 3 / (4 + 3))
    assert metrics.rouge(["the gunman killed police"], ["police killed the gunman"]) == pytest.approx(2 * 2 / (4 + 4))
    assert metrics.rouge(["a b", ""], ["a b", "c"]) == pytest.approx(0.5)  # the mean of texts
    lines = ["c d\na b"], ["a b\nc d"]
    assert metrics.rouge(*lines, kind="rougeLsum") == 1 and metrics.rouge(*lines) == 0.5
    assert metrics.METRICS["rouge2"](said, true) == metrics.rouge(said, true, kind="rouge2")
    assert metrics.METRICS["rouge1"](said, true) == metrics.rouge(said, true, kind="rouge1")


def test_entities_by_conllevals_rules() -> None:
    assert (
        metrics.entity_f1([["I-PER", "I-PER", "O"]], [["B-PER", "I-PER", "O"]]) == 1
    )  # nothing to continue: it begins
    assert metrics.entity_f1([["B-PER", "I-LOC", "O"]], [["B-PER", "I-PER", "O"]]) == 0


def test_unknown_labels() -> None:
    with pytest.raises(CourseError, match="called 1; name the class to score, one of 'no', 'yes'"):
        metrics.f1(["yes", "no"], ["yes", "yes"])
    assert metrics.f1(["yes", "no"], ["yes", "yes"], positive="yes") == pytest.approx(2 / 3)
    assert metrics.f1([0, 0], [0, 0]) == 0
    for table in (metrics.confusion, metrics.per_class):
        with pytest.raises(CourseError, match="class 2 has no name"):
            table([0, 2], [0, 1], ["a", "b"])
        with pytest.raises(CourseError, match="class -1 has no name"):
            table([0, 1], [0, -1], ["a", "b"])
    with pytest.raises(CourseError, match="Sentence 1 has the tag 'PERSON'"):
        metrics.entity_f1([["O"], ["PERSON"]], [["O"], ["B-PER"]])


def test_numbers_that_are_none() -> None:
    with pytest.raises(CourseError, match="finite numbers"):
        metrics.spearman([1.0, math.nan, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(CourseError, match="no perplexity"):
        metrics.perplexity(math.nan)


def test_texts_without_references() -> None:
    for score in (metrics.bleu, metrics.chrf, metrics.rouge):
        with pytest.raises(CourseError, match="no true answer"):
            score(["a"], [[]])
    with pytest.raises(CourseError, match="no ROUGE 'rouge-l'"):
        metrics.rouge(["a"], ["a"], kind="rouge-l")
