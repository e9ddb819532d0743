"""Scores by hand-counted examples, against their definitions and against the libraries' own
settings.
"""

import math

import pytest
from sacrebleu.metrics import BLEU

from course_lib.analysis import metrics
from course_lib.errors import CourseError


def test_counted_by_hand() -> None:
    said, true = [1, 1, 0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 1, 0, 0, 0]
    # 2 hits, 2 false alarms, 1 miss, 3 right rejections
    assert metrics.accuracy(said, true) == 5 / 8 and metrics.f1(said, true) == pytest.approx(
        2 * 2 / (2 * 2 + 2 + 1)
    )
    assert metrics.f1(said, true, macro=True) == pytest.approx((4 / 7 + 6 / 9) / 2)
    assert metrics.f1([0, 0], [0, 0]) == 0 and metrics.f1(
        [True, False], [True, True]
    ) == pytest.approx(2 / 3)
    assert metrics.matthews(said, true) == pytest.approx((2 * 3 - 2 * 1) / math.sqrt(4 * 3 * 5 * 4))
    assert metrics.matthews([1] * 10, [1] * 9 + [0]) == 0


def test_correlations() -> None:
    x = [1.0, 2.0, 3.0, 4.0]
    assert metrics.pearson([2 * v + 1 for v in x], x) == pytest.approx(1)
    assert (
        metrics.spearman([v**3 for v in x], x) == pytest.approx(1)
        and metrics.pearson([v**3 for v in x], x) < 0.96
    )
    # ties share a rank
    assert metrics.spearman([1.0, 1.0, 2.0, 3.0], x) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert metrics.pearson([5.0] * 4, x) == 0


def test_an_entity_counts_only_with_both_borders_and_its_type() -> None:
    true = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["O", "B-ORG"]]
    assert metrics.entity_f1(true, true) == 1
    said = [["B-PER", "O", "O", "B-LOC", "O"], ["O", "B-PER"]]  # short, right, wrong type
    assert metrics.entity_f1(said, true) == pytest.approx(1 / 3)
    assert metrics.entity_f1([["O"] * 5, ["O", "O"]], true) == 0
    bilou = [["U-PER", "O", "B-LOC", "I-LOC", "L-LOC"]]
    assert metrics.entity_f1(bilou, [["B-PER", "O", "B-LOC", "I-LOC", "I-LOC"]]) == 1
    assert metrics.entity_f1(bilou, [["B-PER", "O", "B-LOC", "B-LOC", "I-LOC"]]) < 1
    # As conlleval counts: an I- that continues nothing begins an entity.
    assert metrics.entity_f1([["I-PER", "I-PER", "O"]], [["B-PER", "I-PER", "O"]]) == 1
    assert metrics.entity_f1([["B-PER", "I-LOC", "O"]], [["B-PER", "I-PER", "O"]]) == 0


def test_tags_without_types_are_entities_of_one_type() -> None:
    true = [["B", "I", "O", "B"]]
    assert metrics.entity_f1(true, true) == 1
    assert metrics.entity_f1([["B", "O", "O", "B"]], true) == 0.5
    assert metrics.entity_f1([["B", "L", "O", "U"]], true) == 1


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        (["B-X I-X O B-X"], 0),
        (["I-X I-X O I-Y"], 0),  # IOB1
        (["I-X B-X O I-X I-Y"], 0),
        (["B-X I-X O", "O I-X O"], 1),  # IOB2 with a slip, or IOB1 mixed in
        (["B-X I-X O", "B-X I-Y O"], 1),
        (["U-X O B-X I-X L-X"], 0),
        (["S-X B-X E-X S-X"], 0),
        (["B-X O", "L-X O", "B-X B-X L-X", "B-X I-Y L-X", "I-X L-X", "U-X L-X", "U-X"], 6),
        (["B I O", "O O I"], 1),
    ],
)
def test_rows_whose_tags_do_not_follow_one_another(rows: list[str], odd: int) -> None:
    assert metrics.count_odd_rows([row.split() for row in rows]) == odd


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
        ("", "mill", 0, 0),
        # of several true answers the best counts
        ("old mill", ["mill", "the old mill", "x"], 1, 1),
    ],
)
def test_answers_are_compared_by_squads_rules(
    said: str, true: str | list[str], em: float, f1: float
) -> None:
    assert metrics.exact_match([said], [true]) == em and metrics.token_f1(
        [said], [true]
    ) == pytest.approx(f1)


def test_bleu_counted_by_hand() -> None:
    said, true = ["the cat sat on the red mat"], ["the cat sat on the mat"]
    precisions = [6 / 7, 4 / 6, 3 / 5, 2 / 4]  # longer than its reference: no penalty
    assert metrics.bleu(said, true) == pytest.approx(100 * math.prod(precisions) ** 0.25)
    short = metrics.bleu(["the cat sat on"], ["the cat sat on the mat"])
    # all n-grams are right, two words are missing
    assert short == pytest.approx(100 * math.exp(1 - 6 / 4))
    precisions = [5 / 6, 4 / 4, 3 / 3, 2 / 2]  # of the corpus, not the mean of sentences
    assert metrics.bleu(["a b c d e", "x"], ["a b c d e", "y"]) == pytest.approx(
        100 * math.prod(precisions) ** 0.25
    )


def test_bleus_settings_are_the_ones_named() -> None:
    metric = BLEU()
    metric.corpus_score(["a b"], [["a c"]])
    assert "case:mixed|eff:no|tok:13a|smooth:exp" in metric.get_signature().format()
    said, true = (
        ["the lamp , she said , is ( very ) old"],
        ["the lamp , she said , is ( very ) new"],
    )
    glued = ["the lamp, she said, is (very) old"]
    # mteval-v13a cuts the commas off
    assert metrics.bleu(glued, true) == pytest.approx(metrics.bleu(said, true))
    assert metrics.bleu(glued, true, tokenize="none") < metrics.bleu(said, true, tokenize="none")


def test_several_references() -> None:
    two = ["a cat is on the mat", "there is a cat on the mat"]
    for score, full in ((metrics.bleu, 100), (metrics.rouge, 1)):
        # the second row has one only
        assert score([two[1], "x y z a"], [two, "x y z a"]) == pytest.approx(full)
        assert score([two[1], "x y z a"], [two[0], "x y z a"]) < 0.95 * full


def test_rouge_counted_by_hand() -> None:
    said, true = ["the police killed the gunman"], ["police kill the gunman"]
    # "killed" and "kill": one stem
    assert metrics.rouge(said, true, kind="rouge1") == pytest.approx(2 * 4 / (5 + 4))
    assert metrics.rouge(said, true, kind="rouge2") == pytest.approx(2 * 3 / (4 + 3))
    assert metrics.rouge(
        ["the gunman killed police"], ["police killed the gunman"]
    ) == pytest.approx(2 * 2 / (4 + 4))
    assert metrics.rouge(["a b", ""], ["a b", "c"]) == pytest.approx(0.5)  # the mean of texts
    assert metrics.METRICS["rouge2"](said, true) == metrics.rouge(said, true, kind="rouge2")
    assert metrics.rouge(["the cats jumped"], ["the cat jumps"], kind="rouge1") == 1.0
    assert metrics.rouge(
        ["the cats jumped"], ["the cat jumps"], kind="rouge1", stem=False
    ) == pytest.approx(1 / 3)


def test_per_class() -> None:
    said, true, names = [0, 0, 1, 2], [0, 1, 1, 1], ["a", "b", "c"]
    table = metrics.per_class(said, true, names)
    assert table["a"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "count": 1.0}
    assert table["b"]["recall"] == pytest.approx(1 / 3) and table["c"]["count"] == 0


def test_rankings_counted_by_hand() -> None:
    # ranks 2 and 4; rank 1
    rankings, truth = [["a", "b", "c", "d"], ["c", "a", "d", "b"]], [{"b", "d"}, {"c"}]
    assert (
        metrics.mrr(rankings, truth) == pytest.approx((1 / 2 + 1) / 2)
        and metrics.mrr(rankings, truth, k=1) == 0.5
    )
    first = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert metrics.ndcg(rankings, truth) == pytest.approx((first + 1) / 2)
    # what was missed counts
    assert metrics.ndcg([["a"]], [{"a", "z"}]) == pytest.approx(1 / (1 + 1 / math.log2(3)))


@pytest.mark.parametrize("score", [*metrics.METRICS.values(), metrics.mrr, metrics.ndcg])
def test_nothing_to_score_and_unequal_lengths(score) -> None:
    with pytest.raises(CourseError, match="nothing to score"):
        score([], [])
    with pytest.raises(CourseError, match="predictions for"):
        score(["a"], ["a", "b"])


def test_bad_input() -> None:
    for call, said in (
        (lambda: metrics.f1(["yes", "no"], ["yes", "yes"]), "class 1 of 0 and 1"),
        (lambda: metrics.per_class([0, 1], [0, -1], ["a", "b"]), "class -1 has no name"),
        (
            lambda: metrics.entity_f1([["O"], ["PERSON"]], [["O"], ["B-PER"]]),
            "There is a tag 'PERSON'",
        ),
        (lambda: metrics.spearman([1.0, math.nan, 2.0], [1.0, 2.0, 3.0]), "finite numbers"),
    ):
        with pytest.raises(CourseError, match=said):
            call()
