"""Lesson 13: slips in its answers are named, its verdict follows its rule, another teacher and own texts run."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, claims, cost, distill, hf, zoo
from course_lib.files import read_json
from course_lib.heads import MLM
from course_lib.models.bert import bert, bert_base
from course_lib.models.distilbert import distilbert_base
from course_lib.stack import Stack
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("13_distilbert")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "13_distilbert.json")


KL = "(log_p.exp() * (log_p - log_q)).sum(-1).mean()"
TEACHER, STUDENT = "(teacher / temperature)", "(student / temperature)"
ANGLE = "1 - F.cosine_similarity(student, teacher, dim=-1)"
# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("soft_loss", ("temperature**2 * ", ""), "T squared is missing"),
    ("soft_loss", ("temperature**2 * ", "temperature * "), "The factor is T;"),
    ("soft_loss", (STUDENT, "student"), "Only the teacher is softened"),
    ("soft_loss", (TEACHER, "teacher"), "Only the student is softened"),
    ("soft_loss", (TEACHER, "(teacher * temperature)", STUDENT, "(student * temperature)"), "multiplied by"),
    ("soft_loss", (TEACHER, "teacher", STUDENT, "student"), "softens nothing"),
    ("soft_loss", ("log_p.exp() * (log_p - log_q)", "log_q.exp() * (log_q - log_p)"), "KL(student || teacher)"),
    ("soft_loss", ("(log_p - log_q)", "-log_q"), "cross-entropy"),
    ("soft_loss", (KL, "(log_p.exp() * (log_p - log_q)).mean()"), "batchmean"),
    ("soft_loss", (KL, "(log_p.exp() * (log_p - log_q)).sum()"), "summed over the gaps"),
    ("soft_loss", (KL, "F.nll_loss(log_q, teacher.argmax(-1))"), "first choice"),
    ("soft_loss", ("(log_p - log_q)", "(log_q - log_p)"), "sign"),
    ("soft_loss", (KL, f"{KL}.item()"), "torch.Tensor"),
    ("kept_layers", ("range(0, teacher, teacher // student)", "range(student)"), "first layers"),
    ("kept_layers", ("range(0, teacher, teacher // student)", "range(teacher - student, teacher)"), "last layers"),
    ("kept_layers", ("range(0, teacher, ", "range(1, teacher + 1, "), "Counted from 1"),
    ("kept_layers", ("range(0, ", "range(teacher // student - 1, "), "last layer of each group"),
    ("kept_layers", ("teacher // student", "2"), "every third"),
    (
        "kept_layers",
        ("list(range(0, teacher, teacher // student))", "[i * teacher / student for i in range(student)]"),
        "whole",
    ),
    ("cosine_loss", ("[keep]", ""), "Padding counts"),
    ("cosine_loss", ("apart[keep].mean()", "(apart * keep).mean()"), "divided by the number of all"),
    ("cosine_loss", ("1 - ", ""), "mean cosine"),
    ("cosine_loss", ("1 - ", "-"), "0 where the directions agree"),
    ("cosine_loss", (ANGLE, "1 - (student * teacher).sum(-1)"), "dot product"),
    ("cosine_loss", ("dim=-1", "dim=1", "[keep]", ""), "along the text"),
    ("cosine_loss", ("[keep].mean()", "[keep].sum()"), "summed over the tokens"),
    ("cosine_loss", ("apart[keep].mean()", "((apart * keep).sum(1) / keep.sum(1)).mean()"), "mean of each text"),
    ("cosine_loss", (ANGLE, "(student - teacher).square().mean(-1)"), "TinyBERT"),
    ("distil_loss", ("F.cross_entropy(student, labels)", "F.cross_entropy(student / temperature, labels)"), "softened"),
    ("distil_loss", ("return soft *", "return hard *", "+ hard *", "+ soft *"), "swapped"),
    ("distil_loss", ("temperature**2 * ", ""), "T squared"),
    ("distil_loss", ("(student, labels)", "(student, teacher.argmax(-1))"), "word that stood there"),
    ("distil_loss", ("F.cross_entropy(student, labels)", "F.cross_entropy(teacher, labels)"), "is the teacher's"),
    ("distil_loss", (" + hard * F.cross_entropy(student, labels)", ""), "hard loss is missing"),
    ("distil_loss", ("soft * softened + ", ""), "soft loss is missing"),
    ("distil_loss", ("soft * softened + hard *", "softened +"), "weights are left out"),
    ("distil_loss", ("return soft * softened + hard", "return soft / (soft + hard) * softened + hard / (soft + hard)"),
     "divided by their sum"),
    ("distil_loss", ("log_p.exp() * (log_p - log_q)", "log_q.exp() * (log_q - log_p)"), "wrong way round"),
]  # fmt: skip


RIGHT, WRONG = right_and_wrong(cells_of("13_distilbert"), SLIPS)


def _soft_by_torch(own: Any, theirs: Any, heat: float) -> Any:
    target = (theirs / heat).softmax(-1)
    return F.kl_div((own / heat).log_softmax(-1), target, reduction="batchmean") * heat**2


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("soft_loss", _soft_by_torch),
        ("soft_loss", lambda own, theirs, heat: distill.soft_loss(own, theirs, heat)),
        ("kept_layers", lambda teacher, student: [layer * teacher // student for layer in range(student)]),
        ("cosine_loss", lambda own, theirs, keep: distill.cosine_loss(own, theirs, keep)),
        ("distil_loss", lambda own, theirs, y, heat, a, b: a * _soft_by_torch(own, theirs, heat)
         - b * own.log_softmax(-1)[range(len(y)), y].mean()),
    ],
)  # fmt: skip
def test_another_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


def test_what_the_lesson_says_of_the_papers_figures(paper: Any) -> None:
    """The papers' sizes are those of the course's own shapes, its weights those of the library."""
    rows = paper["distilbert"]["rows"]
    large, small = (cost.parameters(config()) / 1e6 for config in (bert_base, distilbert_base))
    assert large == pytest.approx(rows["BERT-base"]["parameters (millions)"], rel=0.02)
    assert small == pytest.approx(rows["DistilBERT"]["parameters (millions)"], rel=0.02)
    assert rows["DistilBERT"]["GLUE"] / rows["BERT-base"]["GLUE"] == pytest.approx(0.97, abs=0.005)
    code = paper["distilbert"]["weights in the code"]
    assert distill.distilbert.__kwdefaults__ == code


SEEDS = [0, 1, 2]
SHIFT = {"ahead": (2.0, 3.0, 2.5), "level": (1.0, -1.0, 0.2), "behind": (-2.0, -3.0, -2.5)}


@pytest.mark.parametrize(("word", "says"), [("ahead", "helps"), ("level", "no difference"), ("behind", "harms")])
def test_a_difference_within_two_standard_errors_is_none(
    word: str, says: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"no teacher": [70.0] * 3, "distilled": [70.0 + gap for gap in SHIFT[word]]}
    run_cell(cells, "live-said", {"mean": mean, "stdev": stdev, "parts": ["few"], "of": lambda arm, _: figures[arm]})
    assert capsys.readouterr().out.rstrip().endswith(says)


VERDICTS = [
    ({}, "reproduced"),
    ({"kept": 0.94}, "partly"),
    ({"kept": 0.955, "spread": 3.0}, "partly"),  # the mean is above 95%, but not by two standard errors
    ({"taught": "level"}, "partly"),
    ({"taught": "behind"}, "partly"),
    ({"kept": 0.9, "taught": "level"}, "not at this scale"),
    ({"fewer": 0.33}, "not at this scale"),
    ({"fewer": 0.33, "taught": "level"}, "not at this scale"),
]


@pytest.mark.parametrize(("given", "verdict"), VERDICTS)
def test_the_verdict_follows_its_rule(
    given: dict[str, Any], verdict: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    share, spread = given.get("kept", 0.98), given.get("spread", 0.2)
    distilled = [80 * share + wave for wave in (-spread, 0.0, spread)]
    gaps = SHIFT[given.get("taught", "ahead")]
    score = {"teacher": [80.0] * 3, "distilled": distilled}
    score["no teacher"] = [own - gap for own, gap in zip(distilled, gaps, strict=True)]
    space: dict[str, Any] = {"mean": mean, "stdev": stdev, "parts": [], "of": None}
    run_cell(cells, "live-said", space)  # `ahead`
    run_cell(cells, "verdict", space | {"claims": claims, "score": score, "fewer": given.get("fewer", 0.4)})
    assert f"this run: {verdict} (" in capsys.readouterr().out


def _public(folder: Path) -> Path:
    """A small BERT of six layers in the public layout, as the hub has it."""
    _, tokenizer, _ = zoo.load("bert-mini")
    torch.manual_seed(0)
    model = MLM(Stack(bert(tokenizer.vocab.size, width=32, layers=6, heads=2, hidden=64, length=80, dropout=0.0)))
    hf.save_pretrained(model, folder, model_type="bert", architecture="BertForMaskedLM")
    tokenizer.save(folder)
    return folder


def _run_through(cells: list[Any], data: str, *swap: str) -> dict[str, Any]:
    """All code cells at the smallest scale but the checks, in one space."""
    space: dict[str, Any] = {}
    for cell in cells:
        if cell.cell_type != "code" or cell.id.startswith(("ex-", "quiz-")):
            continue
        code = cell.source
        for old, new in zip(swap[::2], swap[1::2], strict=True):
            code = code.replace(old, new)
        exec(code, space)
        if cell.id == "parameters":
            space |= {"SCALE": "smoke", "DEVICE": "cpu", "DATA": data}
    return space


@pytest.mark.parametrize("form", ["hub:{}", "{}"])
def test_another_teacher_and_own_texts_run(form: str, cells: list[Any], tmp_path: Path) -> None:
    """The hub's path of the whole lesson, on local files: a public BERT's folder, and texts."""
    place, texts = form.format(_public(tmp_path / "model")), tmp_path / "mine.tsv"
    rows = [f"Nadia bought {i} lamps and gave {i % 7} of them to Theo ." for i in range(60)]
    texts.write_text("\n".join(["text", *rows]) + "\n", "utf-8")
    space = _run_through(cells, str(texts), 'TEACHER = "bert-mini"', f'TEACHER = "{place}"')
    assert space["half"].layers == 3 and space["kept"] == [0, 2, 4]
    assert all("Nadia bought" in text for text in space["texts"])
    assert set(space["score"]) == {"teacher", "cut, untrained", "no teacher", "distilled", "layer by layer"}
    assert space["students"]["distilled", "many", 0].stack.config.layers == 3


def test_the_shipped_student_is_shown(cells: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Only beside the teacher that it learned from."""
    space: dict[str, Any] = {"zoo": zoo, "held": [], "mean": mean, "score": {"teacher": [80.0]}}
    space |= {"run": type("Run", (), {"seed": 0}), "tuned": lambda model, seed: {"entities": 70.0, "pos": 74.0}}
    space |= {"masked_words": lambda model, rows: 75.0}
    for teacher, shown in (("bert-mini", "90% of its teacher's score"), ("hub:another", "")):
        run_cell(cells, "shipped", space | {"TEACHER": teacher})
        said = capsys.readouterr().out
        assert shown in said and bool(said) is bool(shown)
