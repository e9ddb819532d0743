"""Lesson 20: typical slips in its answers are named, every claim is in it, its verdicts follow their rules."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, claims, cost, data, lesson, peft, view
from course_lib.files import read_json
from course_lib.models.gpt import gpt3
from course_lib.stack import Stack
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("20_peft")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "20_peft.json")


# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("lora_start", ("torch.randn(rank, linear.in_features)", "torch.zeros(rank, linear.in_features)"), "both zero"),
    ("lora_start", ("torch.zeros(linear.out", "torch.randn(linear.out"), "Neither is zero"),
    ("lora_start", ("torch.randn(", "torch.zeros(", "torch.zeros(linear.out", "torch.randn(linear.out"), "A that is"),
    ("lora_start", ("torch.randn(", "torch.ones("), "rank 1"),
    ("lora_start", ("linear.requires_grad_(False)", "pass"), "base is not frozen"),
    ("lora_start", ("linear.requires_grad_(False)", "linear.weight.requires_grad_(False)"), "bias of the base"),
    ("lora_start", ("rank, linear.in_features", "linear.in_features, rank"), "a has shape"),
    ("lora_start", ("return a, b", "return b, a"), "wrong order"),
    ("lora_start", ("return a, b", "return a.detach(), b"), "a requires no gradient"),
    ("lora_start", ("return a, b", "return b @ a"), "two tensors"),
    ("lora_forward", ("alpha / len(a) * ", ""), "alpha / rank"),
    ("lora_forward", ("alpha / len(a)", "alpha"), "not divided by the rank"),
    ("lora_forward", ("alpha / len(a)", "1 / len(a)"), "not multiplied by alpha"),
    ("lora_forward", ("alpha / len(a)", "len(a) / alpha"), "r / alpha"),
    ("lora_forward", ("len(a)", "a.shape[1]"), "rows of A"),
    ("lora_forward", ("x @ w.T + bias + ", ""), "frozen part is missing"),
    ("lora_forward", (" + bias", ""), "bias is missing"),
    ("lora_merge", ("alpha / len(a) * ", ""), "alpha / rank"),
    ("lora_merge", ("w + ", "w + 2 * "), "twice"),
    ("lora_merge", ("w + ", ""), "update alone"),
    ("lora_merge", ("w + ", "w - "), "unmerging"),
    ("lora_merge", ("return w + ", "return w.add_(", "(b @ a)", "(b @ a))"), "in place"),
    ("adapter_forward", ("h + ", ""), "h itself is not added"),
    ("adapter_forward", ("F.gelu(h @ down.T + down_bias)", "(h @ down.T + down_bias)"), "activation is missing"),
    ("adapter_forward", ("F.gelu", "F.relu"), "ReLU"),
    ("adapter_forward", (" + up_bias", ""), "up_bias is missing"),
    ("nf4_block", ("block.abs().max()", "block.abs().mean()"), "mean magnitude"),
    ("nf4_block", ("block.abs().max()", "block.std()"), "standard deviation"),
    ("nf4_block", ("block.abs().max()", "block.max()"), "sign left out"),
    ("nf4_block", ("block.abs().max()", "block.max() - block.min()"), "max - min"),
    ("nf4_block", ("block[:, None] / scale", "block[:, None]"), "not divided by it"),
    ("nf4_block", ("- levels", "- torch.linspace(-1, 1, 16)"), "evenly spaced"),
    ("nf4_block", ("return codes, scale", "return levels[codes], scale"), "from 0 to 15"),
    ("nf4_block", ("argmin", "argmax"), "nearest level is number"),
]  # fmt: skip


RIGHT, WRONG = right_and_wrong(cells_of("20_peft"), SLIPS)


def _start_by_linears(linear: Any, rank: int) -> list[Any]:
    linear.requires_grad_(False)
    down = torch.nn.Linear(linear.in_features, rank, bias=False)
    return [down.weight, torch.nn.Parameter(torch.zeros(linear.out_features, rank))]


def _block_by_midpoints(block: Any, levels: Any) -> tuple[Any, float]:
    scale = block.abs().amax().item()
    return torch.bucketize(block / scale, (levels[1:] + levels[:-1]) / 2).to(torch.uint8), scale


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("lora_start", _start_by_linears),
        ("lora_forward", lambda x, w, bias, a, b, alpha: F.linear(x, w + alpha / a.size(0) * b @ a, bias)),
        ("nf4_block", _block_by_midpoints),
    ],
)
def test_another_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


def test_what_the_lesson_says_of_the_papers_figures(paper: Any) -> None:
    """Figures of the papers that can be counted agree with the course's own counts."""
    with torch.device("meta"):
        giant = peft.lora(Stack(gpt3()), rank=1)
    counted = peft.count(giant).trainable / 1e6
    assert counted == pytest.approx(paper["lora"]["rows"]["LoRA"]["trained (millions)"], abs=0.05)
    full = cost.parameters(gpt3()) / 1e6
    assert full == pytest.approx(paper["lora"]["rows"]["full fine-tuning"]["trained (millions)"], rel=0.005)
    bits = paper["qlora"]["bits a weight"]
    assert bits["scales in 32 bits"] == 4 + 32 / 64
    assert pytest.approx(bits["scales quantised too"], abs=5e-4) == 4 + 8 / 64 + 32 / (64 * 256)
    ranks = paper["lora"]["ranks"]
    assert len(ranks["rank"]) == len(ranks["WikiSQL"]) == len(ranks["MNLI"])


def _widths(*scores: float) -> dict[str, Any]:
    return {"by_width": dict(enumerate(zip((0.01, 0.04, 0.2), scores, strict=True)))}


def _forgotten(everything: float, lora: float, second: float, thin: float) -> dict[str, Any]:
    table = [{"first task (%)": value} for value in (90.0, second, thin, 90.0)]
    return {"kept": {"everything": [0.8 + everything], "LoRA": [0.8 + lora]}, "before": 0.8, "table": table}


def _gaps(full: float, *five: float) -> dict[str, Any]:
    return {
        "gap": dict(zip(("everything", "BitFit", "prompt", "prefix", "adapters", "LoRA"), (full, *five), strict=True))
    }


FULL = SimpleNamespace(score=0.9)
VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("adapters-verdict", {"full": FULL, "changed": 0.01, **_widths(80, 88, 90)}, "reproduced"),
    ("adapters-verdict", {"full": FULL, "changed": 0.10, **_widths(80, 88, 90)}, "partly"),
    ("adapters-verdict", {"full": FULL, "changed": 0.01, **_widths(80, 85, 90)}, "partly"),
    ("adapters-verdict", {"full": FULL, "changed": 0.01, **_widths(80, 80, 90)}, "not at this scale"),
    ("lora-verdict", {"score": {"everything": 90, "LoRA": 88, "prefix": 80}}, "reproduced"),
    ("lora-verdict", {"score": {"everything": 90, "LoRA": 88, "prefix": 89}}, "partly"),
    ("lora-verdict", {"score": {"everything": 90, "LoRA": 85, "prefix": 80}}, "partly"),
    ("lora-verdict", {"score": {"everything": 90, "LoRA": 85, "prefix": 86}}, "not at this scale"),
    (
        "prefix-verdict",
        {"score": {"everything": 90, "prefix": 88}, "few": {"everything": 70, "prefix": 75}},
        "reproduced",
    ),
    ("prefix-verdict", {"score": {"everything": 90, "prefix": 80}, "few": {"everything": 70, "prefix": 75}}, "partly"),
    ("prefix-verdict", {"score": {"everything": 90, "prefix": 80}, "few": {"everything": 70, "prefix": 60}}, "not at"),
    ("prompt-verdict", {"score": {"prefix": 80, "prompt": 78}, "new": {"prefix": 80, "prompt": 10}}, "partly"),
    (
        "prompt-verdict",
        {"score": {"prefix": 80, "prompt": 70}, "new": {"prefix": 80, "prompt": 10}},
        "not at this scale",
    ),
    ("overfit-verdict", _gaps(20, 17, 10, 18, 5, 5), "reproduced"),
    ("overfit-verdict", _gaps(20, 19, 10, 18, 5, 5), "partly"),
    ("overfit-verdict", _gaps(20, 19, 20, 30, 21, 20), "not at this scale"),
    ("forgetting-verdict", _forgotten(0.5, 0.1, 60, 85), "reproduced"),
    ("forgetting-verdict", _forgotten(0.5, 0.6, 60, 85), "partly"),
    ("forgetting-verdict", _forgotten(0.1, 0.0, 60, 85), "partly"),
    ("forgetting-verdict", _forgotten(0.1, 0.0, 89, 89), "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(cells, cell, {"claims": claims, "mean": mean, **given})
    said = capsys.readouterr().out
    assert f"this run: {verdict}" in said, said


def test_qlora_needs_less_memory_and_about_the_score(
    cells: list[Any], capsys: pytest.CaptureFixture[str], paper: Any
) -> None:
    for plain, behind, verdict in ((9, 2, "reproduced"), (9, 5, "partly"), (2, 0, "not at this scale")):
        bodies = {"LoRA": torch.nn.Linear(plain, plain), "QLoRA": torch.nn.Linear(4, 4)}
        given = {
            "METHODS": bodies, "many": {name: [SimpleNamespace(model=body)] for name, body in bodies.items()},
            "score": {"LoRA": 90, "QLoRA": 90 - behind}, "peft": peft, "claims": claims, "view": view, "paper": paper,
        }  # fmt: skip
        run_cell(cells, "qlora-verdict", given)
        assert f"this run: {verdict}" in capsys.readouterr().out


def test_the_task_may_be_a_students_own_folder(cells: list[Any], tmp_path: Path) -> None:
    for name in ("train", "dev"):
        rows = [f"mine {name} {i}\t{('bad', 'good')[i % 2]}" for i in range(40)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", "utf-8")
    run = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    task = run_cell(cells, "data", {"run": run, "data": data, "view": view})["task"]
    assert task["train"].features["label"].names == ["bad", "good"]
    assert all(text.startswith("mine dev") for text in task["test"]["text"])
