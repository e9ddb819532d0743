"""The recipe of elmo-english at no size: rows, training, the card."""

from pathlib import Path

import pytest

from course_lib import data, zoo
from course_lib.files import read_json
from lab.real import bilm

TEXT = "The old dog slept by the door. It was a warm day in the town.\nNobody came to the shop."


def test_rows_are_whole_sentences_of_one_paragraph_unless_one_is_too_long() -> None:
    rows = list(bilm.rows_of([TEXT], most=10))
    assert [" ".join(row) for row in rows] == [
        "The old dog slept by the door .",
        "It was a warm day in the town .",
        "Nobody came to the shop .",
    ]
    assert [len(row) for row in bilm.rows_of([TEXT], most=20)] == [17, 6]  # two share a row
    assert [len(row) for row in bilm.rows_of([TEXT], most=4)] == [4, 4, 4, 4, 1, 4, 2]


def test_every_epoch_has_every_row_once_in_another_order() -> None:
    rows = [[str(i)] for i in range(20)]
    draw = bilm.Shuffled(rows)
    epochs = [[draw(20 * epoch + i)[0] for i in range(20)] for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(row[0] for row in rows)
    assert epochs[0] != epochs[1]


def test_it_trains_and_the_checkpoint_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bilm, "HELD_OUT", 2)
    for split in ("train", "validation"):
        (tmp_path / "corpus").mkdir(exist_ok=True)
        (tmp_path / "corpus" / f"{split}.txt").write_text(f"{TEXT}\n\n" * 12)
    bilm.main(
        str(tmp_path / "corpus"), tmp_path / "work", tmp_path / "to", 8, 4, 8, 12, 40, 3e-3, 0
    )
    card = read_json(tmp_path / "to" / "elmo-english" / "card.json")
    assert card["steps"] == 8 and set(card["scores"]) == {
        "loss, held-out text",
        "hidden words, left",
        "hidden words, right",
        "hidden words, both",
    }


def test_the_shipped_one_names_more_hidden_words_from_both_sides_than_from_one() -> None:
    model, vocabulary, _ = zoo.load("elmo-english")
    rows = list(bilm.rows_of(data.corpus("text", split="validation")["text"]))[:200]
    found = bilm.named(model, vocabulary, [row for row in rows if len(row) > 5])
    assert found["hidden words, both"] > found["hidden words, left"] > 0.05
    assert found["hidden words, both"] > found["hidden words, right"] > 0.05
