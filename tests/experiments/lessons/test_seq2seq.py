"""What the experiments of lessons 05 and 15 to 17 are made of measures what it says; what is
spoiled is found.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib import objectives
from course_lib.model.seq2seq import shift_right
from course_lib.objectives import losses
from experiments.engine.experiment import find
from experiments.engine.lab import PLANS, Lab
from experiments.lessons.encoders import sbert
from experiments.lessons.seq2seq import bart, t5
from experiments.lessons.seq2seq.t5 import KINDS, TASKS
from tests.classroom.checks.lessons import run_cells
from tests.experiments.engine.judged import judge


def test_the_corner_is_the_lessons() -> None:
    # as far as the lesson's data ask for one
    run = SimpleNamespace(seed=0, pick=lambda *, smoke, lesson: lesson)
    space = run_cells(
        "16_bart", {"random": random, "run": run}, "corner-words", "corner-tell", "classify-data"
    )
    told, own = (tell(random.Random(3)) for tell in (space["tell"], bart.story))
    assert told == own and bart.told_apart(random.Random(3), 500)[:200] == space["taught"]
    event = bart.event(random.Random(4), "Mara", 1)
    assert bart.translated(random.Random(4), 1)[0]["text"].split()[-1] == "."
    assert space["event"](random.Random(4), "Mara", 1) == event


def test_frozen_keeps_what_was_pretrained() -> None:
    body = bart.fresh(0)
    made = bart.translator(body, 50, 0, frozen=True)
    learns = {name for name, weight in made.named_parameters() if weight.requires_grad}
    assert learns and all(
        "front" in name or "position" in name or "blocks.0.attn" in name for name in learns
    )
    assert all(
        weight.requires_grad for weight in bart.translator(body, 50, 0, frozen=False).parameters()
    )


def measured(claim: str) -> str:
    found = find(claim)
    return judge(claim, found.measure(Lab(PLANS["smoke"]), 0)).verdict


def test_a_wrong_triplet_loss_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sbert.triplet_loss
    assert measured("sbert-triplet") == "reproduced"
    for wrong in (
        lambda a, p, n, margin: right(a, p, n, margin + 1e-9),
        # the positive is not pulled
        lambda a, p, n, margin: right(a, p.detach(), n, margin) + 0 * p.sum(),
        lambda a, p, n, margin: (a - p).norm() - (a - n).norm() + margin,  # no max
    ):
        monkeypatch.setattr(sbert, "triplet_loss", wrong)
        assert measured("sbert-triplet") != "reproduced"


masking, deletion = objectives.denoising.token_masking, objectives.denoising.token_deletion
WRONG: dict[str, Callable[..., Tensor]] = {
    "shifted": lambda text, rng, **_: masking(text, rng, vocab=bart.VOCAB).roll(1),
    "many masks": lambda text, rng, **_: masking(text, rng, vocab=bart.VOCAB, rate=0.3),
    "many deleted": lambda text, rng, **_: deletion(text, rng, vocab=bart.VOCAB, rate=0.3),
    "shuffled": lambda text, rng, **_: text[torch.randperm(len(text), generator=rng)],
    "backwards": lambda text, rng, **_: text.flip(0),
}
MISTAKEN = [
    ("token masking", "shifted"),
    ("token masking", "many masks"),
    ("token deletion", "many deleted"),
    ("text infilling", "many masks"),
    ("text infilling", "many deleted"),
    ("sentence permutation", "shuffled"),
    ("document rotation", "shuffled"),
    ("document rotation", "backwards"),
]


@pytest.mark.parametrize(("name", "wrong"), MISTAKEN)
def test_a_wrong_corruption_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: str
) -> None:
    monkeypatch.setattr(bart, "NOISED", 40)
    assert measured("bart-noise") == "reproduced"
    monkeypatch.setitem(objectives.NOISES, name, WRONG[wrong])
    assert measured("bart-noise") != "reproduced"


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_judged_by_its_own_tokens(kind: str) -> None:
    town = t5.of_the_town(t5.SIZES["smoke"], 0)
    loss = KINDS[kind]
    torch.manual_seed(0)
    model: Any = t5.build(kind, town.fresh()).eval()
    rows = town.summaries("test")
    batch: Any = town.frame.collate(rows)
    if loss is not losses.seq2seq:
        batch = t5.collate.joined(batch, vocab=town.vocab)
    with torch.no_grad():
        if loss is losses.seq2seq:
            logits = model(
                batch["ids"],
                shift_right(batch["labels"], 0),
                attention_mask=batch["attention_mask"],
            )
        else:
            mask = (
                t5.masks.prefix(batch["prefix"], batch["ids"].shape[1])
                if loss is losses.prefix_lm
                else None
            )
            logits = model(batch["ids"], attention_mask=batch["attention_mask"], mask=mask)
    counted = [
        (b, t)
        for b, row in enumerate(batch["labels"].tolist())
        for t, i in enumerate(row)
        if i >= 0 and i not in (town.vocab.cls, town.vocab.sep, town.vocab.unk)
    ]
    log_p = logits.log_softmax(-1)
    nats = [-log_p[b, t, batch["labels"][b, t]].item() for b, t in counted]
    right = [int(logits[b, t].argmax() == batch["labels"][b, t]) for b, t in counted]
    said = t5.judged(model, loss, batch, town.special)
    assert len(counted) >= len(rows)
    assert said == (
        pytest.approx(sum(right) / len(right)),
        pytest.approx(sum(nats) / len(nats), rel=1e-4),
    )


def test_an_answer_counts_if_its_text_is_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    corner = t5.Corner(t5.SIZES["smoke"], 0)
    goods = corner.tokenizer.encode("goods").ids

    def says(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.tensor([[0, *goods]] * len(ids))

    monkeypatch.setattr(t5.probes, "generate", says)
    rows = corner.tests["topic"]
    share = sum(row.truth == "goods" for row in rows) / len(rows)
    assert 0 < share < 1 and corner.answered(corner.young, "topic") == share
    assert corner.answered(corner.young, "question") == 0.0


def test_the_tasks_are_of_the_story_and_the_tests_new() -> None:
    rng = random.Random(5)
    for row in (t5.asked(rng) for _ in range(50)):
        (topic, question, inference, translation, summary), targets = zip(
            *map(dict.values, row.values()), strict=True
        )
        who, one = question.split()[3], topic.removeprefix("topic sentence: ")
        assert (
            one.startswith(f"{who} ") and one.endswith(f"in the {targets[1]} .") and one in summary
        )
        assert translation.endswith(one) and targets[3].split()[0] == targets[1][::-1]
        assert inference.endswith(f"{who} was in the {targets[1]} .") == (
            targets[2] == "entailment"
        )
        things = bart.KINDS[TASKS["topic"].labels.index(targets[0])][1]
        assert one.split(" in ")[0] in targets[4] and one.split()[3] in things
    corner = t5.Corner(t5.SIZES["smoke"], 0)
    for name, tests in corner.tests.items():
        assert tests and not {str(row.ids) for row in tests} & {
            str(row.ids) for row in corner.taught[name]
        }


def test_the_paper_writes_tasks_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert t5.same_formats()
    monkeypatch.setitem(t5.text_to_text.WORDINGS, "sst2", replace(TASKS["topic"], prefix="sst"))
    assert not t5.same_formats()
