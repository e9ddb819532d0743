"""Lesson 20's seven claims: every rule can come out either way; the seed's shared comparison is made once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.experiments import peft
from course_lib.experiments.peft import FIVE, METHODS, RANKS, WIDTHS
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged


def scores(labels: str = "all labels", **losses: float) -> Values:
    """Each method's score by how far it is below full fine-tuning's 0.8."""
    behind = dict.fromkeys(METHODS, 0.1) | {"everything": 0.0} | losses
    return {f"{labels}/{name}": around(0.8 - loss) for name, loss in behind.items()}


def weights(prompt: float = 1.0) -> Values:
    return {f"trained/{name}": [8.0 if name == "prompt" else 64.0] * 3 for name in METHODS} | {
        "trained/prompt": [8 * prompt] * 3
    }


def lora(behind: float, ahead: float) -> Values:
    ranks = {f"by rank/{rank}": around(0.7) for rank in RANKS}
    giant = {"GPT-3/times fewer trained": [9000.0] * 3, "GPT-3/times less memory": [8.0] * 3}
    return scores(LoRA=behind, prefix=behind + ahead) | ranks | giant


def adapters(behind: float, changed: float, share: float) -> Values:
    values = scores() | {"changed at the start": [changed, 0.01, 0.01]}
    for width in WIDTHS:  # only the narrowest is any good
        values[f"score/width {width}"] = around(0.8 - behind if width == WIDTHS[0] else 0.5)
        values[f"share trained/width {width}"] = [share if width == WIDTHS[0] else 0.01] * 3
    return values


def prefix(many: float, few: float) -> Values:
    return scores(prefix=many) | scores("few labels", prefix=few) | weights()


def prompt(behind: float, closing: float, times: float = 1.0) -> Values:
    lengths = {f"by length/{length}": around(0.7) for length in peft.LENGTHS}
    values = scores(prompt=0.1 + behind, prefix=0.1) | weights(times) | lengths
    for number, size in enumerate(("1 x 8", "2 x 8", "2 x 16")):
        values[f"by size, everything/{size}"] = around(0.8)
        values[f"by size, prompt/{size}"] = around(0.4 + closing * number / 2)
    return values


def qlora(share: float, behind: float) -> Values:
    memory = {"bytes/LoRA": [100.0] * 3, "bytes/QLoRA": [100 * share] * 3, "bits a weight": [4.127] * 3}
    return scores(LoRA=0.1, QLoRA=0.1 + behind) | memory


def overfits(*less: float) -> Values:
    """By how much smaller each of the five methods' gap is; full fine-tuning's is 0.3."""
    gaps = dict.fromkeys(METHODS, 0.3) | {name: 0.3 - value for name, value in zip(FIVE, less, strict=True)}
    own = {f"few labels, their own rows/{name}": around(0.6 + gap) for name, gap in gaps.items()}
    return own | {f"few labels/{name}": around(0.6) for name in METHODS}


def forgets(rise: float, lost: float, thin: float) -> Values:
    """What full fine-tuning raises and loses, and which part of it LoRA does."""
    values = {f"documents/{name}": around(1.0) for name in ("pretrained", *METHODS)}
    values |= {"documents/everything": around(1 + rise), "documents/LoRA": around(1 + thin * rise)}
    return values | {
        "first task/before": around(0.9),
        "first task/then everything": around(0.9 - lost),
        "first task/then LoRA": around(0.9 - thin * lost),
        "first task/LoRA taken out": around(0.9),
    }


@pytest.mark.parametrize(
    ("claim", "make", "numbers", "verdict"),
    [
        ("lora", lora, (0.02, 0.1), YES),
        ("lora", lora, (-0.05, 0.1), YES),  # better than everything is within three points, too
        ("lora", lora, (0.05, 0.1), PARTLY),
        ("lora", lora, (0.02, -0.1), PARTLY),
        ("lora", lora, (0.05, -0.1), NO),
        ("adapters", adapters, (0.02, 0.01, 0.03), YES),
        ("adapters", adapters, (0.02, 0.2, 0.03), PARTLY),  # not the pretrained body at the start
        ("adapters", adapters, (0.05, 0.01, 0.03), PARTLY),
        ("adapters", adapters, (0.02, 0.01, 0.06), NO),  # too many weights
        ("adapters", adapters, (0.08, 0.01, 0.03), NO),
        ("prefix-tuning", prefix, (0.02, 0.01), YES),
        ("prefix-tuning", prefix, (0.1, 0.01), PARTLY),
        ("prefix-tuning", prefix, (0.02, 0.1), PARTLY),
        ("prefix-tuning", prefix, (0.1, 0.1), NO),
        ("prompt-tuning", prompt, (0.02, 0.2), YES),
        ("prompt-tuning", prompt, (-0.1, -0.2), PARTLY),
        ("prompt-tuning", prompt, (0.1, 0.2), PARTLY),
        ("prompt-tuning", prompt, (0.02, -0.2, 9.0), NO),  # more weights than the prefix
        ("prompt-tuning", prompt, (0.1, 0.0), NO),
        ("qlora", qlora, (0.5, 0.02), YES),
        ("qlora", qlora, (0.5, 0.1), PARTLY),
        ("qlora", qlora, (1.0, 0.0), NO),
        ("peft-overfits-less", overfits, (0.05, 0.05, 0.05, 0.05, 0.05), YES),
        ("peft-overfits-less", overfits, (0.0, 0.0, 0.0, 0.0, 0.05), PARTLY),
        ("peft-overfits-less", overfits, (0.01, 0.01, -0.1, 0.01, 0.01), NO),
        ("catastrophic-forgetting", forgets, (1.0, 0.2, 0.2), YES),
        ("catastrophic-forgetting", forgets, (0.1, 0.2, 0.2), PARTLY),
        ("catastrophic-forgetting", forgets, (1.0, 0.01, 0.2), PARTLY),
        ("catastrophic-forgetting", forgets, (1.0, 0.2, 1.2), PARTLY),  # LoRA forgets more
        ("catastrophic-forgetting", forgets, (0.1, 0.01, 0.2), NO),
    ],
)
def test_rules(claim: str, make: Callable[..., Values], numbers: tuple[float, ...], verdict: str) -> None:
    assert (claim, numbers, judged(claim, make(*numbers))) == (claim, numbers, verdict)


def test_the_sizes_that_are_compared_are_pretrained_beforehand() -> None:
    test = find("prompt-tuning")
    assert test is not None
    arms = test.needs(PLANS["cpu"], 1)
    assert [(arm.model.layers, arm.model.width, arm.seed) for arm in arms] == [
        (1, 48, 1), (2, 48, 1), (2, 96, 1), (2, 144, 1),
    ]  # fmt: skip


def test_the_comparison_is_made_once_and_each_claim_takes_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_for = []

    class Desk:
        def __init__(self, lab: Lab, seed: int) -> None:
            made_for.append(seed)
            raise RuntimeError("made anew")

    lab = Lab(PLANS["smoke"], tmp_path)
    kept = {f"{figure}/{name}": 0.5 for figure in ("few labels", "few labels, their own rows") for name in METHODS}
    assert lab.kept("peft", [0, "smoke", peft.CONFIG], lambda: kept | {"more/LoRA": 1.0}) == kept | {"more/LoRA": 1.0}
    monkeypatch.setattr(peft, "Desk", Desk)
    assert peft.overfits_less(lab, 0) == kept
    with pytest.raises(RuntimeError, match="made anew"):
        peft.overfits_less(lab, 1)
    assert made_for == [1]
    assert [path.name[:5] for path in (tmp_path / "shared").iterdir()] == ["peft-"]
