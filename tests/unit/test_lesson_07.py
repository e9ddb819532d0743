"""Lesson 07: typical slips in its answers are named, every claim is in it, its verdicts follow their rules."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from course_lib import check, claims, data, lesson, view
from course_lib.data.batches import pad
from course_lib.data.world import World
from course_lib.models.baselines import task_words, word_tokenizer
from course_lib.models.elmo import split
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells_of("07_transfer")

# The folded answers with one slip each, and a word of the sentence that must name it.
LOAD = "classifier.body.load_state_dict(lm.body.state_dict())"
PART = "classifier.body.{0}.load_state_dict(lm.body.{0}.state_dict())"
SLIPS = [
    ("last_state", ("h[torch.arange(len(h)), lengths - 1]", "h[:, -1]"), "stands on padding"),
    ("last_state", ("h[torch.arange(len(h)), lengths - 1]", "h[:, 0]"), "first token"),
    ("last_state", ("lengths - 1]", "lengths]"), "One place too far"),
    ("last_state", ("lengths - 1]", "lengths.clamp(max=h.shape[1] - 1)]"), "One place too far"),
    ("last_state", ("h[torch.arange(len(h)), lengths - 1]", "h.mean(1)"), "padding included"),
    (
        "last_state",
        ("h[torch.arange(len(h)), lengths - 1]", "(h * keep[..., None]).sum(1) / lengths[:, None]"),
        "mean of the real tokens",
    ),
    ("last_state", ("torch.arange(len(h))", ":"), "pair rows and places"),
    ("last_state", ("lengths - 1]", "lengths.max() - 1]"), "longest row"),
    ("last_state", ("lengths - 1]", "lengths - 2]"), "numbers differ"),
    ("start_from", (LOAD, "pass"), "nothing was copied"),
    ("start_from", (LOAD, "classifier.load_state_dict(lm.state_dict())"), "a row a class"),
    ("start_from", (LOAD, "classifier.body = lm.body"), "share tensors"),
    ("start_from", (LOAD, PART.format("embed")), "Only the word vectors"),
    ("start_from", (LOAD, PART.format("lstm")), "not the word vectors"),
    ("start_from", (LOAD, "lm.body.load_state_dict(classifier.body.state_dict())"), "language model has changed"),
    ("start_from", (LOAD, LOAD + "; classifier.body.requires_grad_(False)"), "as features"),
    ("start_from", (LOAD, LOAD + "; torch.nn.init.zeros_(classifier.out.weight)"), "head `out` has changed"),
    ("start_from", ("return classifier", "return lm"), "returns the language model"),
    ("start_from", ("return classifier", "return classifier.body"), "should return the classifier"),
    ("start_from", (LOAD, "classifier.body.load(lm)"), "It raises AttributeError"),
    ("weight_change", (" / old.norm()", ""), "length of the change alone"),
    ("weight_change", ("/ old.norm()", "/ new.norm()"), "where the layer started"),
    ("weight_change", ("(new - old).norm()", "(new.norm() - old.norm())"), "two lengths"),
    ("weight_change", ("(new - old).norm() / old.norm()", "((new - old) / old).norm()"), "near zero"),
    ("weight_change", ("(new - old).norm() / old.norm()", "((new - old).norm() / old.norm()) ** 2"), "square root"),
    ("weight_change", ("in before]", "in before[:1]]", "in after]", "in after[:1]]"), "first tensor"),
    (
        "weight_change",
        (
            "((new - old).norm() / old.norm()).item()",
            "sum(((b - a).norm() / a.norm()).item() for a, b in zip(before, after)) / len(before)",
        ),
        "each tensor's own ratio",
    ),
    (
        "weight_change",
        (
            "((new - old).norm() / old.norm()).item()",
            "(sum((b - a).norm() for a, b in zip(before, after)) / sum(a.norm() for a in before)).item()",
        ),
        "right angle",
    ),
    ("layer_rates", ("(layers - 1 - layer)", "layer"), "upside down"),
    ("layer_rates", ("lr / factor", "lr * factor"), "multiply where you should divide"),
    ("layer_rates", ("lr / factor ** (layers - 1 - layer)", "lr * factor ** layer"), "top layer that has lr"),
    ("layer_rates", ("layers - 1 - layer", "layers - layer"), "top layer is divided"),
    ("layer_rates", ("lr / factor ** (layers - 1 - layer)", "lr"), "without discrimination"),
    ("layer_rates", ("** (layers - 1 - layer)", "** min(1, layers - 1 - layer)"), "same rate"),
    ("layer_rates", ("factor ** (layers - 1 - layer)", "max(1, factor * (layers - 1 - layer))"), "power of the factor"),
    ("layer_rates", ("range(layers)", "range(layers - 1)"), "list of 4"),
]  # fmt: skip


RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


def _by_names(classifier: Any, lm: Any) -> Any:
    own = dict(classifier.named_parameters())
    with torch.no_grad():
        for name, weight in lm.named_parameters():
            if name.startswith("body."):
                own[name].copy_(weight)
    return classifier


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("last_state", lambda h, keep: torch.stack([row[k][-1] for row, k in zip(h, keep, strict=True)])),
        ("start_from", _by_names),
        (
            "weight_change",
            lambda before, after: (
                (
                    sum(float(((a - b) ** 2).sum()) for b, a in zip(before, after, strict=True))
                    / float((parameters_to_vector(before) ** 2).sum())
                )
                ** 0.5
            ),
        ),
        ("layer_rates", lambda lr, layers, factor: torch.tensor([lr * factor**-i for i in range(layers)]).flip(0)),
    ],
)
def test_another_right_answer_passes(name: str, other: Callable[..., Any]) -> None:
    verdict = getattr(check, name)(other)
    assert verdict.passed, verdict.message


def _seeds(random: list[float], lm: list[float], autoencoder: list[float]) -> dict[str, Any]:
    return {"found": {"random": random, "LM": lm, "autoencoder": autoencoder}}


def _labels(random: list[float], lm: list[float]) -> dict[str, Any]:
    amounts = [64, 128, 256, 512]
    score = {("random", n): v for n, v in zip(amounts, random, strict=True)}
    return {"AMOUNTS": amounts, "score": score | {("LM", n): v for n, v in zip(amounts, lm, strict=True)}}


def _domains(random: float, lm: float) -> dict[str, Any]:
    return {"shift": {"random": {"food": 90.0, "film": random}, "LM": {"food": 90.0, "film": lm}}}


def _moves(lm: list[float], random: list[float], top: float) -> dict[str, Any]:
    layers = dict.fromkeys(("word vectors", "lower LSTM", "upper LSTM"), "")
    return {
        "LAYERS": layers,
        "change": {
            name: dict(zip(layers, row, strict=True)) for name, row in (("LM start", lm), ("random start", random))
        },
        "blocks": {"token vectors": 1.0, "block 1": 2.0, "block 2": top},
        "gpt_mini": SimpleNamespace(stack=SimpleNamespace(blocks=[0, 0])),
    }


VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("helps-verdict", _seeds([60, 80], [85, 87], [84, 88]), "reproduced"),
    ("helps-verdict", _seeds([60, 80], [85, 87], [60, 95]), "partly"),
    ("helps-verdict", _seeds([70, 72], [85, 87], [70, 72]), "partly"),
    ("helps-verdict", _seeds([70, 72], [71, 72], [70, 72]), "not at this scale"),
    ("labels-verdict", _labels([50, 60, 70, 80], [70, 80, 90, 95]), "reproduced"),
    ("labels-verdict", _labels([50, 60, 70, 90], [70, 80, 90, 95]), "partly"),
    ("labels-verdict", _labels([50, 60, 80, 90], [70, 80, 90, 95]), "partly"),
    ("labels-verdict", _labels([65, 75, 85, 95], [70, 80, 90, 92]), "not at this scale"),
    ("domain-verdict", _domains(75, 85), "reproduced"),
    ("domain-verdict", _domains(75, 75), "partly"),
    ("domain-verdict", _domains(85, 89), "not at this scale"),
    ("change-verdict", _moves([3, 3, 4], [5, 5, 5], 3.0), "reproduced"),
    ("change-verdict", _moves([3, 3, 4], [5, 5, 5], 1.0), "partly"),
    ("change-verdict", _moves([6, 3, 4], [5, 5, 5], 3.0), "partly"),
    ("change-verdict", _moves([6, 3, 2], [5, 5, 5], 3.0), "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(CELLS, cell, {"claims": claims, "mean": mean, "stdev": stdev, **given})
    said = capsys.readouterr().out
    assert f"this run: {verdict} (" in said, said


def test_the_reviews_mean_what_they_say() -> None:
    """No labelled review of the lesson turns its opinion around; all words of one are of one kind."""
    run = lesson.start("smoke")
    space = run_cell(CELLS, "data", {"run": run, "data": data, "view": view, "World": World})
    rows = [row for domain in ("food", "film") for row in space["reviews"](domain, 60)]
    lines = (ROOT / "data" / "world" / "opinions.tsv").read_text("utf-8").splitlines()[1:]
    kinds = {word: int(kind == "positive") for word, _, kind in (line.split("\t") for line in lines)}
    assert len(rows) == 120
    for row in rows:
        assert {kinds[word] for word in split(row["text"]) if word in kinds} == {row["label"]}, row


def test_the_lesson_runs_on_a_folder_of_ones_own(tmp_path: Path) -> None:
    """The door that `hub:NAME` takes too: labelled reviews, and their texts for pretraining."""
    for name in ("train", "dev"):
        rows = [f"mine {name} {i}\t{('bad', 'good')[i % 2]}" for i in range(90)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", "utf-8")
    run = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    names = {"task_words": task_words, "word_tokenizer": word_tokenizer, "split": split, "pad": pad, "torch": torch}
    space = run_cell(CELLS, "data", {"run": run, "data": data, "view": view, "World": World, **names})
    assert all(row["text"].startswith("mine train") for row in space["reviews"]("food", 20))
    assert all(row["text"].startswith("mine dev") for row in space["reviews"]("film", 20, "test"))
    run_cell(CELLS, "texts", space)
    assert set(space["tokenizer"].tokens(range(4, space["tokenizer"].vocab.size))) >= {"mine", "train", "0", "89"}
