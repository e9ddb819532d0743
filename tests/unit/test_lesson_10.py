"""Lesson 10: typical slips in its answers are named, what it counts and claims is there, its switches do something."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from course_lib import check, data, lesson, view, zoo
from course_lib.files import read_json
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("10_bert_finetuning")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "10_bert_finetuning.json")


@pytest.fixture(scope="module")
def ledger() -> dict[str, Any]:
    return {entry["id"]: entry for entry in yaml.safe_load((ROOT / "data" / "claims.yaml").read_text("utf-8"))}


# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("cls_logits", ("h[:, 0]", "h[:, -1]"), "last token, as GPT"),
    ("cls_logits", ("h[:, 0]", "h.mean(1)"), "mean over all"),
    ("cls_logits", ("torch.tanh(", "("), "tanh"),
    ("cls_logits", ("w.T + b\n", "w.T\n"), "bias b is"),
    ("pair_batch", ("segments[row, len(a) + 2 : n] = 1", "pass"), "segments are all 0"),
    ("pair_batch", ("len(a) + 2 : n", "len(a) + 1 : n"), "first [SEP] belongs"),
    ("pair_batch", ("len(a) + 2 : n", "len(a) + 2 :"), "padding is in segment 1"),
    ("pair_batch", ("keep[row, :n] = True", "keep[row] = True"), "True everywhere"),
    ("pair_batch", ("width), pad)", "width), 0)"), "argument pad"),
    ("align_labels", (" and word != before", ""), "Every piece"),
    ("align_labels", ("else -100", "else 0"), "special tokens get 0"),
    ("align_labels", ("else -100", "else -1"), "marked -1"),
    ("span_probabilities", ("dim=1", "dim=-1"), "wrong axis"),
    ("span_probabilities", ("dim=1", "dim=0"), "over the batch"),
    ("span_probabilities", (".masked_fill(~keep[..., None], -torch.inf)", ""), "Padding has a share"),
    ("span_probabilities", ("-torch.inf", "0"), "exp(0) = 1"),
    ("best_span", (".triu()", ""), "chosen apart"),
    ("best_span", (".triu()", ".triu(1)"), "first may equal last"),
    ("best_span", ("(inside[:, None] & inside[None, :])", "torch.ones_like(total).bool()"), "padding"),
    ("best_span", ("start[:, None] + end", "start[:, None] * end"), "added"),
    ("freeze", ("model.stack.requires_grad_(False)", "pass"), "Nothing is frozen"),
    ("freeze", (" if p.requires_grad", ""), "left in the optimizer"),
    ("freeze", ("model.stack.requires", "model.stack.embed.requires"), "Only a part"),
    ("freeze", ("model.stack.requires_grad_", "model.requires_grad_"), "head is frozen too"),
]  # fmt: skip
RIGHT, WRONG = right_and_wrong(cells_of("10_bert_finetuning"), SLIPS)


def test_the_figures_are_those_of_the_ledger(paper: Any, ledger: dict[str, Any]) -> None:
    glue = paper["bert-glue"]["rows"]
    for system, said in ledger["bert-glue"]["paper"].items():
        matched, mismatched = map(float, said.pop("MNLI").split("/"))
        assert glue[system] == said | {"MNLI-m": matched, "MNLI-mm": mismatched}, system
    assert paper["bert-swag"]["rows"].items() >= {"ESIM+ELMo": 59.2, "OpenAI GPT": 78.0, "BERT-large": 86.3}.items()
    assert set(paper["bert-swag"]["rows"].values()) == set(ledger["bert-swag"]["paper"].values())
    assert max(row["F1"] for row in paper["bert-squad"]["rows"].values()) == 93.2
    tuned = ledger["frozen-or-tuned"]["paper"]
    columns = tuned.pop("columns")
    assert paper["frozen-or-tuned"]["rows"] == {n: dict(zip(columns, row, strict=True)) for n, row in tuned.items()}


def test_each_rule_stands_above_the_training(cells: list[Any]) -> None:
    for i, cell in enumerate(cells):
        if cell.cell_type == "code" and ", this run:" in cell.source:
            rule = max(j for j in range(i) if cells[j].cell_type == "markdown" and "rule" in cells[j].source)
            assert any(re.search(r"\b(finetune|sweep)\(", c.source) for c in cells[rule:i]), cell.id


def test_what_the_lesson_says_of_the_papers_tables(paper: Any) -> None:
    glue, frozen = paper["bert-glue"]["rows"], paper["frozen-or-tuned"]["rows"]
    assert glue["BiLSTM+ELMo+Attn"]["RTE"] > glue["OpenAI GPT"]["RTE"]
    gain = {t: glue["BERT-large"][t] - glue["BERT-base"][t] for t in glue["BERT-base"] if t != "average"}
    few = sorted(paper["bert-glue"]["labels"], key=paper["bert-glue"]["labels"].get)[:4]
    assert sorted(gain, key=gain.get)[-2:] == ["RTE", "CoLA"] and {"RTE", "CoLA"} <= set(few)  # type: ignore[arg-type]
    bert = {t: frozen["BERT-base tuned"][t] - frozen["BERT-base frozen"][t] for t in frozen["ELMo tuned"]}
    assert sorted(bert, key=bert.get)[-2:] == ["STS-B", "MRPC"]  # type: ignore[arg-type]
    assert all(frozen["ELMo tuned"][t] < frozen["ELMo frozen"][t] for t in bert if t != "NER")


@pytest.mark.parametrize("pair", [False, True], ids=["one text", "two texts"])
def test_the_first_head_runs_on_a_students_own_folder(
    pair: bool, cells: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, n in (("train", 40), ("dev", 40)):
        rows = [f"mine {name} {i}" + ("\tyours" if pair else "") + f"\t{('bad', 'good')[i % 2]}" for i in range(n)]
        header = "text\tpair\tlabel" if pair else "text\tlabel"
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *rows]) + "\n", "utf-8")
    bert_mini, tokenizer, _ = zoo.load("bert-mini")
    space: dict[str, Any] = {"data": data, "view": view, "tokenizer": tokenizer, "bert_mini": bert_mini}
    space["run"] = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    run_cell(cells, "data", space)
    run_cell(cells, "by-hand-batches", space)
    assert space["OWN"] and space["names"] == ["bad", "good"]
    assert all(text.startswith("mine dev") for text in space["single"]["test"]["text"]), "a test set has no labels"
    assert space["frame"].kind == ("pair" if pair else "single")
    assert "classes: ['bad', 'good']" in capsys.readouterr().out


SWEEPS: list[tuple[list[float], str]] = [
    ([5, 40, 80, 82, 79, 20, 0], "reproduced"),
    ([80, 81, 82, 82, 79, 20, 0], "partly"),  # no foot
    ([5, 40, 80, 82, 82, 81, 80], "partly"),  # no cliff
    ([5, 5, 5, 82, 5, 5, 5], "partly"),  # a peak, no plateau
    ([50, 50, 50, 50, 50, 50, 50], "not at this scale"),
]


@pytest.mark.parametrize(("scores", "verdict"), SWEEPS)
def test_the_sweeps_verdict(
    scores: list[float], verdict: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
    score = dict(zip(rates, scores, strict=True))
    best = max(score, key=score.__getitem__)
    plateau = [lr for lr in rates if score[lr] >= 0.9 * score[best]]
    run_cell(cells, "sweep-verdict", {"score": score, "best": best, "plateau": plateau, "LRS": rates})
    assert capsys.readouterr().out.endswith(f"finetuning-recipe, this run: {verdict}\n")


VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("swag-verdict", {"chosen": {"bert-mini": 60.0, "gpt-mini": 40.0}}, "reproduced"),
    ("swag-verdict", {"chosen": {"bert-mini": 60.0, "gpt-mini": 55.0}}, "partly"),
    ("swag-verdict", {"chosen": {"bert-mini": 30.0, "gpt-mini": 10.0}}, "not at this scale"),
    ("frozen-verdict", {"rows": [{"tuned minus frozen": 5.0}, {"tuned minus frozen": 2.0}]}, "reproduced"),
    ("frozen-verdict", {"rows": [{"tuned minus frozen": 5.0}, {"tuned minus frozen": 1.0}]}, "partly"),
    ("frozen-verdict", {"rows": [{"tuned minus frozen": -5.0}, {"tuned minus frozen": 1.0}]}, "not at this scale"),
    ("suite-verdict", {"grid": {"a": {"average": 50.0}, "b": {"average": 55.0}, "c": {"average": 60.0}}}, "reproduced"),
    ("suite-verdict", {"grid": {"a": {"average": 50.0}, "b": {"average": 59.0}, "c": {"average": 60.0}}}, "partly"),
    ("suite-verdict", {"grid": {"a": {"average": 50.0}, "b": {"average": 59.0}, "c": {"average": 51.0}}}, "not at"),
    ("squad-verdict", {"squad": {"bert-mini": (50, 60.0), "from scratch": (5, 30.0)}}, "reproduced"),
    ("squad-verdict", {"squad": {"bert-mini": (30, 45.0), "from scratch": (5, 10.0)}}, "partly"),
    ("squad-verdict", {"squad": {"bert-mini": (9, 19.0), "from scratch": (5, 10.0)}}, "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(cells, cell, dict(given))
    said = capsys.readouterr().out
    assert re.search(rf"this run: {verdict}", said), said


def _by_loops(start: Any, end: Any, inside: Any) -> tuple[int, int]:
    places = [i for i in range(len(start)) if inside[i]]
    return max(((i, j) for i in places for j in places if i <= j), key=lambda p: float(start[p[0]] + end[p[1]]))


def _head_first(model: Any) -> list[Any]:
    model.stack.requires_grad_(False)
    return [p for name, part in model.named_children() if name != "stack" for p in part.parameters()]


@pytest.mark.parametrize(("name", "answer"), [("best_span", _by_loops), ("freeze", _head_first)])
def test_another_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed
