"""The verdict that a lesson gives on its own live run follows its rule, whatever comes out."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev, variance
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from classroom import figures, records, widgets
from course_lib import objectives
from course_lib.analysis import cost, metrics
from course_lib.families.gpt import GPT3_SIZES, gpt1, gpt2, gpt3
from tests.classroom.checks.lessons import paper, run_cells

KNOWN = {
    "records": records, "claims": records, "figures": figures, "widgets": widgets, "cost": cost, "metrics": metrics,
    "objectives": objectives, "torch": torch, "math": math, "mean": mean, "stdev": stdev, "variance": variance,
    "pairwise": pairwise, "gpt1": gpt1, "gpt2": gpt2, "gpt3": gpt3, "GPT3_SIZES": GPT3_SIZES,
    "run": SimpleNamespace(seed=0, generator=lambda offset=0: torch.Generator().manual_seed(offset)),
}  # fmt: skip


BASE = [4.80, 4.82, 4.84, 4.82]


def relatives(counts: bool, albert: float, spans: float, harder: bool, deberta: float) -> dict[str, Any]:
    losses = {"both (ALBERT)": albert, "disentangled (DeBERTa)": deberta}
    given = {"counts_hold": counts, "losses_": losses, "plainly": BASE, "on_spans": BASE, "harder": harder}
    return given | {"by_spans": None, "surprise": lambda *_: (spans, 0.0)}


def pooled(glove: float, bert: float, cls: float, ours: float) -> dict[str, Any]:
    """Each system's cosines are the grades with so much noise."""
    draw = torch.Generator().manual_seed(0)
    grades = [float(i % 6) for i in range(600)]
    noise = {"avg glove": glove, "avg BERT": bert, "BERT CLS": cls, "S-BERT softmax": ours}
    said = {n: [g + s * torch.randn((), generator=draw).item() for g in grades] for n, s in noise.items()}
    return {"grades": grades, "said": said, "sts": lambda cosines: 100 * metrics.spearman(cosines, grades)}


def ranked(ours: int, hybrid: int, by_words: int) -> dict[str, Any]:
    """The right answer is first (1), behind others (2, 3) or not found (0); two queries differ, for a spread."""

    def at(place: int) -> list[int]:
        return [9] * (place > 1) + [7] if place else []

    places = dict.fromkeys(("BM25", "TF-IDF", "avg word2vec", "avg glove"), by_words) | {"hybrid": hybrid}
    found = {name: [at(place)] * 28 + [at(0), at(1)] for name, place in places.items()}
    found["S-BERT"] = [at(ours)] * 28 + [at(1), at(0)]
    queries = [SimpleNamespace(kind="other words", text="x", answers={7}) for _ in range(30)]
    return {
        "KINDS": ["other words"], "shelf": SimpleNamespace(queries=queries), "found": found, "words_of": str.split,
        "static": {"word2vec": SimpleNamespace(numbers={})},
    }  # fmt: skip


def spans(letters: bool = True, hidden: float = 0.15, back: bool = True) -> dict[str, Any]:
    row = {"corpus": "town", "texts": 9, "hidden": hidden, "mean span": 3.1, "restored": back}
    return {"letters": letters, "pages": ["town"], "counted": lambda name: dict(row)}


def unknown(small: tuple[int, ...], large: tuple[int, ...], control: int) -> dict[str, Any]:
    """After 0, 1 to 4 and 5 examples."""
    curves = {width: [zero, *[one] * 4, five] for width, (zero, one, five) in ((8, small), (64, large))}
    lines = {"random signs, largest": (list(range(6)), [50, 50, 50, 50, 50, 50 + control])}
    return {"unknown": curves, "WIDTHS": [8, 64], "lines": lines}


def law(low: float, worst: float | None) -> dict[str, Any]:
    if worst is None:  # too few runs for a line
        return {"law": None, "optimum": None}
    fit = SimpleNamespace(interval=(low, 0.2), residuals=(0.0, -worst), exponent=0.1)
    return {"law": fit, "optimum": SimpleNamespace(exponent=0.05)}


def adapters(changed: float, *scores: float) -> dict[str, Any]:
    by_width = dict(enumerate(zip((0.01, 0.04, 0.2), scores, strict=True)))
    return {"full": SimpleNamespace(score=0.9), "changed": changed, "by_width": by_width}


def bill(gap: float, part: float) -> dict[str, Any]:
    names = ("BERT-base", "BERT-large")
    share = {(name, "as if all had 512"): part for name in names}
    return {"nearest": {"BERT-base": -gap}, "share": share, "counted": names}


def streets(price: float, **better: float) -> dict[str, Any]:
    """Each network is right with the same probabilities on everything; `encoder_who=0.3` adds to one. price: FLOPs."""
    forms = {"encoder": "encoder", "decoder": "decoder", "both": "encoder-decoder"}
    base = torch.rand(2, 200, generator=torch.Generator().manual_seed(0)) + 0.2
    score = {form: dict.fromkeys(("who", "roles", "velin", "then", "search"), base.tolist()) for form in forms.values()}
    for name, gain in better.items():
        form, task = name.split("_")
        score[forms[form]][task] = (base + gain).tolist()
    costs = {(form, task): price if form == "encoder" else 2.0 for form in score for task in ("who", "roles")}
    return {"score": score, "SEEDS": [0, 1], "TESTS": 200, "FORM": forms.values(), "PEOPLE": "abcdefgh", "costs": costs}


TABLE = json.loads(Path(__file__).with_name("verdicts.json").read_text("utf-8"))
VERDICTS = ("reproduced", "partly", "not at this scale", "not reproduced", "open, 2 of at least 4")
CASES = [
    pytest.param(name, row, verdict, marks=[pytest.mark.slow] * ("pooling" in name))
    for name in TABLE
    for verdict in VERDICTS
    for row in TABLE[name].get(verdict, [])
]


@pytest.mark.parametrize(("name", "row", "verdict"), CASES)
def test_a_live_verdict_follows_its_rule(name: str, row: Any, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    """verdicts.json: a lesson and its cells; the figures of all rows, and each row's own; or who makes them of it."""
    lesson, *cells = name.split()
    given = TABLE[name].get("figures", {})
    if "made" in TABLE[name]:
        named = row[-1] if row and isinstance(row[-1], dict) else {}
        row = globals()[TABLE[name]["made"]](*row[: len(row) - bool(named)], **named)
    space = KNOWN | {"paper": paper(lesson)} | given | row
    run_cells(lesson, space, *cells)
    found = re.findall(r"this run:\s(.*)", capsys.readouterr().out)
    assert re.match(rf"{verdict}(\W|$)", found[-1])


def test_a_difference_that_the_seeds_do_not_share_is_none() -> None:
    clearly = run_cells("21_choosing", dict(KNOWN), "arch-clear")["clearly"]
    draw = torch.rand(2, 150, generator=torch.Generator().manual_seed(1))
    assert clearly((draw + 0.1).tolist(), draw.tolist()) and not clearly(draw.tolist(), draw.tolist())
    turned = draw + torch.tensor([[0.9], [-0.05]])
    assert not clearly(turned.tolist(), draw.tolist())
