"""What the experiments of lessons 16 and 17 are made of measures what it says."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab.lessons import bart, t5
from lab.lessons.t5 import TASKS


def test_a_translated_event_has_all_its_words() -> None:
    assert bart.translated(random.Random(4), 1)[0]["text"].split()[-1] == "."


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
