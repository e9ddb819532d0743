"""Lesson 14: typical slips in its answers are named, its verdict follows its rule, it runs with and without
electra-mini, on a student's own text and with a public ELECTRA."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, claims, corrupt, cost, heads, hf, lesson, view, zoo
from course_lib.electra import Electra, detection_loss
from course_lib.files import read_json
from course_lib.models import electra
from course_lib.tokenizers import train_wordpiece
from tests.unit.lessons import ROOT, cells_of, right_and_wrong, run_cell

CELLS = cells_of("14_electra")

# The folded answers with one slip each, and a word of the sentence that must name it.
DRAW = "torch.multinomial(logits.softmax(-1), 1, generator=rng)[:, 0]"
SLIPS = [
    ("sample_words", (DRAW, "logits.argmax(-1)"), "likeliest"),
    ("sample_words", (", generator=rng", ""), "same generator"),
    ("sample_words", ("[:, 0]", ""), "[N 1]"),
    ("sample_words", ("logits.softmax(-1)", "(-logits).softmax(-1)"), "sign"),
    ("sample_words", ("logits.softmax(-1)", "torch.ones_like(logits)"), "equally often"),
    ("sample_words", ("generator=rng", "generator=torch.Generator().manual_seed(0)"), "Another generator"),
    ("sample_words", ("logits.softmax(-1)", "logits.softmax(0)"), "equally often"),
    ("sample_words", ("logits.softmax(-1)", "(logits / 2).softmax(-1)"), "shares"),
    ("sample_words", ("(logits.", "(logits[:1].", "[:, 0]", "[:, 0].expand(len(logits))"), "own"),
    ("replace_tokens", ("seen, seen != ids", "seen, at"), "compare the new text"),
    ("replace_tokens", ("seen != ids", "seen == ids"), "changed places: replaced"),
    ("replace_tokens", ("return seen, seen != ids", "return seen != ids, seen"), "return seen, replaced"),
    ("replace_tokens", ("seen = ids.clone()", "seen = ids"), "in place"),
    ("replace_tokens", ("seen[at] = sampled", "seen.T[at.T] = sampled"), "down the columns"),
    ("replace_tokens", ("seen[at] = sampled", "seen[at] = sampled.flip(0)"), "reverse"),
    ("replace_tokens", ("seen, seen != ids", "ids, at"), "not in it"),
    ("replace_tokens", ("return seen, seen != ids", "return seen"), "alone"),
    ("replace_tokens", ("seen != ids", "(seen != ids).long()"), "type"),
    ("rtd_loss", ("each[keep].mean()", "each.mean()"), "Padding is counted"),
    ("rtd_loss", ("each[keep].mean()", "(each * keep).mean()"), "division"),
    ("rtd_loss", ("each[keep]", "each[replaced]"), "the others teach"),
    ("rtd_loss", ("each[keep]", "each[keep & ~replaced]"), "left alone"),
    ("rtd_loss", ("replaced.float()", "(~replaced).float()"), "turned round"),
    ("rtd_loss", (".mean()", ".sum()"), "sum"),
    ("rtd_loss", ("each[keep].mean()", "((each * keep).sum(1) / keep.sum(1)).mean()"), "rows' means"),
    ("rtd_loss", ("logits(logits, replaced", "logits(logits.sigmoid(), replaced"), "twice"),
    ("rtd_loss", ("each[keep].mean()", "each[keep]"), "one a token"),
    ("rtd_loss", ("return each", "return -each"), "sign"),
    ("steps_for", ("3 * rows", "rows"), "backward pass"),
    ("steps_for", ("3 * rows", "2 * rows"), "three in all"),
    ("steps_for", ("3 * rows", "3"), "rows of the batch"),
    ("steps_for", ("sum(forwards)", "forwards[0]"), "thrown away"),
    ("steps_for", ("sum(forwards)", "forwards[-1]"), "every model"),
    ("steps_for", ("int(budget // (3 * rows * sum(forwards)))", "budget / (3 * rows * sum(forwards))"), "whole number"),
    ("steps_for", ("int(budget // (", "round(budget / ("), "nearest"),
    ("steps_for", ("int(budget // (", "-int(-budget // ("), "Rounded up"),
    ("steps_for", ("int(budget // (3 * rows * sum(forwards)))", "3 * rows * sum(forwards)"), "cost of one step"),
]  # fmt: skip

RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


def _by_gumbel(logits: Any, rng: Any) -> Any:
    return (logits - torch.empty_like(logits).exponential_(generator=rng).log()).argmax(-1)


def _by_cumulative_sum(logits: Any, rng: Any) -> Any:
    passed = logits.softmax(-1).cumsum(-1)
    return (passed < torch.rand(len(logits), 1, generator=rng)).sum(-1).clamp(max=logits.shape[-1] - 1)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sample_words", _by_gumbel),
        ("sample_words", _by_cumulative_sum),
        ("sample_words", corrupt.sample),
        ("replace_tokens", lambda ids, at, sampled: tuple(corrupt.replace_tokens(ids, at, sampled))),
        ("rtd_loss", detection_loss),
        ("rtd_loss", lambda x, r, k: -torch.where(r, F.logsigmoid(x), F.logsigmoid(-x))[k].mean()),
        ("steps_for", lambda budget, forwards, rows: int(budget / (sum(3 * rows * f for f in forwards)))),
    ],
)
def test_another_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


def test_what_the_lesson_says_of_the_papers_figures() -> None:
    """Parameters that can be counted agree with the course's own; the text's comparisons hold in the tables."""
    paper = read_json(ROOT / "data" / "papers" / "14_electra.json")
    small = paper["small"]["rows"]
    for name, build in (("ELECTRA-Small", electra.electra_small), ("ELECTRA-Base", electra.electra_base)):
        assert cost.parameters(build()) / 1e6 == pytest.approx(small[name]["millions"], rel=0.05)
    eighth = small["ELECTRA-Small, 12.5%"]
    assert eighth["GLUE"] > small["BERT-Small"]["GLUE"]
    assert eighth["FLOPs"] / small["BERT-Small"]["FLOPs"] == pytest.approx(0.125, abs=0.01)
    ablation = {name.split(":")[0]: row["GLUE"] for name, row in paper["ablation"]["rows"].items()}
    assert ablation["ELECTRA 15%"] - ablation["BERT"] < 0.5 < ablation["ELECTRA"] - ablation["ELECTRA 15%"]


def _ended(mlm: list[float], all_tokens: list[float], chosen: list[float]) -> dict[str, Any]:
    ends = {"MLM": mlm, "ELECTRA": all_tokens, "ELECTRA 15%": chosen}
    return {"curves": {name: [[0.0] * 3, [0.0] * 3, end] for name, end in ends.items()}}


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (_ended([60, 61, 62], [70, 71, 72.5], [50, 51, 51]), "reproduced"),
        (_ended([80, 81, 82], [70, 71, 72.5], [50, 51, 51]), "partly"),
        (_ended([60, 61, 62], [70, 71, 72.5], [70, 75, 71]), "partly"),
        (_ended([60, 80, 62], [70, 71, 60], [70, 75, 71]), "not at this scale"),
        (_ended([70, 70, 70], [71, 69, 71], [70, 70, 70]), "not at this scale"),
    ],
)
def test_the_verdict_follows_its_rule(given: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_cell(CELLS, "verdict", {"claims": claims, "mean": mean, "stdev": stdev, **given})
    assert f"electra-efficiency, this run: {verdict}\n" in capsys.readouterr().out


def _space(tmp_path: Path, source: str = "world") -> dict[str, Any]:
    """The lesson's first cells, so far as to have batches."""
    space: dict[str, Any] = {"__name__": "lesson", "SCALE": "smoke", "SEED": 0, "DEVICE": "auto", "DATA": source}
    space["OUT"] = str(tmp_path / "out")
    return run_all(space, "start", "text", "text-rows", "batches")


def run_all(space: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        run_cell(CELLS, name, space)
    return space


def test_the_texts_may_be_a_students_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"My own page says the word {word} again and again. " * 3 for word in ("lamp", "coin", "shelf")]
    (tmp_path / "train.txt").write_text("\n\n".join(lines), "utf-8")
    space = _space(tmp_path, str(tmp_path))
    assert "My own page says" in capsys.readouterr().out
    assert set(space["batch"]) >= {"ids", "at", "labels", "keep"}
    own = " ".join(
        space["tokenizer"].tokens(corrupt.original(*(space["batch"][k] for k in ("ids", "labels", "at")))[0])
    )
    assert "my own page says" in own
    assert {"tokens", "deprels"} <= set(space["parsed"][0]), "the task stays the town's"


def test_the_parts_of_the_lesson_are_the_librarys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Toy, gradients, joint loss: what the text says of them is what they print."""
    space = run_all(_space(tmp_path), "toy-words", "toy-generator", "toy-sample", "toy-replace", "toy-discriminator",
                    "toy-vector", "two-configs", "two-pair", "two-gradients", "two-joint-run")  # fmt: skip
    said = capsys.readouterr().out
    assert said.count("False") == 1 and "expression = library: True" in said and "by hand = library: True" in said
    assert space["drawn"][0] == space["sentence"][1], "one of the three draws is right"
    rows = {row["word"]: row["p(replaced)"] for row in space["table_rows"]}
    assert rows["wolf"] > 0.5, "the odd word at the end is found"
    moved = [line for line in said.splitlines() if "token vectors get a gradient" in line]
    size = space["vocab"].size
    assert f": {size:,} of {size:,} " in moved[0] and f": {size:,} of {size:,} " not in moved[1]
    assert moved[0].endswith("True") and moved[1].endswith("False"), "no gradient passes through the draws"


@pytest.fixture(scope="module")
def english() -> Any:
    return train_wordpiece(["the chef cooked a meal for the family . it rained all night ."] * 3, 90)


def _tiny(size: int) -> tuple[heads.MLM, heads.RTD]:
    torch.manual_seed(0)
    return electra.pair(electra.electra(size, width=16, layers=1, heads=4, length=160, dropout=0.0))


@pytest.mark.parametrize("form", ["hub:{}", "{}"])
def test_a_public_electra_plays_the_game(tmp_path: Path, english: Any, form: str) -> None:
    """The hub's path of the lesson, on local folders in the hub's layout."""
    writer, judge = _tiny(english.vocab.size)
    names = []
    for name, model, kind in (("d", judge, "ElectraForPreTraining"), ("g", writer, "ElectraForMaskedLM")):
        hf.save_pretrained(model, tmp_path / name, model_type="electra", architecture=kind)
        english.save(tmp_path / name)
        names.append(form.format(tmp_path / name))
    source = next(cell.source for cell in CELLS if cell.id == "public")
    assert "PUBLIC = []" in source
    run = lesson.start("smoke", 0, "auto", "world", str(tmp_path / "out"))
    space = {"run": run, "zoo": zoo, "view": view, "torch": torch, "corrupt": corrupt, "Electra": Electra}
    for cell in ("game-rounds", "game-tools"):
        run_cell(CELLS, cell, space)
    exec(source.replace("PUBLIC = []", f"PUBLIC = {names}"), space)
    assert "chef" in repr(space["shown"]) and "In the text stood" in repr(space["shown"])


def test_the_lesson_runs_with_a_shipped_electra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiny stand-in where `electra-mini` will be; and one honest line where it is not."""
    pieces = zoo.load("bert-mini").tokenizer
    writer, judge = _tiny(pieces.vocab.size)
    card = {"tokens": 1000, "steps": 10, "recipe": {"rows": 2, "mask_rate": 0.15}}
    shelf = {"electra-mini": judge, "electra-mini-generator": writer, "bert-mini": judge}
    stub = SimpleNamespace(names=lambda: list(shelf), load=lambda name: zoo.Loaded(shelf[name], pieces, card))
    space = _space(tmp_path)
    run_all(space, "two-configs", "train-judge", "discard-task", "discard-setup")
    space |= {"zoo": stub, "Electra": Electra, "SEEDS": [0]}
    run_all(space, "shipped", "shipped-race")
    assert "draws right" in capsys.readouterr().out
    assert "training FLOPs" in repr(space["comparison"]) and "electra-mini " in repr(space["comparison"])
    space["zoo"] = SimpleNamespace(names=lambda: ["bert-mini"])
    run_all(space, "shipped", "shipped-race")
    assert capsys.readouterr().out.count("not among the shipped checkpoints yet") == 2
