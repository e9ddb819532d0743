"""Lesson 19: wrong answers are named, every claim is in it, verdicts follow their rules, its figures are data."""

import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from course_lib import claims, cost, hf, view, zoo
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.models.gpt import GPT3_SIZES, gpt1, gpt2, gpt3
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]


def prompt(instruction: str, examples: Any, question: str) -> str:
    return "".join([instruction, "\n", *(f"{a} => {b}\n" for a, b in examples), question, " =>"])


def scores(given: list[Tensor], bare: list[Tensor]) -> Tensor:
    return torch.tensor([float(sum(g) - sum(b)) for g, b in zip(given, bare, strict=True)])


def follow(ids: list[int]) -> int:
    found = [b for a, b in pairwise(ids) if a == ids[-1]]
    return found[-1] if found else -1


def count(layers: int, width: int, vocab: int, length: int) -> int:
    attention, ff, norms = 4 * width * (width + 1), 8 * width**2 + 5 * width, 4 * width
    return layers * (attention + ff + norms) + width * (vocab + length + 2)


def law(x: Tensor, loss: Tensor) -> tuple[float, float]:
    slope, height = np.polyfit(np.log(x.numpy()), np.log(loss.numpy()), 1)
    return float(np.exp(-height / slope)), float(-slope)


RIGHT: dict[str, Callable[..., Any]] = {
    "few_shot_prompt": prompt,
    "choice_scores": scores,
    "induction": follow,
    "gpt_parameters": count,
    "power_law": lambda x, loss: list(law(x, loss)),
}
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q) + " ", "space behind"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q) + "\n", "line break at the end"),
    ("few_shot_prompt", lambda i, e, q: "\n".join([*(f"{a} => {b}" for a, b in e), f"{q} =>"]), "instruction is miss"),
    ("few_shot_prompt", lambda i, e, q: f"{i}\n{q} =>", "zero-shot prompt"),
    ("few_shot_prompt", lambda i, e, q: "\n".join([i, *(f"{a} =>" for a, _ in [*e, (q, "")])]), "show no answers"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q).removesuffix(" =>"), "may go on with the question"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, list(reversed(e)), q), "reverse order"),
    ("few_shot_prompt", lambda i, e, q: " ".join(prompt(i, e, q).split()), "on one line"),
    ("few_shot_prompt", lambda i, e, q: [i, *(f"{a} => {b}" for a, b in e), f"{q} =>"], "list of lines"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q).replace("=>", "->"), "right answer is"),
    ("choice_scores", lambda g, b: torch.stack([x.sum() for x in g]), "likely anywhere"),
    ("choice_scores", lambda g, b: scores(b, g), "sign is turned"),
    ("choice_scores", lambda g, b: torch.stack([x.sum() / y.sum() for x, y in zip(g, b, strict=True)]), "divided by"),
    ("choice_scores", lambda g, b: torch.stack([(x - y).mean() for x, y in zip(g, b, strict=True)]), "means over"),
    ("choice_scores", lambda g, b: torch.stack([x[0] - y[0] for x, y in zip(g, b, strict=True)]), "first token"),
    ("choice_scores", lambda g, b: scores(g, b).exp(), "leave them in logarithms"),
    ("choice_scores", lambda g, b: scores(g, b).tolist(), "torch.stack"),
    ("choice_scores", lambda g, b: scores(g, b).argmax().item(), "return all the scores"),
    ("induction", lambda ids: ids[ids.index(ids[-1]) + 1] if ids[-1] in ids[:-1] else -1, "first time"),
    ("induction", lambda ids: ids[-1] if ids[-1] in ids[:-1] else -1, "token itself"),
    ("induction", lambda ids: max([i for i in range(len(ids) - 1) if ids[i] == ids[-1]], default=-1), "the place"),
    ("induction", lambda ids: ids[len(ids) - ids[::-1].index(ids[-1])], "finds itself"),
    ("induction", lambda ids: follow(ids) if follow(ids) >= 0 else ids[-1], "never met"),
    ("induction", lambda ids: -1, "right answer is"),
    ("gpt_parameters", lambda n, d, v, t: 12 * n * d * d + (v + t) * d, "Biases and norms"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - 2 * d, "final norm's 2 D"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - t * d, "positions' table"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) + v * d, "counts twice"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - 4 * n * d, "layers' norms"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - 9 * n * d, "biases are missing"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - n * d * d, "output matrix is missing"),
    ("gpt_parameters", lambda n, d, v, t: count(1, d, v, t), "one layer"),
    ("power_law", lambda x, y: (law(x, y)[0], -law(x, y)[1]), "exponent's sign"),
    ("power_law", lambda x, y: law(x, y)[::-1], "order is turned"),
    ("power_law", lambda x, y: (law(x, y)[1] * math.log(law(x, y)[0]), law(x, y)[1]), "line's height"),
    ("power_law", lambda x, y: (law(x, y)[0] ** law(x, y)[1], law(x, y)[1]), "loss at x = 1"),
    ("power_law", lambda x, y: tuple(np.polyfit(x.log(), y.log(), 1).tolist()), "slope and height"),
    ("power_law", lambda x, y: law(x[[0, -1]], y[[0, -1]]), "first and the last point"),
    ("power_law", lambda x, y: (math.exp(math.log10(law(x, y)[0])), law(x, y)[1]), "base 10"),
    ("power_law", lambda x, y: law(x, y)[1], "tuple of 2"),
]


# The folded answers with one slip each.
SLIPS = [
    ("few_shot_prompt", ('{question} =>"', '{question} => "'), "space behind"),
    ("choice_scores", (" - b.sum()", ""), "likely anywhere"),
    ("choice_scores", ("g.sum() - b.sum()", "(g - b).mean()"), "means over"),
    ("induction", ("len(ids) - 2", "len(ids) - 1"), "finds itself"),
    ("induction", ("ids[i + 1]", "ids[i]"), "token itself"),
    ("gpt_parameters", ("13 * width", "9 * width"), "layers' norms"),
    ("gpt_parameters", (" + 2 * width", ""), "final norm's 2 D"),
    ("power_law", ("(height / -slope).exp()", "height.exp()"), "loss at x = 1"),
    ("power_law", ("float(-slope)", "float(slope)"), "exponent's sign"),
]
WRONG += right_and_wrong(cells_of("19_gpt3"), SLIPS)[1]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("19_gpt3")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "19_gpt3.json")


def test_the_papers_figures_agree_with_what_can_be_counted(paper: Any) -> None:
    for name, row in GPT3_SIZES.items():
        printed = (row.parameters, row.layers, row.width, row.heads, row.head_width, row.batch, row.lr)
        assert tuple(paper["gpt3-table"]["rows"][name]) == printed
    for name, (millions, billions, each, days) in paper["training-compute"]["rows"].items():
        flops = cost.training_flops(millions * 1e6, billions * 1e9, per_parameter=each)
        assert cost.petaflop_days(flops) == pytest.approx(days, rel=0.01), name
    table = paper["arithmetic"]
    assert all(len(row) == len(table["columns"]) for row in table["rows"].values())


def _unknown(small: tuple[int, ...], large: tuple[int, ...], control: int) -> dict[str, Any]:
    def six(zero: int, one: int, five: int) -> list[int]:
        return [zero, one, one, one, one, five]

    return {
        "unknown": {8: six(*small), 64: six(*large)}, "WIDTHS": [8, 64],
        "lines": {"random signs, largest": (list(range(6)), [50, 50, 50, 50, 50, 50 + control])},
    }  # fmt: skip


def _sums(small: int, zero: int, five: int) -> dict[str, Any]:
    rows = ((small, small), (zero, five))
    return {"table": [{"+, 0 shots": a, "+, 5 shots": b, "-, 0 shots": b, "-, 5 shots": b} for a, b in rows]}


def _law(low: float, worst: float) -> dict[str, Any]:
    return {"law": SimpleNamespace(interval=(low, 0.2), residuals=(0.0, -worst), exponent=0.1)}


OPTIMUM = {"optimum": SimpleNamespace(exponent=0.05)}
PAIR = {"training-compute": {"states": {"pair": ["a", "b"]}}}
VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("prompting-verdict", {"by_wording": {"a": 60, "b": 40}}, "reproduced"),
    ("prompting-verdict", {"by_wording": {"a": 60, "b": 58}}, "partly"),
    ("prompting-verdict", {"by_wording": {"a": 35, "b": 20}}, "partly"),
    ("prompting-verdict", {"by_wording": {"a": 30, "b": 25}}, "not at this scale"),
    ("icl-verdict", _unknown((15, 15, 16), (58, 80, 99), 1), "reproduced"),
    ("icl-verdict", _unknown((15, 15, 16), (58, 80, 99), 9), "partly"),
    ("icl-verdict", _unknown((15, 40, 60), (58, 80, 99), 1), "partly"),
    ("icl-verdict", _unknown((15, 15, 16), (58, 58, 59), 1), "not at this scale"),
    ("arithmetic-verdict", _sums(20, 90, 99), "reproduced"),
    ("arithmetic-verdict", _sums(20, 99, 100), "partly"),
    ("arithmetic-verdict", _sums(90, 91, 99), "partly"),
    ("arithmetic-verdict", _sums(90, 99, 99), "not at this scale"),
    ("scaling-verdict", _law(0.01, 0.02) | OPTIMUM, "reproduced"),
    ("scaling-verdict", _law(0.01, 0.05) | OPTIMUM, "partly"),
    ("scaling-verdict", _law(-0.01, 0.02) | OPTIMUM, "not at this scale"),
    ("scaling-verdict", {"law": None, "optimum": None}, "not at this scale"),
    ("gpt3-verdict", {"odd": ["XL", "13B"]}, "reproduced"),
    ("gpt3-verdict", {"odd": ["XL"]}, "partly"),
    ("compute-verdict", {"models": {"a": [10], "b": [95]}, "figures": {"a": 49, "b": 55}}, "reproduced"),
    ("compute-verdict", {"models": {"a": [10], "b": [75]}, "figures": {"a": 49, "b": 55}}, "partly"),
    ("compute-verdict", {"models": {"a": [10], "b": [75]}, "figures": {"a": 49, "b": 75}}, "not reproduced"),
    ("comparison-verdict", {"said": {"GPT-1": 117e6, "GPT-2": 1.5e9, "GPT-3": 175e9}}, "reproduced"),
    ("comparison-verdict", {"said": {"GPT-1": 117e6, "GPT-2": 1.5e9, "GPT-3": 100e9}}, "partly"),
    ("comparison-verdict", {"said": {"GPT-1": 1e6, "GPT-2": 1e9, "GPT-3": 100e9}}, "not reproduced"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"claims": claims, "cost": cost, "gpt1": gpt1, "gpt2": gpt2, "gpt3": gpt3, "GPT3_SIZES": GPT3_SIZES}
    run_cell(cells, cell, space | {"paper": PAIR} | given)
    said = capsys.readouterr().out
    assert f"this run: {verdict}" in said, said


@pytest.fixture(scope="module")
def space(cells: list[Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The lesson's names after its first cells, at scale smoke."""
    out = str(tmp_path_factory.mktemp("out"))
    return run_cell(cells, "start", {"SCALE": "smoke", "SEED": 0, "DEVICE": "auto", "DATA": "world", "OUT": out})


def test_a_page_says_what_its_sign_means(cells: list[Any], space: dict[str, Any]) -> None:
    run_cell(cells, "sums-pages", space)
    pages, vocab = space["pages"], space["VOCAB"]
    held = {tuple(pair) for pair in space["PROBLEMS"][space["HELD"]].tolist()}
    meanings = set()
    for row in pages(300, torch.Generator().manual_seed(0)).view(-1, 6, 6):
        signs = set()
        for a, sign, b, equals, result, stop in row.tolist():
            assert (vocab[equals], vocab[stop]) == ("=", ".") and (a, b) not in held and a >= b
            signs |= {"+"} if result == a + b != a - b else {"-"} if result == a - b != a + b else set()
            assert result in ((a + b,) if vocab[sign] == "+" else (a - b,) if vocab[sign] == "-" else (a + b, a - b))
        assert len(signs) <= 1
        meanings |= {(vocab[row[0, 1]], *signs)}
    assert {("@", "+"), ("@", "-"), ("+", "+"), ("-", "-")} <= meanings
    mixed = pages(300, torch.Generator().manual_seed(0), signs=(2,), random_labels=True).view(-1, 6, 6)
    plus = (mixed[..., 4] == mixed[..., 0] + mixed[..., 2]) & (mixed[..., 2] > 0)
    minus = (mixed[..., 4] == mixed[..., 0] - mixed[..., 2]) & (mixed[..., 2] > 0)
    assert (plus.any(1) & minus.any(1)).float().mean() > 0.8


def test_facts_are_told_before_they_are_asked(cells: list[Any], space: dict[str, Any]) -> None:
    import random

    run_cell(cells, "facts-run", space)
    template = space["prompting"].Template("{who} had the {answer}.")
    true, mixed = (space["facts"](template, 12, 40, random.Random(1), random_labels=wrong) for wrong in (False, True))
    for question in true:
        who = question.left.rsplit(". ", 1)[1].split()[0]
        told = re.findall(rf"{who} had the (\w+)\.", question.left)
        assert set(told) <= {question.answers[0]}
        assert len(set(question.choices)) == 4 and question.choices[question.label] == question.answers[0]
    contradictions = sum(len(set(re.findall(r"^(\w+) had the (\w+)", q.left))) for q in mixed)
    assert contradictions and any(
        len(set(re.findall(rf"{q.left.rsplit('. ', 1)[1].split()[0]} had the (\w+)\.", q.left))) > 1 for q in mixed
    )


def test_the_whole_lesson_may_have_a_public_model_and_a_folder(
    cells: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a network would bring, from folders: a GPT-2 in the public layout, a text of the student's own."""
    mini = zoo.load("gpt-mini")
    hf.save_pretrained(mini.model, tmp_path / "gpt2", model_type="gpt2", architecture="GPT2LMHeadModel")
    mini.tokenizer.save(tmp_path / "gpt2" / "tokenizer.json")
    source = next(cell.source for cell in cells if cell.id == "start")
    source = source.replace('MODEL = "gpt-mini"', f"MODEL = {str(tmp_path / 'gpt2')!r}")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "mine.txt").write_text("\n\n".join(f"Page {i} of a text of my own." * 9 for i in range(40)))
    space = {
        "SCALE": "smoke",
        "SEED": 0,
        "DEVICE": "auto",
        "DATA": str(tmp_path / "text"),
        "OUT": str(tmp_path / "out"),
    }
    exec(source, space)
    for name in ("facts-run", "facts-look", "facts-curve", "score-library", "playground-still", "text"):
        if name == "playground-still":
            space["PROMPTS"] = {"one": "Lily had the rope. Lily had the"}
        run_cell(cells, name, space)
    assert list(space["shipped"]) == [str(tmp_path / "gpt2")]
    assert "by hand = library: True" in capsys.readouterr().out
    assert "my own" in "".join(map(chr, space["codes"].tolist()))


def test_the_calculator_agrees_with_the_library() -> None:
    shown = view.calculator(175e9, 300e9, device="A100", devices=1000, utilisation=0.4)
    bill = cost.bill(cost.training_flops(175e9, 300e9), cost.device("A100"), devices=1000, utilisation=0.4)
    assert f"days of training {bill.days:.1f}" in repr(shown) and "3.15e23" in repr(shown)
    assert "devices to hold the weights 5, devices to train 35" in repr(shown)
    with pytest.raises(CourseError, match="no device"):
        view.calculator(device="abacus")
    with pytest.raises(CourseError, match="slider of parameters"):
        view.calculator(parameters=10)
