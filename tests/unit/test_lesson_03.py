"""Lesson 03: wrong answers are named, what it calls exact is exact."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib import check
from course_lib.files import read_json

ROOT = Path(__file__).resolve().parents[2]
BASE = 10000.0


def waves(positions: Tensor, width: int) -> Tensor:
    return positions[:, None] * BASE ** (-torch.arange(0, width, 2) / width)


def mixed(sin: Tensor, cos: Tensor) -> Tensor:
    return torch.stack((sin, cos), -1).flatten(-2)


def sines(positions: Tensor, width: int) -> Tensor:
    angles = waves(positions, width)
    return mixed(angles.sin(), angles.cos())


def away(q: Tensor, k: Tensor) -> Tensor:
    return k[None] - q[:, None]


def turn(x: Tensor, sign: float = 1.0, first: int = 0, halves: bool = False, axis: int = -2) -> Tensor:
    places = torch.arange(x.shape[axis]) + first
    shape = [1] * x.dim()
    shape[axis] = -1
    angles = sign * places.view(shape) * BASE ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    if halves:
        a, b = x.chunk(2, -1)
        return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)
    a, b = x[..., 0::2], x[..., 1::2]
    return mixed(a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos())


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def slopes(heads: int) -> Tensor:
    return 2.0 ** (-8 * (torch.arange(heads) + 1) / heads)


def penalty(slope: Tensor, n: int) -> Tensor:
    return -slope[:, None, None] * away(torch.arange(n), torch.arange(n)).abs()


RIGHT: dict[str, Callable[..., Any]] = {
    "sinusoidal": sines,
    "relative_index": lambda q, k, clip: away(q, k).clamp(-clip, clip) + clip,
    "rotary_attention": lambda q, k, v: attend(turn(q), turn(k), v),
    "alibi_bias": lambda heads, n: penalty(slopes(heads), n),
}
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("sinusoidal", lambda p, w: torch.cat((waves(p, w).sin(), waves(p, w).cos()), -1), "two halves"),
    ("sinusoidal", lambda p, w: mixed(waves(p, w).cos(), waves(p, w).sin()), "changed places"),
    ("sinusoidal", lambda p, w: sines(p + 1, w), "count from one"),
    ("sinusoidal", lambda p, w: sines(torch.arange(len(p)), w), "not used"),
    ("sinusoidal", lambda p, w: mixed(*(f(p[:, None] * BASE ** (-torch.arange(w // 2) / w)) for f in (torch.sin, torch.cos))), "half as fast"),  # noqa: E501
    ("sinusoidal", lambda p, w: torch.cat((waves(p + 1, w).sin(), waves(p + 1, w).cos()), -1), "And:"),
    ("sinusoidal", lambda p, w: sines(p, w).T, "[width T]"),
    ("relative_index", lambda q, k, clip: away(q, k) + clip, "clipping is missing"),
    ("relative_index", lambda q, k, clip: away(q, k).clamp(-clip, clip), "not moved up"),
    ("relative_index", lambda q, k, clip: (-away(q, k)).clamp(-clip, clip) + clip, "sign is turned"),
    ("relative_index", lambda q, k, clip: (away(q, k) + clip).clamp(-clip, clip), "before clipping"),
    ("relative_index", lambda q, k, clip: away(q, k).clamp(max=clip) + clip, "Only one side"),
    ("relative_index", lambda q, k, clip: (away(q, k).clamp(-clip, clip) + clip).T, "transposed"),
    ("relative_index", lambda q, k, clip: away(q, k).abs().clamp(max=clip), "not told apart"),
    ("rotary_attention", lambda q, k, v: attend(turn(q), turn(k), turn(v)), "values are turned too"),
    ("rotary_attention", lambda q, k, v: attend(turn(q, -1), turn(k, -1), v), "sign of the rotation"),
    ("rotary_attention", lambda q, k, v: attend(turn(q), turn(k, -1), v), "opposite directions"),
    ("rotary_attention", lambda q, k, v: attend(turn(q), k, v), "Only the queries are turned"),
    ("rotary_attention", attend, "Nothing is turned"),
    ("rotary_attention", lambda q, k, v: attend(turn(q, halves=True), turn(k, halves=True), v), "neighbours"),
    ("rotary_attention", lambda q, k, v: attend(turn(q, first=1), turn(k), v), "from one"),
    ("rotary_attention", lambda q, k, v: attend(turn(q, axis=1), turn(k, axis=1), v), "dimension 1"),
    ("rotary_attention", lambda q, k, v: (turn(q) @ turn(k).mT).softmax(-1) @ v, "sqrt(Dh)"),
    ("alibi_bias", lambda heads, n: -penalty(slopes(heads), n), "sign is missing"),
    ("alibi_bias", lambda heads, n: penalty(2.0 ** -(torch.arange(heads) + 1.0), n), "8 heads only"),
    ("alibi_bias", lambda heads, n: penalty(slopes(heads)[:1].expand(heads), n), "All heads"),
    ("alibi_bias", lambda heads, n: slopes(heads)[:, None, None] * away(torch.arange(n), torch.arange(n)), "keeps its sign"),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer"), RIGHT.items())
def test_the_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(answer)
    assert not verdict.passed
    assert says in verdict.message


def test_positions_from_one_change_nothing_in_rotary_attention() -> None:
    """Only the difference counts, so the check must not call it a mistake."""
    assert check.rotary_attention(lambda q, k, v: attend(turn(q, first=1), turn(k, first=1), v)).passed


def test_the_papers_figures_are_the_ledgers() -> None:
    from course_lib import claims

    papers = read_json(ROOT / "data" / "papers" / "03_positions.json")
    for row, bleu in papers["relative-beats-absolute"]["rows"].items():
        size, kind = row.split(", ")
        assert claims.claim("relative-beats-absolute").paper[f"{size} {kind}"] == bleu
    for system, scores in papers["roformer-table"]["rows"].items():
        said = dict(claims.claim("roformer-table").paper[system])
        assert said.pop("MNLI") == f"{scores.pop('MNLI-m')}/{scores.pop('MNLI-mm')}"
        assert said == scores


SCHEMES = ("none", "sinusoidal", "learned", "Shaw", "T5", "rotary", "ALiBi")


def losses_of(prefix: str, relative: float, absolute: float, rotary: float | None = None) -> dict[str, list[float]]:
    """Three seeds' figures with one loss for the relative schemes and one for the others."""
    values = dict.fromkeys(SCHEMES, absolute) | dict.fromkeys(("Shaw", "T5", "ALiBi"), relative)
    values["rotary"] = relative if rotary is None else rotary
    return {f"{prefix}/{name}": [value - 0.01, value, value + 0.01] for name, value in values.items()}


def beyond(relative: float, absolute: float, rotary: float | None = None) -> dict[str, list[float]]:
    return losses_of("its second half", 2.0, 2.0) | losses_of(
        "up to four times", 2 + relative, 2 + absolute, None if rotary is None else 2 + rotary
    )


def scores_of(*gains: float) -> dict[str, list[float]]:
    from course_lib.experiments.finetuning import SUITE

    values: dict[str, list[float]] = {}
    for name, factor in (("BERT", 0.0), ("RoFormer", 1.0)):
        scores = [0.5 + factor * gain for gain in gains]
        figures = dict(zip((*SUITE, "average"), (*scores, sum(scores) / len(scores)), strict=True))
        values |= {f"{name}/{key}": [value - 0.01, value, value + 0.01] for key, value in figures.items()}
    return values


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ("relative-beats-absolute", losses_of("trained length", 2.0, 2.5), "reproduced"),
        ("relative-beats-absolute", losses_of("trained length", 2.0, 2.5, rotary=2.6), "partly"),
        ("relative-beats-absolute", losses_of("trained length", 2.5, 2.0), "not at this scale"),
        ("relative-extrapolates", beyond(0.0, 0.5), "reproduced"),
        ("relative-extrapolates", beyond(0.0, 0.5, rotary=0.5), "partly"),
        ("relative-extrapolates", beyond(0.0, 0.0), "not at this scale"),
        ("relative-extrapolates", beyond(0.5, 0.5), "not at this scale"),
        ("roformer-table", scores_of(0.1, -0.1, 0.1, -0.1, 0.0, 0.0), "reproduced"),
        ("roformer-table", scores_of(0.5, -0.1, 0.5, 0.5, 0.5, 0.5), "partly"),
        ("roformer-table", scores_of(0.1, 0.1, 0.1, 0.1, 0.1, 0.1), "not at this scale"),
    ],
)
def test_a_rule_comes_out_either_way(claim: str, values: dict[str, list[float]], verdict: str) -> None:
    from course_lib.claims.experiment import find
    from course_lib.claims.record import figure

    found = find(claim)
    assert found is not None
    said, why = found.verdict({name: figure(seeds) for name, seeds in values.items()})
    assert said == verdict
    assert why.endswith(".") and "nan" not in why


@pytest.mark.parametrize("claim", ["permutation-equivariance", "rope-relative", "rope-decay"])
def test_what_is_exact_is_reproduced(claim: str, tmp_path: Path) -> None:
    from course_lib.claims.experiment import find
    from course_lib.claims.lab import PLANS, Lab
    from course_lib.claims.record import figure

    found = find(claim)
    assert found is not None
    values = found.measure(Lab(PLANS["smoke"], folder=tmp_path), 0)
    assert found.verdict({name: figure([value], exact=True) for name, value in values.items()})[0] == "reproduced"


def test_what_a_scheme_owns_learns_faster_and_nothing_twice() -> None:
    from course_lib.config import Learned, NoPosition
    from course_lib.experiments import positions

    model = positions.model_of(Learned(8), 11)
    groups = positions.optimizer_of(model).param_groups
    held = [p for group in groups for p in group["params"]]
    assert sum(p.numel() for p in held) == sum(p.numel() for p in model.parameters())
    assert [group["lr"] for group in groups] == [3e-3, 3e-3, 3e-2]
    assert groups[-1]["params"] == list(model.stack.position.parameters())
    assert len(positions.optimizer_of(positions.model_of(NoPosition(), 11)).param_groups) == 2
