"""Checks of lessons 08 and 09: how GPT-1 and BERT turn texts into one sequence."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report


def entailment_input(fn: object) -> Verdict:
    """`fn(premise, hypothesis, start, delim, extract)` -> list of ids: start, premise, delim, hypothesis, extract."""
    cases: list[Case] = [
        {"premise": [11, 12, 13], "hypothesis": [21, 22], "start": 1, "delim": 2, "extract": 3},
        {"premise": [31], "hypothesis": [41, 42, 43, 44], "start": 7, "delim": 8, "extract": 9},
    ]

    def test() -> str:
        compare(_listed(fn), cases, lambda p, h, s, d, e: [s, *p, d, *h, e], _ENTAILMENT_MISTAKES)
        return "start, premise, delimiter, hypothesis, extract, flat and in this order"

    return report("entailment_input", test)


def similarity_inputs(fn: object) -> Verdict:
    """`fn(a, b, start, delim, extract)` -> two lists of ids, one for each order of the two texts."""
    cases: list[Case] = [
        {"a": [11, 12], "b": [21, 22, 23], "start": 1, "delim": 2, "extract": 3},
        {"a": [31], "b": [41], "start": 7, "delim": 8, "extract": 9},
    ]

    def pair(a: list[int], b: list[int], s: int, d: int, e: int) -> list[list[int]]:
        return [[s, *a, d, *b, e], [s, *b, d, *a, e]]

    mistakes = [
        Mistake(
            "There is one order only; similarity has none, so the decoder reads both.",
            lambda a, b, s, d, e: [s, *a, d, *b, e],
        ),
        Mistake(
            "Both rows hold the same order; the second needs b first.", lambda a, b, s, d, e: [[s, *a, d, *b, e]] * 2
        ),
        Mistake("The delimiter between the texts is missing.", lambda a, b, s, d, e: [[s, *a, *b, e], [s, *b, *a, e]]),
        Mistake("The first row must hold a before b, the second b before a.", lambda *x: pair(*x)[::-1]),
    ]

    def test() -> str:
        compare(_listed(fn), cases, pair, mistakes)
        return "both orders, each with start, delimiter and extract"

    return report("similarity_inputs", test)


def choice_inputs(fn: object) -> Verdict:
    """`fn(context, answers, start, delim, extract)` -> one list of ids for each answer, the context in each."""
    cases: list[Case] = [
        {"context": [11, 12], "answers": [[21], [22, 23], [24]], "start": 1, "delim": 2, "extract": 3},
        {"context": [31], "answers": [[41, 42], [43]], "start": 7, "delim": 8, "extract": 9},
    ]

    def rows(c: list[int], answers: list[list[int]], s: int, d: int, e: int) -> list[list[int]]:
        return [[s, *c, d, *a, e] for a in answers]

    mistakes = [
        Mistake(
            "The delimiter between context and answer is missing.", lambda c, n, s, d, e: [[s, *c, *a, e] for a in n]
        ),
        Mistake(
            "The context is missing: each answer is judged after it.", lambda c, n, s, d, e: [[s, *a, e] for a in n]
        ),
        Mistake(
            "All answers stand in one sequence; each gets its own, and the softmax runs over their scores.",
            lambda c, n, s, d, e: [s, *c, *(x for a in n for x in [d, *a]), e],
        ),
        Mistake("The answer stands before the context.", lambda c, n, s, d, e: [[s, *a, d, *c, e] for a in n]),
        Mistake(
            "The extract token at the end is missing; its vector is what gets scored.",
            lambda c, n, s, d, e: [[s, *c, d, *a] for a in n],
        ),
    ]

    def test() -> str:
        compare(_listed(fn), cases, rows, mistakes)
        return "one sequence for each answer, the context in each"

    return report("choice_inputs", test)


def _listed(fn: object) -> object:
    """Let tuples and tensors of ids pass for lists."""
    if not callable(fn):
        return fn

    def wrapped(*args: object) -> object:
        return _plain(fn(*args))

    return wrapped


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


_ENTAILMENT_MISTAKES = [
    Mistake("The delimiter between premise and hypothesis is missing.", lambda p, h, s, d, e: [s, *p, *h, e]),
    Mistake(
        "Premise and hypothesis have changed places; the premise comes first.", lambda p, h, s, d, e: [s, *h, d, *p, e]
    ),
    Mistake("The start token is missing.", lambda p, h, s, d, e: [*p, d, *h, e]),
    Mistake(
        "The extract token at the end is missing; its vector is what the classifier reads.",
        lambda p, h, s, d, e: [s, *p, d, *h],
    ),
    Mistake("Start and extract are missing around the two texts.", lambda p, h, s, d, e: [*p, d, *h]),
    Mistake(
        "The extract token must come last: a decoder's position only knows what stands before it.",
        lambda p, h, s, d, e: [e, s, *p, d, *h],
    ),
    Mistake("Start and extract have changed places.", lambda p, h, s, d, e: [e, *p, d, *h, s]),
    Mistake("There is a delimiter too many, after the hypothesis.", lambda p, h, s, d, e: [s, *p, d, *h, d, e]),
    Mistake("The end has a delimiter instead of the extract token.", lambda p, h, s, d, e: [s, *p, d, *h, d]),
    Mistake(
        "The texts are lists inside the list; unpack them with * or join lists with +.",
        lambda p, h, s, d, e: [s, p, d, h, e],
    ),
]


def bert_input(fn: object) -> Verdict:
    """`fn(a, b, cls, sep)` -> (ids, segments) of [CLS] a [SEP] b [SEP]; segment 0 up to the first [SEP], 1 after it."""
    cases: list[Case] = [
        {"a": [11, 12, 13], "b": [21, 22], "cls": 2, "sep": 3},
        {"a": [31], "b": [41, 42, 43, 44], "cls": 101, "sep": 102},
    ]

    def right(a: list[int], b: list[int], c: int, s: int) -> list[list[int]]:
        return [[c, *a, s, *b, s], _segments(len(a) + 2, len(b) + 1)]

    def test() -> str:
        compare(_listed(fn), cases, right, _input_mistakes(right))
        return "ids and segments of two pairs, the first [SEP] in segment 0 and the last in 1"

    return report("bert_input", test)


def _segments(first: int, second: int) -> list[int]:
    return [0] * first + [1] * second


def _input_mistakes(right: Callable[..., list[list[int]]]) -> list[Mistake]:
    """Slips in the ids, with the segments that go with them, and slips in the segments alone."""

    def segments(says: str, make: Callable[[int, int], list[int]]) -> Mistake:
        return Mistake(says, lambda a, b, c, s: [right(a, b, c, s)[0], make(len(a), len(b))])

    def ids(says: str, make: Callable[..., list[int]], first: int, second: int) -> Mistake:
        return Mistake(says, lambda a, b, c, s: [make(a, b, c, s), _segments(len(a) + first, len(b) + second)])

    no_last = "The [SEP] at the end is missing."
    no_first = "The [SEP] between the two texts is missing."
    return [
        ids(no_last, lambda a, b, c, s: [c, *a, s, *b], 2, 0),
        ids(no_first, lambda a, b, c, s: [c, *a, *b, s], 1, 1),
        ids("[CLS] at the beginning is missing.", lambda a, b, c, s: [*a, s, *b, s], 1, 1),
        ids(
            "There is a second [CLS], before b; only [SEP] stands between the texts.",
            lambda a, b, c, s: [c, *a, s, c, *b, s],
            2,
            2,
        ),
        ids("[CLS] and [SEP] have changed places.", lambda a, b, c, s: [s, *a, c, *b, c], 2, 1),
        Mistake("a and b have changed places.", lambda a, b, c, s: right(b, a, c, s)),
        segments(
            "Segment 1 stands for a and 0 for b; it is the other way round.", lambda a, b: [1] * (a + 2) + [0] * (b + 1)
        ),
        segments("The first [SEP] belongs to a: segment 0.", lambda a, b: _segments(a + 1, b + 2)),
        segments("The last [SEP] belongs to b: segment 1.", lambda a, b: [*_segments(a + 2, b), 0]),
        segments("The segments are counted from 1; they are 0 and 1.", lambda a, b: [1] * (a + 2) + [2] * (b + 1)),
        segments("All segments are 0; b and its [SEP] are segment 1.", lambda a, b: [0] * (a + b + 3)),
        segments("The segments leave out the special tokens; there is one for each id.", lambda a, b: _segments(a, b)),
        Mistake(
            "It returns the ids only; the segments are asked for as well.", lambda a, b, c, s: right(a, b, c, s)[0]
        ),
    ]
