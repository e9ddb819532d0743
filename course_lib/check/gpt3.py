"""Checks of lesson 19: a few-shot prompt, scored choices, induction, GPT-3's parameters, a power law."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

Pairs = Sequence[tuple[str, str]]


def few_shot_prompt(fn: object) -> Verdict:
    """`fn(instruction, examples, question)` -> the prompt: the instruction, "text => answer" a line, "question =>".

    examples: (text, answer) pairs, perhaps none. The prompt ends with "=>": no space, no line break behind it.
    """
    shown = [("sea", "mer"), ("bread and butter", "pain et beurre"), ("cheese", "fromage")]
    cases: list[Case] = [
        {"instruction": "English to French:", "examples": shown[:n], "question": "milk"} for n in (2, 0, 1, 3)
    ]

    def test() -> str:
        compare(fn, cases, _prompt, _PROMPT_MISTAKES)
        return "zero, one, two and three shots, to the letter"

    return report("few_shot_prompt", test)


def choice_scores(fn: object) -> Verdict:
    """`fn(given, bare)` -> Float[C], of each choice log P(choice | question) - log P(choice | "Answer:").

    given, bare: C tensors each, the log probabilities of the choice's tokens after the question and after "Answer:".
    """
    cases: list[Case] = []
    for seed, lengths in enumerate([(1, 3, 2), (2, 5), (1, 1, 4, 2)]):
        draw = rng(seed)
        given, bare = ([-3 * torch.rand(n, generator=draw) for n in lengths] for _ in range(2))
        cases.append({"given": given, "bare": bare})

    def test() -> str:
        compare(fn, cases, _scores, _SCORE_MISTAKES)
        return "two, three and four choices of unlike length"

    return report("choice_scores", test)


def induction(fn: object) -> Verdict:
    """`fn(ids)` -> what followed the last token when it was met before, the latest time; -1 if it never was."""
    cases: list[Case] = [
        {"ids": ids} for ids in ([5, 7, 9, 5], [3, 8, 4, 3, 6, 1, 3], [1, 2, 3], [4, 4], [2, 9, 9, 1, 9], [6])
    ]

    def test() -> str:
        compare(fn, cases, _induction, _INDUCTION_MISTAKES)
        return "met once, twice, never; a token that follows itself; a text of one token"

    return report("induction", test)


def gpt_parameters(fn: object) -> Verdict:
    """`fn(layers, width, vocab, length)` -> how many weights a GPT-2 or GPT-3 has, biases and norms included.

    Feed-forward four times the width; learned positions; a final norm; the token vectors are the output matrix.
    """
    cases: list[Case] = [
        {"layers": layers, "width": width, "vocab": vocab, "length": length}
        for layers, width, vocab, length in ((96, 12288, 50257, 2048), (12, 768, 50257, 1024), (3, 20, 100, 16))
    ]

    def test() -> str:
        compare(fn, cases, _parameters, _PARAMETER_MISTAKES)
        return "GPT-3, the smallest GPT-2 and a toy, to the unit"

    return report("gpt_parameters", test)


def power_law(fn: object) -> Verdict:
    """`fn(x, loss)` -> (scale, exponent) of L = (scale / x) ** exponent, by least squares in the logarithms."""
    x = torch.tensor([1e3, 4e3, 2e4, 1e5, 3e5], dtype=torch.float64)
    cases: list[Case] = []
    for seed, (scale, exponent, noise) in enumerate([(2e5, 0.1, 0.0), (5e4, 0.25, 0.03)]):
        bumps = noise * torch.randn(len(x), generator=rng(seed), dtype=torch.float64)
        cases.append({"x": x, "loss": (scale / x) ** exponent * bumps.exp()})

    def test() -> str:
        compare(fn, cases, _law, _LAW_MISTAKES)
        return "points on a law and points around one"

    return report("power_law", test)


# --- prompts ------------------------------------------------------------------------------------------------------


def _prompt(instruction: str, examples: Pairs, question: str) -> str:
    return "\n".join([instruction, *(f"{text} => {answer}" for text, answer in examples), f"{question} =>"])


_PROMPT_MISTAKES = [
    Mistake(
        'There is a space behind the last "=>". The next token brings its own space, so this is one too many.',
        lambda i, e, q: _prompt(i, e, q) + " ",
    ),
    Mistake("There is a line break at the end; the model should go on in the line.", lambda *a: _prompt(*a) + "\n"),
    Mistake("The instruction is missing.", lambda i, e, q: _prompt(i, e, q).split("\n", 1)[1]),
    Mistake("The examples are missing: this is the zero-shot prompt.", lambda i, e, q: _prompt(i, [], q)),
    Mistake(
        "The examples show no answers; what they answer is what the model should learn from.",
        lambda i, e, q: "\n".join([i, *(f"{text} =>" for text, _ in e), f"{q} =>"]),
    ),
    Mistake("The question's \"=>\" is missing; without it the model may go on with the question.",
            lambda i, e, q: _prompt(i, e, q)[:-3]),
    Mistake("The examples come in reverse order.", lambda i, e, q: _prompt(i, e[::-1], q)),
    Mistake("The lines stand on one line; \"\\n\" belongs between them.",
            lambda i, e, q: _prompt(i, e, q).replace("\n", " ")),
    Mistake("The instruction is repeated before each example; it stands once, at the top.",
            lambda i, e, q: "\n".join(f"{i}\n{text} => {a}" for text, a in [*e, (q, "")]).rstrip()),
    Mistake("It returns a list of lines; join them with \"\\n\".", lambda i, e, q: _prompt(i, e, q).split("\n")),
]  # fmt: skip


# --- choices ------------------------------------------------------------------------------------------------------


def _scores(given: list[Tensor], bare: list[Tensor]) -> Tensor:
    return torch.stack([g.sum() - b.sum() for g, b in zip(given, bare, strict=True)])


_SCORE_MISTAKES = [
    Mistake(
        "This is log P(choice | question) alone; a choice that is likely anywhere keeps its advantage. Subtract the "
        'log probability after "Answer:".',
        lambda given, bare: torch.stack([g.sum() for g in given]),
    ),
    Mistake(
        "The sign is turned: question minus bare, so that a choice that the question makes likelier gets more.",
        lambda given, bare: -_scores(given, bare),
    ),
    Mistake(
        "The log probabilities are divided by each other. The quotient of two probabilities is the difference of their "
        "logarithms.",
        lambda given, bare: torch.stack([g.sum() / b.sum() for g, b in zip(given, bare, strict=True)]),
    ),
    Mistake(
        "These are means over the tokens; the probability of a choice is the product of its tokens', so the logarithms "
        "are summed.",
        lambda given, bare: torch.stack([g.mean() - b.mean() for g, b in zip(given, bare, strict=True)]),
    ),
    Mistake(
        "The question's part is a mean over tokens, as GPT-3's other normalisation; here sums are asked for.",
        lambda given, bare: torch.stack([g.mean() - b.sum() for g, b in zip(given, bare, strict=True)]),
    ),
    Mistake(
        "Only the first token of each choice is counted.",
        lambda given, bare: torch.stack([g[0] - b[0] for g, b in zip(given, bare, strict=True)]),
    ),
    Mistake("These are quotients of probabilities; leave them in logarithms.", lambda *a: _scores(*a).exp()),
    Mistake("It returns a list; torch.stack makes a tensor of it.", lambda *a: list(_scores(*a))),
    Mistake("It returns a list of numbers; torch.stack makes a tensor.", lambda *a: _scores(*a).tolist()),
    Mistake("It returns the number of the best choice; return all the scores.", lambda *a: int(_scores(*a).argmax())),
]


# --- induction ----------------------------------------------------------------------------------------------------


def _induction(ids: list[int]) -> int:
    return next((ids[i + 1] for i in reversed(range(len(ids) - 1)) if ids[i] == ids[-1]), -1)


_INDUCTION_MISTAKES = [
    Mistake(
        "It takes the first time the token was met; of several the latest counts.",
        lambda ids: next((ids[i + 1] for i in range(len(ids) - 1) if ids[i] == ids[-1]), -1),
    ),
    Mistake(
        "It returns what stood before the earlier occurrence; what followed it is asked for.",
        lambda ids: next((ids[i - 1] for i in reversed(range(len(ids) - 1)) if ids[i] == ids[-1]), -1),
    ),
    Mistake(
        "It returns the token itself; go one place on from where it was met.",
        lambda ids: next((ids[i] for i in reversed(range(len(ids) - 1)) if ids[i] == ids[-1]), -1),
    ),
    Mistake(
        "It returns the place of the earlier occurrence; the token behind it is asked for.",
        lambda ids: next((i for i in reversed(range(len(ids) - 1)) if ids[i] == ids[-1]), -1),
    ),
    Mistake(
        "The last token finds itself; search only before it.",
        lambda ids: next((ids[i + 1] for i in reversed(range(len(ids))) if ids[i] == ids[-1]), -1),
    ),
    Mistake(
        "Where the token was never met it should return -1; it returns the token itself.",
        lambda ids: ids[-1] if _induction(ids) == -1 else _induction(ids),
    ),
    Mistake(
        "It returns the token that comes most often after it; the one after the latest time is asked for.",
        lambda ids: _most_often([b for a, b in pairwise(ids) if a == ids[-1]]),
    ),
]


def _most_often(followers: list[int]) -> int:
    return max(followers, key=followers.count) if followers else -1


# --- parameters ---------------------------------------------------------------------------------------------------


def _parameters(layers: int, width: int, vocab: int, length: int) -> int:
    return layers * (12 * width**2 + 13 * width) + (vocab + length) * width + 2 * width


_PARAMETER_MISTAKES = [
    Mistake(
        "Biases and norms are missing: in each layer 9 D of biases (q, k, v, out: 4 D; up: 4 D; down: D), 4 D of two "
        "norms, and 2 D of the final norm.",
        lambda n, d, v, t: 12 * n * d**2 + (v + t) * d,
    ),
    Mistake("The final norm's 2 D are missing.", lambda n, d, v, t: _parameters(n, d, v, t) - 2 * d),
    Mistake("The final norm has a weight and a bias: 2 D, not D.", lambda n, d, v, t: _parameters(n, d, v, t) - d),
    Mistake("The positions' table, length x width, is missing.", lambda n, d, v, t: _parameters(n, d, v, 0)),
    Mistake("The token vectors are missing.", lambda n, d, v, t: _parameters(n, d, 0, t)),
    Mistake(
        "The vocabulary counts twice; the token vectors are the output matrix, so they count once.",
        lambda n, d, v, t: _parameters(n, d, 2 * v, t),
    ),
    Mistake(
        "The layers' norms are missing, 4 D in each layer.", lambda n, d, v, t: _parameters(n, d, v, t) - 4 * n * d
    ),
    Mistake("The biases are missing, 9 D in each layer.", lambda n, d, v, t: _parameters(n, d, v, t) - 9 * n * d),
    Mistake(
        "Attention's output matrix is missing: q, k, v and out are 4 D^2.",
        lambda n, d, v, t: _parameters(n, d, v, t) - n * d**2,
    ),
    Mistake(
        "The feed-forward part has two matrices, D to 4 D and back: 8 D^2; one is missing.",
        lambda n, d, v, t: _parameters(n, d, v, t) - 4 * n * d**2,
    ),
    Mistake(
        "This is one layer; multiply what is in a layer by their number.", lambda n, d, v, t: _parameters(1, d, v, t)
    ),
]


# --- power law ----------------------------------------------------------------------------------------------------


def _slope(x: Tensor, y: Tensor) -> tuple[float, float]:
    """Slope and height at 0 of the line with the least squared error."""
    dx = x - x.mean()
    slope = float((dx * (y - y.mean())).sum() / (dx**2).sum())
    return slope, float(y.mean()) - slope * float(x.mean())


def _law(x: Tensor, loss: Tensor) -> tuple[float, float]:
    slope, height = _slope(x.log(), loss.log())
    return math.exp(height / -slope), -slope


def _ends(x: Tensor, loss: Tensor) -> tuple[float, float]:
    return _law(x[[0, -1]], loss[[0, -1]])


def _changed(change: Any) -> Any:
    return lambda x, loss: change(*_law(x, loss))


_LAW_MISTAKES = [
    Mistake("The exponent's sign: the line falls, so the exponent is minus its slope.", _changed(lambda c, a: (c, -a))),
    Mistake(
        "The second number is right; the first is the line's height. With L = (scale / x) ** exponent the height is "
        "exponent * log(scale).",
        lambda x, loss: (_slope(x.log(), loss.log())[1], _law(x, loss)[1]),
    ),
    Mistake(
        "The first is exp(height); that is the loss at x = 1. Divide the height by the exponent before exp.",
        lambda x, loss: (math.exp(_slope(x.log(), loss.log())[1]), _law(x, loss)[1]),
    ),
    Mistake("These are slope and height of the line.", lambda x, loss: _slope(x.log(), loss.log())),
    Mistake("The order is turned: return (scale, exponent).", _changed(lambda c, a: (a, c))),
    Mistake(
        "The logarithm is taken of the sizes only; a power law is a line where both axes are logarithmic.",
        lambda x, loss: (math.exp(-_slope(x.log(), loss)[1] / _slope(x.log(), loss)[0]), -_slope(x.log(), loss)[0]),
    ),
    Mistake(
        "This is a line through sizes and losses themselves; take the logarithm of both.",
        lambda x, loss: (
            math.exp(-_slope(x, loss)[1] / _slope(x, loss)[0]) if abs(_slope(x, loss)[0]) > 1 else math.inf,
            -_slope(x, loss)[0],
        ),
    ),
    Mistake("Only the first and the last point are used; the line is fitted to all.", _ends),
    Mistake(
        "The logarithms are to base 10, but the scale is made with exp; use one base.",
        lambda x, loss: (math.exp(math.log10(_law(x, loss)[0])), _law(x, loss)[1]),
    ),
]
