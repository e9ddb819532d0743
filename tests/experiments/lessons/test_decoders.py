"""What the experiments of lessons 18 to 21 are made of measures what it says."""

import random
import re
from typing import Any

import pytest
import torch

from course_lib.families.lstm import LstmSeq2Seq
from course_lib.vocab import IGNORE
from experiments.lessons.decoders import choosing, gpt2, gpt3
from experiments.lessons.decoders.choosing import BOTH, DECODER, ENCODER, KINDS, TASKS


def test_the_lstm_answers_every_story_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    # says what it reads
    monkeypatch.setattr(LstmSeq2Seq, "greedy", lambda self, ids, **options: ids)
    stories = ["nadia bought the old lamp at noon and went home.", "paul bought the coin."]
    assert gpt2.lstm_summaries(stories, gpt2.SIZES["smoke"], 0, "cpu") == stories


@pytest.mark.parametrize("wording", gpt3.WORDINGS)
def test_facts_tell_their_pairs(wording: str) -> None:
    def told(question: Any) -> list[str]:
        """What the sentences before it say of the one asked for."""
        asked = question.left.split(". ")[-1]
        return [choice for choice in question.choices if asked + choice in question.left]

    asked = gpt3.facts(wording, 12, 20, seed=3)
    assert asked == gpt3.facts(wording, 12, 20, seed=3) != gpt3.facts(wording, 12, 20, seed=4)
    assert all(told(question) in ([], [question.answers[0]]) for question in asked)
    assert sum(told(question) == [question.answers[0]] for question in asked) > 15
    wrong = gpt3.facts(wording, 12, 20, seed=3, random_labels=True)
    assert sum(set(told(question)) > {question.answers[0]} for question in wrong) > 5


@pytest.mark.parametrize("back", [4, 1])
def test_the_fact_asked_for_stands_so_many_sentences_back(back: int) -> None:
    (question,) = gpt3.told_once(gpt3.HAD, back, 1, seed=0)
    sentences = question.left.split(". ")
    assert sentences[-1 - back] == sentences[-1] + question.answers[0]


def results(page: list[int]) -> list[tuple[int, int, int, int]]:
    text = "".join("0123456789+-@=."[token] for token in page)
    sums = re.findall(r"(\d\d)([+@-])(\d\d)=(\d{3})[.]", text)
    return [(int(a[::-1]), "+-@".index(sign), int(b[::-1]), int(c[::-1])) for a, sign, b, c in sums]


def test_a_page_of_sums_is_right_and_its_sign_means_one_thing() -> None:
    taught = {tuple(pair) for pair in gpt3.TAUGHT.tolist()}
    assert len(gpt3.PROBLEMS) == 5050 and len(taught) == 4040
    meanings = set()
    for page in gpt3.pages(200, torch.Generator().manual_seed(0)).tolist():
        lines = results(page)
        assert len(lines) == 6 and {(a, b) for a, _, b, _ in lines} <= taught
        (sign,) = {sign for _, sign, _, _ in lines}
        plus, minus = (
            all(a + b == c for a, _, b, c in lines),
            all(a - b == c for a, _, b, c in lines),
        )
        assert (sign == gpt3.UNKNOWN and (plus or minus)) or (plus if sign == gpt3.PLUS else minus)
        meanings |= {plus} if sign == gpt3.UNKNOWN and plus != minus else set()
    assert meanings == {True, False}


def test_each_architecture_is_asked_the_same_and_answers_at_its_own_places() -> None:
    rng = random.Random(1)
    rows = [choosing.asked(task, rng) for task in TASKS for _ in range(5)]
    wanted = {
        kind: [row[row != IGNORE].tolist() for row in choosing.form(kind, rows)["labels"]]
        for kind in KINDS
    }
    targets = [choosing.ids(target) for *_, target in rows]
    assert wanted[DECODER] == wanted[BOTH] == targets
    for (task, source, _), said, target in zip(rows, wanted[ENCODER], targets, strict=True):
        assert said == target[: choosing.KEPT[task] or None]
        assert len(said) >= len(target) - 1, f"no place for the whole answer to {source}"
    batch = choosing.form(ENCODER, rows)
    roles = [i for i, (task, *_) in enumerate(rows) if task == "roles"]
    masked = (batch["ids"] == choosing.MASK)[roles]
    assert not masked.any(), "tags stand at the words themselves"
    assert (batch["labels"][roles] != IGNORE).sum(1).tolist() == (
        batch["attention_mask"][roles].sum(1) - 1
    ).tolist()


def test_equal_operations() -> None:
    spent = {
        kind: choosing.steps(kind, 500)
        * sum(choosing.flops(kind, choosing.task_batches(kind, 0)[i]) for i in range(5))
        for kind in KINDS
    }
    assert max(spent.values()) / min(spent.values()) < 1.005
    assert len({choosing.steps(kind, 500) for kind in KINDS}) == 3
