"""Lesson 11: attention between words, the governor that a head finds, the best fixed distance, a
control task's labels."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from classroom.checks.base import Case, answer, integers, listed, normal, rng
from classroom.checks.exercise import exercise

_Words = Sequence[int | None]
Pairs = Sequence[tuple[int, int]]


def _with_specials(weights: Tensor, words: _Words) -> Tensor:
    end = max(word for word in words if word is not None) + 2
    numbers = [0 if n == 0 else end if word is None else word + 1 for n, word in enumerate(words)]
    between: Tensor = by_words.reference(weights, numbers)
    return between


@exercise(
    lambda g: [
        (normal(g, len(words), len(words)).softmax(-1), words)
        for words in ([None, 0, 1, 1, 2, 3, 3, 3, None], [None, 0, 0, 1, None])
    ],
)
def by_words(weights: Tensor, words: _Words) -> Tensor:
    """Attention between words [W W].

    weights [T T]; words: of each of the T pieces the number of its word, None at special tokens.
    """
    count = max(word for word in words if word is not None) + 1
    belongs = torch.tensor([[float(word == n) for word in words] for n in range(count)])  # [W T]
    mean = belongs / belongs.sum(1, keepdim=True)
    return mean @ weights @ belongs.T


def _parsed(g: Generator, governors: list[int]) -> tuple[Tensor, list[int]]:
    """Five heads, of which some look at the governor, some at dependents, some mostly at
    themselves.
    """
    count = len(governors)
    scores = normal(g, 5, count, count)
    for word, governor in enumerate(governors):
        if governor >= 0:
            scores[0, word, governor] += 3
            scores[1, governor, word] += 3
            scores[2, word, governor] += 1.5
    scores[2:4] += 4 * torch.eye(count)
    return scores.softmax(-1), governors


@exercise(lambda g: [_parsed(g, [1, 2, -1, 4, 2, 4]), _parsed(g, [-1, 0, 3, 1])])
def finds_governor(attention: Tensor, governors: Sequence[int]) -> Tensor:
    """For each head the share of words whose most attended other word governs them [H].

    attention [H W W]; governors: of each word the place of its governor, -1 at the root, which is
    not counted."""
    right = torch.tensor(governors)
    others = attention.masked_fill(torch.eye(len(right), dtype=torch.bool), -1)
    found = others.argmax(-1) == right
    return found[:, right >= 0].float().mean(-1)


@exercise(
    [
        (
            [(5, 2), (1, 2), (7, 3), (3, 4), (0, 1), (2, 9)],
            [(0, 1), (3, 1), (6, 4), (4, 2), (2, 3)],
        ),
        (
            [(0, 1), (4, 2), (6, 4), (9, 1), (2, 0), (8, 1), (1, 2)],
            [(3, 1), (0, 1), (1, 3), (2, 3)],
        ),
    ],
)
def best_offset(choose: Pairs, score: Pairs) -> tuple[int, float]:
    """(offset, share): the commonest governor - dependent among the arcs of `choose`, and the share
    of the arcs of `score` that have it. Both are lists of (dependent, governor)."""
    offset = Counter(g - d for d, g in choose).most_common(1)[0][0]
    share = sum(g - d == offset for d, g in score) / len(score)
    return offset, share


def _control(fn: object) -> None:
    for seed in (0, 1):
        draw, types = rng(seed), [f"w{number}" for number in range(900)]
        words = types + [types[n] for n in integers(draw, 900, 2100).tolist()]
        frequent = (torch.rand(3000, generator=draw) < 0.8).tolist()
        # 80% of 0, the rest of 1, 2, 3
        labels = [0 if often else 1 + n % 3 for n, often in enumerate(frequent)]
        _judge_control(fn, {"words": words, "labels": labels, "rng": rng(7 + seed)})


def _judge_control(fn: object, case: Case) -> None:
    refuse, got = control_labels.refuse, listed(answer(fn, case))
    words, labels, _ = case.values()
    refuse(isinstance(got, dict), "table")
    refuse(not isinstance(got, list) or len(got) != len(words), "length", count=len(words))
    kinds = list(set(labels))  # a list, because what was returned need not be hashable
    refuse(not all(label in kinds for label in got), "strange")
    refuse(got == labels, "own")
    table = dict(zip(words, got, strict=True))
    refuse(got != [table[word] for word in words], "not_by_word")
    refuse(len(set(got)) == 1, "one_label")
    places: dict[str, list[Any]] = {}
    for word, label in zip(words, labels, strict=True):
        places.setdefault(word, []).append(label)
    commonest = [Counter(places[word]).most_common(1)[0][0] for word in words]
    refuse(got in ([places[word][0] for word in words], commonest), "task_label")
    share = list(table.values()).count(0) / len(table)
    refuse(share < 0.5, "from_set", asked=labels.count(0) / len(labels), share=share)
    refuse(listed(answer(fn, {**case, "rng": rng(99)})) == got, "other_seed")
    refuse(listed(answer(fn, case)) != got, "redrawn")


@exercise(judge=_control)
def control_labels(words: Sequence[str], labels: Sequence[Any], rng: Generator) -> list[Any]:
    """New labels: every word (whatever its place) has one, drawn from `labels`.

    words: N strings; labels: their N labels; rng: a torch.Generator.
    """
    table = {
        word: labels[int(torch.randint(len(labels), (1,), generator=rng))]
        for word in dict.fromkeys(words)
    }
    return [table[word] for word in words]
