"""Lesson 19: a few-shot prompt, scored choices, induction, a power law."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from classroom.checks.exercise import exercise

_SHOWN = [("Professor", "Trelawny"), ("Captain", "Black"), ("Lady", "Van Horn")]


@exercise(
    [("{} {} smiled.", _SHOWN[:n], "Captain") for n in (2, 0, 3)]
    + [("Then came {} {}!", _SHOWN[:1], "Lady"), ("{} and {},", [("hot", "cold")], "big")],
)
def few_shot_prompt(form: str, examples: Sequence[tuple[str, str]], question: str) -> str:
    """The prompt: the form filled in for each example, then for the question up to its answer.

    form: a sentence with two gaps {}, for the question and for the answer. examples: (question,
    answer) pairs, perhaps none. Spaces stand between the sentences, and none at the end."""
    lines = [form.format(text, answer) for text, answer in examples]
    ask = form.format(question, "|").split("|")[0].rstrip()
    return " ".join([*lines, ask])


def _choices(g: Generator, *lengths: int) -> tuple[list[Tensor], list[Tensor]]:
    given, bare = ([-3 * torch.rand(n, generator=g) for n in lengths] for _ in range(2))
    return given, bare


@exercise(
    lambda g: [_choices(g, 1, 3, 2), _choices(g, 2, 5), _choices(g, 1, 1, 4, 2)],
)
def choice_scores(given: list[Tensor], bare: list[Tensor]) -> Tensor:
    """Float[C], of each choice log P(choice | question) - log P(choice | neutral question).

    given, bare: C tensors each, the log probabilities of the choice's tokens after the question and
    after a neutral question, both behind the same examples."""
    scores = [g.sum() - b.sum() for g, b in zip(given, bare, strict=True)]
    return torch.stack(scores)


def _most_often(followers: list[int]) -> int:
    return max(followers, key=followers.count) if followers else -1


@exercise(
    [
        (ids,)
        for ids in ([5, 7, 9, 5], [3, 8, 4, 3, 6, 1, 3], [1, 2, 3], [4, 4], [2, 9, 9, 1, 9], [6])
        + ([3, 8, 3, 6, 3, 6, 3, 5, 3],)
    ],
)
def induction(ids: list[int]) -> int:
    """What followed the last token when it was met before, the latest time; -1 if it never was."""
    places = [i for i in range(len(ids) - 1) if ids[i] == ids[-1]]
    return ids[places[-1] + 1] if places else -1


def _points(g: Generator, scale: float, exponent: float, noise: float) -> tuple[Tensor, Tensor]:
    x = torch.tensor([1e3, 4e3, 2e4, 1e5, 3e5], dtype=torch.float64)
    bumps = noise * torch.randn(len(x), generator=g, dtype=torch.float64)
    return x, (scale / x) ** exponent * bumps.exp()


@exercise(
    lambda g: [_points(g, 2e5, 0.1, 0.0), _points(g, 5e4, 0.25, 0.03)],
)
def power_law(x: Tensor, loss: Tensor) -> tuple[float, float]:
    """(scale, exponent) of L = (scale / x) ** exponent, by least squares in the logarithms."""
    a, b = x.log(), loss.log()
    slope = float(((a - a.mean()) * (b - b.mean())).sum() / (a - a.mean()).square().sum())
    height = float(b.mean() - slope * a.mean())
    return math.exp(height / -slope), -slope
