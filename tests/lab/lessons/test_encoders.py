"""What the experiments of lessons 11 and 12 are made of measures what it says; arms differ as they
say.
"""

from dataclasses import replace

import torch

from lab.engine.experiment import find
from lab.engine.lab import PLANS, Lab
from lab.lessons import inside_bert as inside
from lab.lessons import roberta
from lab.lessons.roberta import BASE, Change, batches, english_rows, frequency_loss

STORY = {  # the wolf saw a sheep ; it saw the wolf
    "tokens": ["The", "wolf", "saw", "a", "sheep", "It", "saw", "the", "wolf"],
    "heads": [1, 2, -1, 4, 2, 6, -1, 8, 6],
    "mentions": [
        {"start": 0, "end": 2, "entity": "wolf"},
        {"start": 3, "end": 5, "entity": "sheep"},
        {"start": 5, "end": 6, "entity": "sheep"},
        {"start": 7, "end": 9, "entity": "wolf"},
    ],
}


def test_a_mention_is_asked_for_an_earlier_one_of_its_own() -> None:
    assert list(inside.mentions(STORY)) == [(5, [1, 4], [4]), (8, [1, 4, 5], [1])]


def test_links_of_the_rules_and_of_a_head() -> None:
    heads = torch.zeros(2, 9, 9)
    heads[0, :, 1] = heads[1, :, 4] = 1  # the one always at the first wolf, the other at the sheep
    found = inside.links([heads[None]], [STORY])
    # nearest, same word, two heads
    assert found.T.tolist() == [[True, True, False, True], [False, True, True, False]]


PLAN = replace(PLANS["smoke"], steps=27)


def test_arms_differ_and_claims_share_them() -> None:
    longer, base = (roberta.held_out(Lab(PLAN), 0, change) for change in (Change(longer=2), BASE))
    assert longer != base == find("undertrained").measure(Lab(PLAN), 0)["held-out loss/baseline"]


def gaps(several: list[dict[str, torch.Tensor]], epoch: int, rows: int) -> set[tuple[int, ...]]:
    """The labels of an epoch's rows, in no order."""
    steps = len(several) // 3
    found = [
        row for batch in several[epoch * steps : (epoch + 1) * steps] for row in batch["labels"]
    ]
    assert len(found) == rows
    return {tuple(row.tolist()) for row in found}


def test_stored_masks_come_back_and_new_ones_do_not() -> None:
    text = "The old lamp stood in the hall. Nobody had lit it since the storm in May. " * 30
    rows = english_rows([text])
    assert len(rows) > 1
    for copies, same in ((1, [0, 1, 2]), (2, [0, 2]), (None, [0])):
        made = batches(rows, copies, epochs=3, seed=4)
        first = gaps(made, 0, len(rows))
        assert [e for e in range(3) if gaps(made, e, len(rows)) == first] == same


def test_frequency_knows_the_common_token() -> None:
    rows = english_rows(["The the the the the."])
    the, stop = rows[0].ids[2], rows[0].ids[-2]
    said = [
        frequency_loss(rows, {"labels": torch.tensor([i]), "loss_mask": torch.tensor([True])})
        for i in (the, stop)
    ]
    assert said[0] < said[1]
