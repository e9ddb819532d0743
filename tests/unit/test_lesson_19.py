"""Lesson 19: wrong answers are named, every claim is in it, verdicts follow their rules, its figures are data."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor


def prompt(instruction: str, examples: Any, question: str) -> str:
    return "".join([instruction, "\n", *(f"{a} => {b}\n" for a, b in examples), question, " =>"])


def scores(given: list[Tensor], bare: list[Tensor]) -> Tensor:
    return torch.tensor([float(sum(g) - sum(b)) for g, b in zip(given, bare, strict=True)])


def follow(ids: list[int]) -> int:
    found = [b for a, b in pairwise(ids) if a == ids[-1]]
    return found[-1] if found else -1


def count(layers: int, width: int, vocab: int, length: int) -> int:
    attention, ff, norms = 4 * width * (width + 1), 8 * width**2 + 5 * width, 4 * width
    return layers * (attention + ff + norms) + width * (vocab + length + 2)


def law(x: Tensor, loss: Tensor) -> tuple[float, float]:
    slope, height = np.polyfit(np.log(x.numpy()), np.log(loss.numpy()), 1)
    return float(np.exp(-height / slope)), float(-slope)


RIGHT: dict[str, Callable[..., Any]] = {
    "few_shot_prompt": prompt,
    "choice_scores": scores,
    "induction": follow,
    "gpt_parameters": count,
    "power_law": lambda x, loss: list(law(x, loss)),
}
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q) + " ", "space behind"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q) + "\n", "line break at the end"),
    ("few_shot_prompt", lambda i, e, q: "\n".join([*(f"{a} => {b}" for a, b in e), f"{q} =>"]), "instruction is miss"),
    ("few_shot_prompt", lambda i, e, q: f"{i}\n{q} =>", "zero-shot prompt"),
    ("few_shot_prompt", lambda i, e, q: "\n".join([i, *(f"{a} =>" for a, _ in [*e, (q, "")])]), "show no answers"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q).removesuffix(" =>"), "may go on with the question"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, list(reversed(e)), q), "reverse order"),
    ("few_shot_prompt", lambda i, e, q: " ".join(prompt(i, e, q).split()), "on one line"),
    ("few_shot_prompt", lambda i, e, q: [i, *(f"{a} => {b}" for a, b in e), f"{q} =>"], "list of lines"),
    ("few_shot_prompt", lambda i, e, q: prompt(i, e, q).replace("=>", "->"), "right answer is"),
    ("choice_scores", lambda g, b: torch.stack([x.sum() for x in g]), "likely anywhere"),
    ("choice_scores", lambda g, b: scores(b, g), "sign is turned"),
    ("choice_scores", lambda g, b: torch.stack([x.sum() / y.sum() for x, y in zip(g, b, strict=True)]), "divided by"),
    ("choice_scores", lambda g, b: torch.stack([(x - y).mean() for x, y in zip(g, b, strict=True)]), "means over"),
    ("choice_scores", lambda g, b: torch.stack([x[0] - y[0] for x, y in zip(g, b, strict=True)]), "first token"),
    ("choice_scores", lambda g, b: scores(g, b).exp(), "leave them in logarithms"),
    ("choice_scores", lambda g, b: scores(g, b).tolist(), "torch.stack"),
    ("choice_scores", lambda g, b: scores(g, b).argmax().item(), "return all the scores"),
    ("induction", lambda ids: ids[ids.index(ids[-1]) + 1] if ids[-1] in ids[:-1] else -1, "first time"),
    ("induction", lambda ids: ids[-1] if ids[-1] in ids[:-1] else -1, "token itself"),
    ("induction", lambda ids: max([i for i in range(len(ids) - 1) if ids[i] == ids[-1]], default=-1), "the place"),
    ("induction", lambda ids: ids[len(ids) - ids[::-1].index(ids[-1])], "finds itself"),
    ("induction", lambda ids: follow(ids) if follow(ids) >= 0 else ids[-1], "never met"),
    ("induction", lambda ids: -1, "right answer is"),
    ("gpt_parameters", lambda n, d, v, t: 12 * n * d * d + (v + t) * d, "Biases and norms"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - 2 * d, "final norm's 2 D"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - t * d, "positions' table"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) + v * d, "counts twice"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - 4 * n * d, "layers' norms"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - 9 * n * d, "biases are missing"),
    ("gpt_parameters", lambda n, d, v, t: count(n, d, v, t) - n * d * d, "output matrix is missing"),
    ("gpt_parameters", lambda n, d, v, t: count(1, d, v, t), "one layer"),
    ("power_law", lambda x, y: (law(x, y)[0], -law(x, y)[1]), "exponent's sign"),
    ("power_law", lambda x, y: law(x, y)[::-1], "order is turned"),
    ("power_law", lambda x, y: (law(x, y)[1] * math.log(law(x, y)[0]), law(x, y)[1]), "line's height"),
    ("power_law", lambda x, y: (law(x, y)[0] ** law(x, y)[1], law(x, y)[1]), "loss at x = 1"),
    ("power_law", lambda x, y: tuple(np.polyfit(x.log(), y.log(), 1).tolist()), "slope and height"),
    ("power_law", lambda x, y: law(x[[0, -1]], y[[0, -1]]), "first and the last point"),
    ("power_law", lambda x, y: (math.exp(math.log10(law(x, y)[0])), law(x, y)[1]), "base 10"),
    ("power_law", lambda x, y: law(x, y)[1], "tuple of 2"),
]
