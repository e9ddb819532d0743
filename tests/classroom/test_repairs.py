"""Sentences to repair, errors by hand, and a table of neighbours that has seen a gap before."""

import json

import pytest

from classroom import repairs

PAIRS = [
    ("is key here", "Is the key here?"),
    ("key is here", "The key is here."),
    ("cat is old", "The cat is old."),
    ("he saw cat and fled", "He saw a cat, and fled."),
]


def test_errors_by_hand():
    assert repairs.errors("The key.", "The key.") == 0
    assert repairs.errors("the key", "The key.") == 2  # a capital, a mark
    assert repairs.errors("key old the.", "The old key.") == 2
    assert repairs.errors("", "One, two.") == 4
    assert repairs.edits(["a", "b", "c"], ["a", "c", "d"]) == 2


def test_per_hundred_is_over_all_words_and_pairs_the_texts():
    right = ["The key is here.", "No."]
    share, low, high = repairs.per_hundred(["the key is here.", "No."], right)
    assert share == pytest.approx(100 / 7) and 0 <= low <= share <= high
    assert repairs.per_hundred(right, right, right) == (0, 0, 0)
    assert repairs.per_hundred(right, right, ["x", "No."])[0] == pytest.approx(100 * 5 / 7)


def test_the_table_puts_in_what_it_saw():
    table = repairs.Neighbours(PAIRS)
    for damaged, whole in PAIRS[1:]:
        assert table.repair(damaged) == whole
    assert table.repair("cat is here") == "The cat is here."  # no gap of it was in one sentence
    assert repairs.Neighbours([]).repair("a b") == "A b"


def test_a_pair_in_another_order_is_passed_over():
    table = repairs.Neighbours([("here key", "The key here.")])
    assert not table.all


def test_marked_words_are_those_that_differ():
    assert repairs.marked("The old dog.", "The dog.") == [
        ("The", "plain"),
        ("old", "yellow"),
        ("dog", "plain"),
        (".", "plain"),
    ]


def test_sentences_of_the_course_and_of_ones_own(tmp_path):
    parts = repairs.sentences("text")
    assert not set(parts["train"]) & set(parts["test"])
    assert len(parts["test"]) > 300
    assert all(repairs.PLAIN.fullmatch(text) for part in parts.values() for text in part)
    pages = [{"text": f"Naïve 🙂 page {n}. It ends"} for n in range(10)]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, pages)), encoding="utf-8")
    own = repairs.sentences(str(tmp_path))
    assert "Naïve 🙂 page 3." in own["train"] + own["test"]
    assert own["test"]
