"""Lesson 21: wrong answers are named, its verdicts follow their rules, its card holds every claim and guesses none."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, claims, cost, hf, zoo
from course_lib.claims import ledger
from course_lib.corrupt import IGNORE
from course_lib.files import read_json
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]
PAPER = read_json(ROOT / "data" / "papers" / "21_choosing.json")

# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("answer_flops", ("return 2 *", "return 6 *"), "what training takes"),
    ("answer_flops", ("return 2 *", "return 1 *"), "Half of it"),
    ("answer_flops", ("read + written - 1", "read + written"), "one token is counted too many"),
    ("answer_flops", ("sum(read + i for i in range(written))", "read + written - 1"), "The cache makes no difference"),
    ("answer_flops", ("if cache", "if not cache"), "exchanged"),
    ("answer_flops", ("sum(read + i for", "sum(read for"), "the text grows"),
    ("answer_flops", ("read + written - 1", "written", "sum(read + i", "sum(i"), "What was read is not in it"),
    ("training_bill", ("6 *", "2 *"), "a third of the bill"),
    ("training_bill", ("(peak * utilisation)", "peak"), "utilisation is left out"),
    ("training_bill", ("/ (peak * utilisation)", "/ peak * utilisation"), "divide by it"),
    ("training_bill", (" / 3600", ""), "counts seconds"),
    ("training_bill", ("3600", "60"), "minutes"),
    ("training_bill", (" * price", ""), "These are the hours"),
    ("training_bill", ("* price", "/ price"), "divides by the price"),
    ("amplification", ("(said - 0.5).abs() - (corpus - 0.5).abs()", "said - corpus"), "cancel in it"),
    ("amplification", ("(said - 0.5).abs() - (corpus - 0.5).abs()", "(said - corpus).abs()"), "must get a minus"),
    ("amplification", ("(said - 0.5).abs() - (corpus - 0.5)", "(corpus - 0.5).abs() - (said - 0.5)"), "turned"),
    ("amplification", ("mean()", "sum()"), "the mean is asked for"),
    ("amplification", (" - (corpus - 0.5).abs()", ""), "not subtracted"),
    ("amplification", ("(said - 0.5).abs() - (corpus - 0.5).abs()", "(said - 0.5)**2 - (corpus - 0.5)**2"), "squared"),
    ("preference_loss", ("F.logsigmoid(chosen - rejected)", "(chosen - rejected).sigmoid().log()"), "infinite"),
    ("preference_loss", ("chosen - rejected", "rejected - chosen"), "exchanged"),
    ("preference_loss", ("return -", "return "), "minus that"),
    ("preference_loss", ("mean()", "sum()"), "take the mean"),
    ("preference_loss", ("-F.logsigmoid(chosen - rejected)", "(rejected - chosen).sigmoid()"), "logarithm is missing"),
    ("preference_loss", ("F.logsigmoid(chosen - rejected)", "(F.logsigmoid(chosen) + F.logsigmoid(-rejected))"), "own"),
    ("preference_loss", ("-F.logsigmoid(chosen - rejected)", "(1 - chosen + rejected).clamp(min=0)"), "margin"),
    ("preference_loss", ("-F.logsigmoid(chosen - rejected)", "(rejected - chosen)"), "plain difference"),
]  # fmt: skip
RIGHT, WRONG = right_and_wrong(cells_of("21_choosing"), SLIPS)
ZERO = {"SEED": 0, "DEVICE": "auto", "DATA": "world"}


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("21_choosing")


@pytest.fixture
def space(cells: list[Any], tmp_path: Path) -> dict[str, Any]:
    """What the start cell makes, at scale smoke."""
    return run_cell(cells, "start", {"SCALE": "smoke", "OUT": str(tmp_path / "out"), **ZERO})


def test_other_right_answers_pass() -> None:
    assert check.answer_flops(lambda n, r, w, c: 2 * n * (r + w - 1 if c else r * w + w * (w - 1) // 2)).passed
    assert check.preference_loss(lambda c, r: F.softplus(r - c).mean()).passed
    assert check.amplification(lambda c, s: (s - 0.5).abs().mean() - (c - 0.5).abs().mean()).passed


# --- the three architectures ------------------------------------------------------------------------------------


@pytest.fixture
def street(cells: list[Any], space: dict[str, Any]) -> dict[str, Any]:
    for name in ("street", "street-rows", "street-ids", "forms", "forms-encoder", "forms-decoder", "build", "flops"):
        run_cell(cells, name, space)
    return space


def test_the_three_read_the_same_rows(street: dict[str, Any]) -> None:
    import random

    rng = random.Random(3)
    rows = [street["row"](task, rng) for task in street["TASKS"] for _ in range(5)]
    batches = {kind: form(rows) for kind, form in street["FORM"].items()}
    for i, (task, source, target) in enumerate(rows):
        wanted = street["ids"](target)
        for kind, batch in batches.items():
            labels = batch["labels"][i]
            kept = street["PLACES_KEPT"][task] if kind == "encoder" else 0
            assert labels[labels != IGNORE].tolist() == wanted[: kept or None], (task, kind)
        places = (batches["encoder"]["labels"][i] != IGNORE).nonzero()[:, 0].tolist()
        first = 1 if task == "roles" else len(street["ids"](source))  # tags stand at the words, masks behind them
        assert places == list(range(first, first + len(places)))
        read = batches["encoder"]["ids"][i][batches["encoder"]["keep"][i]].tolist()
        assert read[: len(street["ids"](source))] == street["ids"](source)
    for text, roles in street["FORMS"]:
        said = dict(zip(text.split(), roles.split(), strict=True))
        assert [said[who] for who in ("{x}", "{y}", "{o}")] == ["giver", "taker", "thing"]


def test_padding_costs_nothing(street: dict[str, Any]) -> None:
    rows = [("who", "who? Mara gave Theo the lamp .", "Theo")]
    longer = [*rows, ("velin", "velin? the lamp was given to Theo by Mara .", "Mara -o Theo -ti lamp -m gifu")]
    for kind, form in street["FORM"].items():
        alone, padded = form(rows), {name: part[:1] for name, part in form(longer).items()}
        assert street["flops"](kind, alone) == street["flops"](kind, padded)


def _scores(**better: float) -> dict[str, Any]:
    """Every network right with probability a half on everything; `encoder_who=0.3` adds to one."""
    kinds = {"encoder": "encoder", "decoder": "decoder", "both": "encoder-decoder"}
    base = torch.rand(2, 200, generator=torch.Generator().manual_seed(0))
    tasks = ("who", "roles", "velin", "then", "search")
    table = {name: {task: (base + 0.2).tolist() for task in tasks} for name in kinds.values()}
    for key, gain in better.items():
        kind, task = key.split("_")
        table[kinds[kind]][task] = (base + 0.2 + gain).tolist()
    return table


CHEAP = {(kind, task): 2.0 for kind in ("decoder", "encoder-decoder") for task in ("who", "roles")}
OPEN = {"decoder_then": -0.3, "both_then": -0.3}
MANY = {"both_velin": 0.3}
ARCH: list[tuple[dict[str, float], float, str]] = [
    ({**OPEN, **MANY}, 1.0, "reproduced"),
    ({**OPEN, "both_velin": 0.0}, 1.0, "partly"),
    ({**OPEN, **MANY}, 3.0, "partly"),
    ({"decoder_search": 0.2, **OPEN}, 1.0, "partly"),
    ({"decoder_then": -0.1, "both_then": -0.3, "decoder_who": 0.2}, 1.0, "not at this scale"),
    ({"encoder_search": -0.4, "decoder_velin": 0.3, "both_velin": 0.3}, 1.0, "not at this scale"),
]


@pytest.mark.parametrize(("better", "price", "verdict"), ARCH)
def test_the_architectures_verdict_follows_its_rule(
    better: dict[str, float], price: float, verdict: str, cells: list[Any], street: dict[str, Any], capsys: Any
) -> None:
    street |= {"score": _scores(**better), "SEEDS": [0, 1], "TESTS": 200}
    street["costs"] = CHEAP | {("encoder", "who"): price, ("encoder", "roles"): price}
    for name in ("arch-clear", "arch-verdict"):
        run_cell(cells, name, street)
    said = capsys.readouterr().out
    assert f"which-architecture, this run: {verdict} (" in said, said


def test_a_difference_that_the_seeds_do_not_share_is_none(cells: list[Any], space: dict[str, Any]) -> None:
    clearly = run_cell(cells, "arch-clear", space | {"score": {}, "SEEDS": [0]})["clearly"]
    draw = torch.rand(2, 150, generator=torch.Generator().manual_seed(1))
    assert clearly((draw + 0.1).tolist(), draw.tolist()) and not clearly(draw.tolist(), draw.tolist())
    turned = draw + torch.tensor([[0.9], [-0.05]])
    assert not clearly(turned.tolist(), draw.tolist())


# --- costs --------------------------------------------------------------------------------------------------------


def test_the_papers_figures_are_the_ledgers() -> None:
    said, ours = ledger.claim("pretraining-cost").paper, PAPER["pretraining-cost"]
    for name in ("BERT-base", "BERT-large", "Grover-MEGA"):
        assert said[name] == f"${ours['dollars'][name]}"
    assert said["XLNet"] == f"${ours['dollars']['XLNet, low']}-{ours['dollars']['XLNet, high']}"
    assert said["BERT-base hardware"].startswith("4 Cloud TPUs 4 days")
    known = PAPER["energy"]["GPT-3"]
    on = cost.Device("measured", known["measured rate"], 32e9, 1e12, known["watts"])
    bill = cost.bill(known["flops"], on, utilisation=1.0, overhead=known["overhead"], grid=known["grid"])
    assert bill.kwh / 1e3 == pytest.approx(known["MWh"], rel=0.01)
    assert bill.kg_co2 / 1e3 == pytest.approx(known["tonnes of CO2"], rel=0.01)


@pytest.mark.parametrize(
    ("gap", "part", "verdict"),
    [(0.04, 0.3, "reproduced"), (0.2, 0.3, "partly"), (0.04, 1.3, "partly"), (0.2, 0.02, "not reproduced")],
)
def test_the_bills_verdict_follows_its_rule(
    gap: float, part: float, verdict: str, cells: list[Any], capsys: Any
) -> None:
    names = ("BERT-base", "BERT-large")
    share = {(name, "as if all had 512"): part for name in names}
    run_cell(
        cells, "cost-verdict", {"nearest": {"BERT-base": -gap}, "share": share, "counted": names, "claims": claims}
    )
    assert f"pretraining-cost, this run: {verdict} (" in capsys.readouterr().out


# --- the card -----------------------------------------------------------------------------------------------------


def test_the_card_has_every_claim_and_guesses_no_verdict(cells: list[Any], space: dict[str, Any]) -> None:
    run_cell(cells, "report-read", given := {**space, "which": "partly", "paid": "reproduced"})
    entries = run_cell(cells, "report-card", given)["entries"]
    assert [entry.claim for entry in entries] == list(ledger.read())
    for entry in entries:
        found = claims.record(entry.claim)
        assert entry.verdict == (found.verdict if found else "")
        there = (ROOT / "notebooks" / f"{entry.lesson}.ipynb").exists()
        assert bool(entry.link) == there
        if found is None:
            assert ("shown live in lesson " if there else "does not stand yet") in entry.note


def test_without_the_other_notebooks_the_card_says_so(cells: list[Any], space: dict[str, Any], tmp_path: Path) -> None:
    run_cell(cells, "report-read", given := {**space, "which": "partly", "paid": "reproduced"})
    given["live"] = dict.fromkeys(ledger.LESSONS)
    entries = run_cell(cells, "report-card", given)["entries"]
    assert all(entry.verdict or entry.note.endswith("does not stand yet") for entry in entries)
    assert not any(entry.link for entry in entries)


def test_the_guide_names_claims_and_lessons_that_there_are(cells: list[Any], space: dict[str, Any]) -> None:
    guide = run_cell(cells, "guide-lines", space)["GUIDE"]
    for _, _, behind, lesson in guide:
        assert lesson in ledger.LESSONS
        assert all(ledger.claim(name) for name in behind.split())


# --- a model and labels of one's own ------------------------------------------------------------------------------


def test_the_pronouns_of_public_models(cells: list[Any], space: dict[str, Any], tmp_path: Path) -> None:
    """What a network would bring, from folders in the public layout; the same answers as the shipped ones give."""
    for name, kind, head in (
        ("gpt-mini", "gpt2", "GPT2LMHeadModel"),
        ("bert-mini", "megatron-bert", "MegatronBertForPreTraining"),
    ):
        model, tokenizer, _ = zoo.load(name)
        hf.save_pretrained(model, tmp_path / name, model_type=kind, architecture=head)
        tokenizer.save(tmp_path / name / "tokenizer.json")
    for name in ("pronoun", "pronoun-who"):
        run_cell(cells, name, space)
    space["ASKED"] = [*space["ASKED"], *(str(tmp_path / name) for name in space["ASKED"])]
    shares = run_cell(cells, "pronoun-run", space)["shares"]
    for name in ("gpt-mini", "bert-mini"):
        for text, by in shares[name].items():
            assert by == pytest.approx(shares[str(tmp_path / name)][text], abs=2e-3)
    run_cell(cells, "pronoun-says", space)


def test_the_labels_may_be_a_students_own(cells: list[Any], space: dict[str, Any], tmp_path: Path) -> None:
    for name in ("train", "dev"):
        rows = [f"mine {name} {i}\t{('bad', 'good')[i % 2]}" for i in range(40)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", "utf-8")
    from course_lib import lesson

    space["run"] = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    run_cell(cells, "shipped-run", space)
    assert all(text.startswith("mine dev") for text in space["task"]["test"]["text"])
    space["FAMILY"] = {"bert-mini": "encoder"}
    assert "accuracy (%)" in run_cell(cells, "shipped-tune", space)["tuned"][0]
