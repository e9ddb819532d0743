"""Lesson 18: typical slips in its answers are named, every claim is in it, its verdicts follow their rules."""

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml

from course_lib import check, claims, cost, data, generate, heads, hf, lesson, losses, metrics, prompting, view, zoo
from course_lib.files import read_json
from course_lib.models.gpt import GPT2_SIZES, gpt, gpt2
from course_lib.stack import Stack
from course_lib.tokenizers import train_bpe
from tests.unit.lessons import answer, cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells_of("18_gpt2")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "18_gpt2.json")


# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("gpt2_parameters", ("(vocab + length)", "(2 * vocab + length)"), "tied"),
    ("gpt2_parameters", ("(vocab + length)", "vocab"), "positions are missing"),
    ("gpt2_parameters", ("(vocab + length)", "length"), "token vectors are missing"),
    ("gpt2_parameters", (" + 2 * width\n", "\n"), "last norm"),
    ("gpt2_parameters", (" + norms", ""), "blocks' norms"),
    ("gpt2_parameters", (" + norms", "", " + 2 * width\n", "\n"), "norms are missing: each block"),
    ("gpt2_parameters", ("norms = 2 * 2", "norms = 2"), "one norm in your count"),
    ("gpt2_parameters", ("norms = 2 * 2", "norms = 2", " + 2 * width\n", " + width\n"), "shifts"),
    ("gpt2_parameters", ("width * width + width)", "width * width)", "4 * width + 4 * width + 4", "4 * width + 4",
                         "width * width + width\n", "width * width\n"), "9 width"),
    ("gpt2_parameters", ("attention = 4", "attention = 3"), "four matrices"),
    ("gpt2_parameters", ("width + 4 * width + 4", "width + width + 4"), "way up"),
    ("gpt2_parameters", (" + 4 * width * width + width\n", "\n"), "two matrices"),
    ("gpt2_parameters", ("layers * (", "("), "one block"),
    ("continuation_score", ("t - 1, ids", "t, ids"), "no shift"),
    ("continuation_score", ("t - 1, ids", "t + 1, ids", "len(ids))", "len(ids) - 1)"), "wrong way"),
    ("continuation_score", ("range(start", "range(1"), "prompt is scored too"),
    ("continuation_score", ("range(start", "range(start + 1"), "first token is left out"),
    ("continuation_score", ("range(start", "range(max(1, start - 1)"), "One token of the prompt"),
    ("continuation_score", ("sum(scored)", "sum(scored) / len(scored)"), "mean"),
    ("continuation_score", ("log_softmax", "softmax"), "added up; take their logarithms"),
    ("continuation_score", ("return sum", "return -sum"), "sign"),
    ("continuation_score", (".log_softmax(-1)", ""), "without log_softmax"),
    ("continuation_score", ("log_softmax(-1)", "log_softmax(0)"), "over the positions"),
    ("continuation_score", ("sum(scored)", "torch.stack(scored)"), "one number a"),
    ("top_p", ("before >= p", "probs.cumsum(-1) > p"), "reaches p is cut off"),
    ("top_p", ("before >= p", "probs.cumsum(-1) >= p"), "reaches p is cut off"),
    ("top_p", ("before >= p", "before - probs.roll(1, -1) >= p"), "One token too many"),
    ("top_p", ("    kept = kept / kept.sum(-1, keepdim=True)\n", ""), "sum to 1"),
    ("top_p", ("descending=True", "descending=False"), "least likely"),
    ("top_p", ("torch.zeros_like(kept).scatter(-1, order, kept)", "kept"), "come back sorted"),
    ("top_p", ("before >= p", "probs < p"), "by itself"),
    ("top_p", ("before >= p", "probs < 1 - p"), "above 1 - p"),
    ("top_p", ("before >= p", "before > 9"), "Nothing is cut off"),
    ("top_p", ("before >= p", "(before[:1] if before.dim() > 1 else before) >= p"), "first row"),
    ("cached_step", ("q @ keys.T", "q @ past_k.T", "weights @ values", "weights @ past_v"), "does not see itself"),
    ("cached_step", ("[past_k, k]", "[k, past_k]", "[past_v, v]", "[v, past_v]"), "in front"),
    ("cached_step", (" / q.shape[-1] ** 0.5", ""), "not divided"),
    ("cached_step", ("q.shape[-1]", "len(keys)"), "of the length"),
    ("cached_step", ("softmax(-1)", "softmax(0)"), "dim=0"),
    ("cached_step", ("values, keys, values", "values, past_k, past_v"), "old keys and values"),
    ("cached_step", ("values, keys, values", "values, values, keys"), "wrong order"),
    ("cached_step", ("weights @ values, keys, values", "weights @ values"), "Only the output"),
    ("cached_step", ("[past_k, k]", "[past_k, q]"), "stored in place"),
]  # fmt: skip


RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


def _nucleus_by_loop(logits: Any, p: float) -> Any:
    out = torch.zeros_like(logits)
    for row, probs in zip(out.view(-1, logits.shape[-1]), logits.softmax(-1).view(-1, logits.shape[-1]), strict=True):
        total = 0.0
        for i in probs.argsort(descending=True).tolist():
            if total >= p:
                break
            row[i], total = probs[i], total + float(probs[i])
        row /= row.sum()
    return out


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gpt2_parameters", lambda n, d, v, t: n * (12 * d * d + 13 * d) + (v + t + 2) * d),
        ("continuation_score", lambda x, ids, s: -F.cross_entropy(x[s - 1 : -1], ids[s:], reduction="sum").item()),
        ("top_p", _nucleus_by_loop),
        ("cached_step", lambda q, k, v, past_k, past_v: (
            F.scaled_dot_product_attention(q, torch.vstack([past_k, k]), torch.vstack([past_v, v])),
            torch.vstack([past_k, k]), torch.vstack([past_v, v]),
        )),
    ],
)  # fmt: skip
def test_another_right_answer_passes(name: str, other: Any) -> None:
    assert getattr(check, name)(other).passed


def test_the_answer_counts_what_the_library_counts() -> None:
    for name, (layers, width, _) in GPT2_SIZES.items():
        assert answer(CELLS, "gpt2_parameters")(layers, width, 50257, 1024) == cost.parameters(gpt2(name))


def test_the_papers_figures_are_the_ledgers(paper: Any) -> None:
    ledger = {e["id"]: e for e in yaml.safe_load((ROOT / "data" / "claims.yaml").read_text("utf-8"))}
    theirs = ledger["gpt2-zero-shot"]["paper"]
    ours = paper["gpt2-zero-shot"]
    assert ours["columns"] == theirs["columns"]
    assert list(ours["rows"].values()) == [theirs[name] for name in ("SOTA", "117M", "345M", "762M", "1542M")]
    assert sorted(paper["gpt2-tldr"]["rows"].values()) == sorted(ledger["gpt2-tldr"]["paper"].values())
    for r1, r2, rl, mean in paper["gpt2-tldr"]["rows"].values():
        assert mean == pytest.approx((r1 + r2 + rl) / 3, abs=0.01)
    said = ", ".join(f"{row['millions']}M/{row['layers']}/{row['width']}" for row in paper["gpt2-sizes"]["rows"])
    assert said == ledger["gpt2-sizes"]["says"]
    assert ours["Winograd schemas, 1542M (%)"] == 70.7


def test_the_labels_fit_gpt1s_tables(paper: Any) -> None:
    """What the lesson says of them: within a million and a half each, and all true counts are above."""
    labels = {row["layers"]: row["millions"] for row in paper["gpt2-sizes"]["rows"]}
    for name, (layers, width, split) in GPT2_SIZES.items():
        old = cost.parameters(gpt(40478, width=width, layers=layers, heads=split, length=512))
        assert abs(old / 1e6 - labels[layers]) < 1.5
        assert cost.parameters(gpt2(name)) / 1e6 > labels[layers]


def _sizes(*rows: tuple[float, float, float, float]) -> dict[str, Any]:
    names = ("last word", "choice", "pronoun", "perplexity")
    scores = {f"gpt-{i}": dict(zip(names, row, strict=True)) for i, row in enumerate(rows)}
    return {"scores": scores, "SIZES": list(scores), "measures": names[:3], "TESTS": 200}


LOW, HIGH, SAME = (0.1, 0.4, 0.5, 9.0), (0.5, 0.8, 0.7, 5.0), (0.12, 0.41, 0.5, 9.5)
VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("sizes-verdict", {"off": [0.001, 0.009]}, "reproduced"),
    ("sizes-verdict", {"off": [0.001, 0.064]}, "partly"),
    ("sizes-verdict", {"off": [0.2, 0.064]}, "not at this scale"),
    ("zero-shot-verdict", _sizes(LOW, LOW, LOW, HIGH), "reproduced"),
    ("zero-shot-verdict", _sizes(LOW, LOW, LOW, (*HIGH[:2], 0.52, 5.0)), "partly"),
    ("zero-shot-verdict", _sizes(LOW, LOW, LOW, SAME), "not at this scale"),
    ("zero-shot-verdict", _sizes(HIGH, LOW, LOW, LOW), "not at this scale"),
    ("zero-shot-verdict", _sizes(LOW, HIGH), "open, 2 of at least 4"),
    ("tldr-verdict", {"mean": {"In short,": 40, "no hint": 20, "Lead-3": 45}}, "reproduced"),
    ("tldr-verdict", {"mean": {"In short,": 40, "no hint": 20, "Lead-3": 35}}, "partly"),
    ("tldr-verdict", {"mean": {"In short,": 22, "no hint": 20, "Lead-3": 35}}, "partly"),
    ("tldr-verdict", {"mean": {"In short,": 22, "no hint": 20, "Lead-3": 15}}, "not at this scale"),
    ("sharpens-verdict", {"surprise": [9, 5, 3], "openness": [5, 4, 3]}, "reproduced"),
    ("sharpens-verdict", {"surprise": [9, 3, 5], "openness": [5, 4, 3]}, "partly"),
    ("sharpens-verdict", {"surprise": [9, 5, 3], "openness": [3, 4, 5]}, "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = next(c.source for c in CELLS if c.id == "start")
    assert "from itertools import pairwise" in start
    run_cell(CELLS, cell, given | {"claims": claims, "math": math, "pairwise": pairwise})
    said = capsys.readouterr().out
    assert f"this run: {verdict}" in said, said


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 in the public layout, as the hub has it."""
    folder = tmp_path_factory.mktemp("gpt2")
    words = train_bpe(["Nadia bought the lamp. Paul bought the coin."] * 3, 300)
    torch.manual_seed(0)
    model = heads.LM(Stack(gpt(words.vocab.size, width=16, layers=2, heads=2, length=400)))
    hf.save_pretrained(model, folder, model_type="gpt2", architecture="GPT2LMHeadModel")
    words.save(folder)
    return folder


def test_public_models_come_through_the_same_cells(public: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub's path of the lesson, on a local folder in the hub's layout: models, measures, table, verdict."""
    space: dict[str, Any] = {
        "torch": torch, "math": math, "pairwise": pairwise, "zoo": zoo, "cost": cost, "losses": losses, "view": view,
        "prompting": prompting, "metrics": metrics, "claims": claims, "data": data, "TESTS": 6,
    }  # fmt: skip
    run_cell(CELLS, "bytes-measure", space)
    source = next(cell.source for cell in CELLS if cell.id == "zero-shot-models")
    assert "PUBLIC = []" in source
    exec(source.replace("PUBLIC = []", f'PUBLIC = ["hub:{public}", "{public}"]'), space)
    space["SIZES"], space["town"] = space["SIZES"][-2:], ["Nadia bought the lamp."]
    space |= {name: data.task(f"world/{name}", split="test", n=6) for name in ("cloze", "pronouns")}
    for name in ("zero-shot-run", "zero-shot-table", "zero-shot-figure", "zero-shot-verdict"):
        run_cell(CELLS, name, space)
    assert space["scores"][f"hub:{public}"] == space["scores"][str(public)]
    assert "gpt2-zero-shot, this run:" in capsys.readouterr().out


def test_the_real_text_may_be_a_students_own(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n\n".join(f"My own page {i}, naïve 🙂." for i in range(40)), "utf-8")
    run = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    space: dict[str, Any] = {
        "run": run,
        "data": data,
        "tokenizer": zoo.load("gpt-mini").tokenizer,
        "topics": {},
        "re": re,
    }
    run_cell(CELLS, "texts", space)
    assert all("own page" in text for text in space["texts"]["real"] + space["texts"]["held out"])


def test_a_hint_is_answered_for_every_story() -> None:
    """Padding on the left does not change what is written."""
    gpt_mini, tokenizer, _ = zoo.load("gpt-mini")
    stories = {"text": ["Nadia sold the lamp.", "It rained. Paul bought the coin. Nadia sold the lamp to Olga."]}
    space: dict[str, Any] = {"torch": torch, "generate": generate, "gpt_mini": gpt_mini, "tokenizer": tokenizer}
    space |= {"stories": stories, "NEW": 8}
    together = run_cell(CELLS, "tldr-write", dict(space))["written"]["In short,"]
    apart = [
        run_cell(CELLS, "tldr-write", space | {"stories": {"text": [text]}})["written"] for text in stories["text"]
    ]
    assert together == [written["In short,"][0] for written in apart]
