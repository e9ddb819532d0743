"""Lesson 07's experiments: every rule can come out each way, and the measures measure what they say."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.experiments import transfer
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged


def helps(lm: float, autoencoder: float, spread: float) -> Values:
    values = {f"accuracy/{s}": around(0.7 + x) for s, x in zip(transfer.STARTS, (0, lm, autoencoder), strict=True)}
    return values | {"spread/random": around(0.05), "spread/LM": around(spread), "spread/autoencoder": around(0.02)}


def curve(random: tuple[float, ...], lm: tuple[float, ...]) -> Values:
    rows = {"random": random, "LM": lm}
    amounts = (64, 128, 256, 512)
    return {f"{s}/{n}": around(x) for s, row in rows.items() for n, x in zip(amounts, row, strict=True)}


def shift(random: float, lm: float) -> Values:
    lost = {"random": random, "LM": lm}
    return {f"{s}/{d}": around(0.9 - x * (d == "film")) for s, x in lost.items() for d in ("food", "film")}


def far(lm: float, top: float, gpt: float) -> Values:
    values = {f"random start/{layer}": around(1.0) for layer in transfer.LAYERS}
    values |= {f"LM start/{layer}": around(lm) for layer in transfer.LAYERS} | {"LM start/upper LSTM": around(lm + top)}
    blocks = (("token vectors", 9.0), ("block 1", 2.0), ("block 2", gpt))
    return values | {f"gpt-mini/{name}": around(value) for name, value in blocks}


@pytest.mark.parametrize(
    ("claim", "make", "numbers", "verdict"),
    [
        ("pretraining-helps-lstm", helps, (0.1, 0.1, 0.02), YES),
        ("pretraining-helps-lstm", helps, (0.1, 0.01, 0.02), PARTLY),  # one of the two
        ("pretraining-helps-lstm", helps, (0.1, 0.1, 0.08), PARTLY),  # better, and less stable
        ("pretraining-helps-lstm", helps, (0.01, -0.1, 0.02), NO),
        ("finetuning-beats-scratch", curve, ((0.5, 0.6, 0.7, 0.8), (0.7, 0.8, 0.9, 0.9)), YES),
        ("finetuning-beats-scratch", curve, ((0.5, 0.6, 0.7, 0.9), (0.7, 0.8, 0.9, 0.9)), PARTLY),  # one pair
        ("finetuning-beats-scratch", curve, ((0.5, 0.6, 0.9, 0.9), (0.7, 0.7, 0.9, 0.9)), PARTLY),  # ahead by 20
        ("finetuning-beats-scratch", curve, ((0.5, 0.6, 0.9, 0.9), (0.55, 0.65, 0.9, 0.9)), NO),
        ("domain-shift", shift, (0.2, 0.1), YES),
        ("domain-shift", shift, (0.2, 0.3), PARTLY),
        ("domain-shift", shift, (0.05, 0.0), NO),
        ("finetuning-stays-close", far, (0.3, 0.1, 3), YES),
        ("finetuning-stays-close", far, (0.3, 0.1, 1), PARTLY),  # gpt-mini's top moved less than its lowest
        ("finetuning-stays-close", far, (1.3, 0.1, 3), PARTLY),  # moved farther than from random weights
        ("finetuning-stays-close", far, (1.3, -0.1, 3), NO),
    ],
)
def test_rules(claim: str, make: Callable[..., Values], numbers: tuple[float, ...], verdict: str) -> None:
    assert (claim, numbers, judged(claim, make(*numbers))) == (claim, numbers, verdict)


def test_how_far_a_layer_moves() -> None:
    """The length of the change over the length of what was there; rows added to a table do not count."""
    before, after = (nn.ModuleDict({"linear": nn.Linear(2, 2), "table": nn.Embedding(n, 2)}) for n in (2, 3))
    with torch.no_grad():
        for p in (*before.parameters(), *after.parameters()):
            p.fill_(2.0)
        next(after["linear"].parameters())[0, 0] = 8.0
    moved = transfer.moved(before, after, {"linear": "linear", "table": "table"})
    assert moved == pytest.approx({"linear": 6 / 24**0.5, "table": 0.0})


def test_a_smoke_run_measures_every_claim() -> None:
    """The pretraining and the classifiers are shared; the reviews of the runs differ."""
    lab = Lab(PLANS["smoke"])
    read = transfer.reader("smoke", 0, "cpu")
    assert read.labelled(8, run=0) != read.labelled(8, run=1)
    assert read.labelled(8) == read.labelled(16)[:8]
    found = {name: find(name) for name in ("pretraining-helps-lstm", "finetuning-beats-scratch", "domain-shift")}
    for name, experiment in found.items():
        assert experiment is not None
        values = experiment.measure(lab, 0)
        assert all(0 <= value <= 1 for value in values.values()), name
    assert set(read.done) == {(s, 16, r) for s in transfer.STARTS for r in (0, 1)} | {("random", 64, 0), ("LM", 64, 0)}
    first = read.tuned("random", 16)
    assert 0 < first.moved["upper LSTM"] < 1, "its change is counted from its own first weights"
    assert len(first.film) == 20
