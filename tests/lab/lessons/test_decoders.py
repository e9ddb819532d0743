"""What the experiments of lesson 19 are made of measures what it says."""

import re
from typing import Any

import pytest
import torch

from lab.lessons import gpt3


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
