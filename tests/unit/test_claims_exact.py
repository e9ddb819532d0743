"""The exact claims of lessons 05, 15, 16 and 17: their rules come out either way, and what is spoiled is found."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from course_lib import corrupt
from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.experiments import exact
from tests.unit.verdicts import NO, PARTLY, YES, judged

Values = dict[str, float]


def measured(claim: str) -> str:
    found = find(claim)
    assert found is not None
    return judged(claim, found.measure(Lab(PLANS["smoke"]), 0))


def restored(byte_level: float, pieces: float, unknown: float = 0.0, has: float = 0.0) -> Values:
    values: Values = {}
    for name in (*exact.BYTES, *exact.PIECES):
        share = byte_level if name in exact.BYTES else pieces
        values |= {f"restored/{name}/{kind}": share for kind in exact.TEXTS}
        values |= {f"unknown/{name}": 0.0, f"has an unknown token/{name}": 0.0, f"vocabulary/{name}": 300.0}
    return values | {f"unknown/{exact.BYTES[1]}": unknown, f"has an unknown token/{exact.BYTES[2]}": has}


def triplets(values: int = 9, gradients: int = 9, held: int = 2, idle: int = 2) -> Values:
    return {"triplets": 9, "values that agree": values, "gradients that agree": gradients, "margin held": held,
            "of these without loss and gradient": idle}  # fmt: skip


def noises(least: float) -> Values:
    values = dict.fromkeys((f"holds/{name}" for name in corrupt.NOISES), 9.0)
    return values | {"holds/text infilling": least, "texts": 9, "tokens a span": 3.0, "spans of length 0": 0.05}


def spans(letters: float = 1, back: float = 1, share: float = 0.15, mean: float = 3.0) -> Values:
    values = {f"as in the lecture/{side}": letters for side in ("input", "target")}
    values |= {f"restored/{name}": 1.0 for name in ("the lecture's example", *exact.CORPORA)}
    values |= {f"share hidden/{name}": 0.15 for name in exact.CORPORA}
    values |= {f"mean span/{name}": mean for name in exact.CORPORA}
    return values | {"restored/world": back, "share hidden/Python's manual": share}


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ("bytes-bpe", restored(1, 0.5), YES),
        ("bytes-bpe", restored(1, 1), PARTLY),
        ("bytes-bpe", restored(0.99, 0.5), PARTLY),
        ("bytes-bpe", restored(1, 0.5, unknown=1), PARTLY),
        ("bytes-bpe", restored(1, 0.5, has=1), PARTLY),
        ("bytes-bpe", restored(0.99, 1), NO),
        ("sbert-triplet", triplets(), YES),
        ("sbert-triplet", triplets(values=8), NO),
        ("sbert-triplet", triplets(gradients=8), NO),
        ("sbert-triplet", triplets(idle=1), NO),
        ("sbert-triplet", triplets(held=0, idle=0), NO),  # nothing was tested
        ("bart-noise", noises(9), YES),
        ("bart-noise", noises(8), NO),
        ("t5-span-corruption", spans(), YES),
        ("t5-span-corruption", spans(back=0.99), PARTLY),
        ("t5-span-corruption", spans(share=0.156), PARTLY),
        ("t5-span-corruption", spans(mean=3.4), PARTLY),
        ("t5-span-corruption", spans(letters=0), NO),
    ],
)
def test_a_rule_comes_out_either_way(claim: str, values: Values, verdict: str) -> None:
    assert judged(claim, values) == verdict


def test_a_wrong_triplet_loss_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = exact.triplet_loss
    assert measured("sbert-triplet") == YES
    for wrong in (
        lambda a, p, n, margin: right(a, p, n, margin + 1e-9),
        lambda a, p, n, margin: right(a, p.detach(), n, margin) + 0 * p.sum(),  # the positive is not pulled
        lambda a, p, n, margin: (a - p).norm() - (a - n).norm() + margin,  # no max
    ):
        monkeypatch.setattr(exact, "triplet_loss", wrong)
        assert measured("sbert-triplet") == NO


def _shifted(text: Tensor, rng: torch.Generator, **options: object) -> Tensor:
    return corrupt.denoising.token_masking(text, rng, vocab=exact.VOCAB).roll(1)


def _one_mask_a_token(text: Tensor, rng: torch.Generator, **options: object) -> Tensor:
    return corrupt.denoising.token_masking(text, rng, vocab=exact.VOCAB, rate=0.3)


def _silent(text: Tensor, rng: torch.Generator, **options: object) -> Tensor:
    return corrupt.denoising.token_deletion(text, rng, vocab=exact.VOCAB, rate=0.3)


def _shuffled(text: Tensor, rng: torch.Generator, **options: object) -> Tensor:
    return text[torch.randperm(len(text), generator=rng)]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("token masking", _shifted),
        ("token masking", _one_mask_a_token),  # too many
        ("token deletion", _silent),  # too many
        ("text infilling", _one_mask_a_token),
        ("text infilling", _silent),
        ("sentence permutation", _shuffled),
        ("document rotation", _shuffled),
        ("document rotation", lambda text, rng, vocab: text.flip(0)),
    ],
)
def test_a_wrong_corruption_is_found(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Tensor]) -> None:
    monkeypatch.setattr(exact, "NOISED", 40)
    assert measured("bart-noise") == YES
    monkeypatch.setitem(corrupt.NOISES, name, wrong)
    assert measured("bart-noise") == NO


def test_the_spans_of_a_corpus_are_counted() -> None:
    texts = [f"the {a} sees the {b} and goes home . " * 8 for a in ("cat", "dog", "owl") for b in ("fox", "hen", "ant")]
    found = exact._amounts([*texts, "too short"], 0)
    assert (found["texts"], found["restored"]) == (9, 1)
    assert abs(found["share hidden"] - 0.15) < 0.01 and abs(found["mean span"] - 3) < 0.5


def test_every_code_point_is_among_the_texts() -> None:
    texts = exact._texts(0)
    assert len(set("".join(texts["all of Unicode"]))) == 0x110000 - 2048
    assert min(map(len, texts["random strings"])) == 1
