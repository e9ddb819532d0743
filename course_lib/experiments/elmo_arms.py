"""The biLM among the claims' models: its arm, and what it says of a word between two contexts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from course_lib.claims.arms import Arm, Trained, sentences
from course_lib.claims.lab import Plan
from course_lib.corrupt import generator
from course_lib.experiments import family
from course_lib.models import elmo

ASKED = 256  # documents of which one word is hidden


def elmo_arm(plan: Plan, seed: int) -> Arm:
    """A biLM as wide as the plan's BERT, on a third of its documents, which takes as much processor time."""
    steps = max(1, plan.steps // 4)
    return replace(
        family.arm(plan, "bilm", model(plan), seed), rows=4 * plan.rows // 3, steps=steps, warmup=steps // 10
    )


def model(plan: Plan) -> elmo.ElmoConfig:
    """Features of the plan's width, half of it from each direction."""
    filters = tuple((wide, max(1, plan.width * many // 128)) for wide, many in ((1, 16), (2, 32), (3, 64), (4, 64)))
    size: dict[str, Any] = {"width": plan.width // 2, "hidden": plan.width, "layers": 2}
    return elmo.ElmoConfig(plan.vocab, filters=filters, length=24, dropout=0.0, **size)


def hidden_word(source: Trained, seed: int) -> float:
    """Share of hidden words of held-out documents that it guesses, by both directions' probabilities together.

    Words, not pieces: a little harder than what `measures.hidden_word` asks, where a piece of a word may be hidden.
    """
    write, rng = sentences(family.WORLD, "validation", seed), generator(seed, 4)
    before, after, answers = [], [], []
    for number in range(ASKED):
        words = elmo.split(" ".join(write(number)))
        place = int(torch.randint(len(words), (), generator=rng))
        before.append(words[:place])
        after.append(words[place + 1 :])
        answers.append(words[place])
    return _right(source, before, after, answers)


def fill_in(source: Trained, items: Sequence[dict[str, Any]]) -> float:
    """Share of hidden words of the evidence probe that it guesses."""
    sides = ("text_before", "text_after")
    before, after = ([elmo.split(item[side]) for item in items] for side in sides)
    return _right(source, before, after, [item["answer"] for item in items])


def _right(source: Trained, before: list[list[str]], after: list[list[str]], answers: list[str]) -> float:
    assert isinstance(source.model, elmo.BiLM)
    assert isinstance(source.tokenizer, elmo.Vocabulary)
    right = 0
    for start in range(0, len(answers), 32):
        some = slice(start, start + 32)
        left, back = elmo.hidden_word(source.model, before[some], after[some])
        said = [source.tokenizer.words[i] for i in (left + back).argmax(-1).tolist()]
        right += sum(a == b for a, b in zip(said, answers[some], strict=True))
    return right / len(answers)
