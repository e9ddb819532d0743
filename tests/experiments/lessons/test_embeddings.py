"""What the experiments of lessons 04 to 07 are made of measures what it says."""

import pytest
import torch
from torch import nn

from classroom.town import World
from experiments.engine.lab import PLANS, Lab
from experiments.lessons.embeddings import elmo, senses, transfer
from experiments.lessons.embeddings import word_embeddings as words

USES = [
    senses.Use("bank", "river", ["muddy", "bank"], 1),
    senses.Use("bank", "river", ["wet", "bank"], 1),
    senses.Use("bank", "money", ["a", "bank"], 1),
    senses.Use("play", "stage", ["the", "play"], 1),
]


def test_the_nearest_use_of_the_same_word_counts() -> None:
    other, same, drawn = elmo.nearest_use(USES)
    assert drawn.tolist() == [0.5, 0.5, 0.0, 0.0]
    vectors = torch.tensor([[1.0, 0.0], [0.9, 0.5], [0.8, 0.6], [1.0, 0.01]])
    # "play" is nearest to the first, and no rival
    assert elmo.hits(vectors, other, same).tolist() == [1, 0, 0, 0]


def test_sentences_their_labels_and_marks_stay_together() -> None:
    for document in World(seed=0).documents(30):
        rows = list(senses.by_sentence(document, senses.marks(document)))
        assert [word for found, _ in rows for word in found] == document["tokens"]
        for word, label in (
            (w, x) for found, labels in rows for w, x in zip(found, labels, strict=True)
        ):
            assert label is None or label.split("/")[0] == word.lower()
        assert sum(label is not None for _, labels in rows for label in labels) == len(
            document["senses"]
        )


def test_the_test_of_the_senses_was_not_learned() -> None:
    found = elmo.questions(elmo.SIZES["smoke"], 0)["sense"]
    learned = {senses.without_names(sentence) for sentence, _ in found["train"]}
    assert found["test"] and not any(
        senses.without_names(sentence) in learned for sentence, _ in found["test"]
    )
    assert all(sum(label is not None for label in labels) == 1 for _, labels in found["test"])


def test_a_neighbour_speaks_for_the_sense_beside_which_it_stands() -> None:
    river: tuple[list[str], list[str | None]] = (
        ["muddy", "the", "bank"],
        [None, None, "bank/river"],
    )
    money: tuple[list[str], list[str | None]] = (
        ["lent", "the", "bank"],
        [None, None, "bank/money"],
    )
    shares = words.company([river] * 3 + [money], ["bank"])
    assert {word: sorted(senses) for word, senses in shares.items()} == {
        "bank": ["bank/money", "bank/river"]
    }
    spoken = [words.sense_of(w, shares["bank"]) for w in ("muddy", "lent", "the")]
    assert spoken == ["bank/river", "bank/money", ""]


def test_how_far_a_layer_moves() -> None:
    """The length of the change over the length of what was there; rows added to a table do not
    count.
    """
    before, after = (
        nn.ModuleDict({"linear": nn.Linear(2, 2), "table": nn.Embedding(n, 2)}) for n in (2, 3)
    )
    with torch.no_grad():
        for p in (*before.parameters(), *after.parameters()):
            p.fill_(2.0)
        next(after["linear"].parameters())[0, 0] = 8.0
    moved = transfer.moved(before, after, {"linear": "linear", "table": "table"})
    assert moved == pytest.approx({"linear": 6 / 24**0.5, "table": 0.0})


def test_claims_share_classifiers_and_runs_have_reviews_of_their_own() -> None:
    one, other = (transfer.reviews("food", 8, "train", run) for run in (0, 1))
    assert one != other and one == transfer.reviews("food", 16, "train", 0)[:8]
    transfer.domain_shift(Lab(PLANS["smoke"]), 0)
    trained = transfer.tuned.cache_info().misses
    tuned = transfer.tuned("smoke", 0, "cpu", "random", 64)
    assert transfer.tuned.cache_info().misses == trained, "it was trained for the claim"
    assert 0 < tuned.moved["upper LSTM"] < 1, "its change is counted from its own first weights"
