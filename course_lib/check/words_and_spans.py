"""Checks of lesson 10: labels of words on word pieces, and answers as spans of a passage."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

IGNORE = -100


def align_labels(fn: object) -> Verdict:
    """`fn(words, labels)` -> list: the label of each token, at the first piece of each word, -100 elsewhere.

    words: for each token the number of its word, None at [CLS] and [SEP]. labels: one a word.
    """
    cases: list[Case] = [
        {"words": [None, 0, 1, 1, 1, 2, None], "labels": [3, 5, 4]},
        {"words": [None, 0, 0, 1, 2, 3, 3, None, None], "labels": [1, 0, 2, 6]},
        {"words": [None, 0, 1, None], "labels": [7, 2, 4]},  # the third word was cut off
    ]

    def test() -> str:
        compare(_listed(fn), cases, _align, _ALIGN_MISTAKES)
        return "first pieces labelled; further pieces and special tokens -100; a word that was cut off left out"

    return report("align_labels", test)


def span_probabilities(fn: object) -> Verdict:
    """`fn(logits, keep)` -> (start, end), both [B T]: two softmaxes over the positions, padding 0.

    logits [B T 2], start and end in the last dimension; keep Bool[B T].
    """
    cases: list[Case] = []
    for seed, (b, t) in enumerate([(2, 5), (3, 7), (2, 2)]):
        keep = torch.ones(b, t, dtype=torch.bool)
        if t > 2:
            keep[0, -2:] = False
        cases.append({"logits": 2 * torch.randn(b, t, 2, generator=rng(seed)), "keep": keep})

    def test() -> str:
        compare(fn, cases, _span_probabilities, _PROBABILITY_MISTAKES)
        return "each row's starts and ends add up to 1 over its real positions"

    return report("span_probabilities", test)


def best_span(fn: object) -> Verdict:
    """`fn(start, end, inside)` -> (first, last): the answer with the highest start[first] + end[last].

    start, end [T]: logits. inside Bool[T]: the passage's tokens. first <= last, both inside.
    """
    cases = [_span_case(seed) for seed in range(14)]

    def test() -> str:
        compare(_listed(fn), cases, _best_span, _SPAN_MISTAKES)
        return "in order, inside the passage, the highest sum, in 14 random passages"

    return report("best_span", test)


def _listed(fn: object) -> object:
    """Let tensors and tuples of whole numbers pass for lists."""
    if not callable(fn):
        return fn

    def wrapped(*args: object) -> object:
        return _plain(fn(*args))

    return wrapped


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor) and not value.is_floating_point():
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


# --- tagging ----------------------------------------------------------------------------------------------------

Words = Sequence[int | None]


def _align(words: Words, labels: Sequence[int]) -> list[int]:
    return [IGNORE if word is None or word in words[:place] else labels[word] for place, word in enumerate(words)]


def _pieces(says: str, label: Callable[[Words, int, Sequence[int]], int], special: int = IGNORE) -> Mistake:
    """A label for each token of a word by another rule; `special` at [CLS] and [SEP]."""

    def wrong(words: Words, labels: Sequence[int]) -> list[int]:
        return [special if word is None else label(words, place, labels) for place, word in enumerate(words)]

    return Mistake(says, wrong)


def _own(words: Words, place: int, labels: Sequence[int]) -> int:
    word = words[place]
    assert word is not None
    return labels[word]


def _first(words: Words, place: int, labels: Sequence[int], other: int = IGNORE) -> int:
    return other if words[place] in words[:place] else _own(words, place, labels)


_EVERY = "Every piece of a word has its label; only the first piece counts, the others get -100."
_SPECIAL = "[CLS] and [SEP] have a label; they are no words and get -100, so that no loss falls on them."
_ALIGN_MISTAKES = [
    _pieces(_EVERY, _own),
    _pieces(_SPECIAL, _first, special=0),
    _pieces(f"{_EVERY} And: {_SPECIAL}", _own, special=0),
    _pieces("Further pieces of a word get 0; that is a class too. They get -100.", lambda w, p, x: _first(w, p, x, 0)),
    _pieces(
        "Further pieces and special tokens get 0; that is a class too. They get -100.",
        lambda w, p, x: _first(w, p, x, 0),
        special=0,
    ),
    _pieces("What is ignored is marked -1; the losses ignore -100.", lambda w, p, x: _first(w, p, x, -1), special=-1),
    _pieces(
        "The last piece of each word carries the label; BERT's is the first.",
        lambda w, p, x: IGNORE if w[p] in w[p + 1 :] else _own(w, p, x),
    ),
    Mistake(
        "The tokens without a label are left out; the list must be as long as words, with -100 there.",
        lambda words, labels: [label for label in _align(words, labels) if label != IGNORE],
    ),
    Mistake(
        "The special tokens are left out; the list must be as long as words, with -100 there.",
        lambda words, labels: [x for x, w in zip(_align(words, labels), words, strict=True) if w is not None],
    ),
    Mistake(
        "[CLS] is not counted: the first label stands at position 0, and all others are one place too far left.",
        lambda words, labels: [*_align(words, labels)[1:], IGNORE],
    ),
    Mistake(
        "The labels are dealt out token by token; a word has one label and may have several tokens. Use words.",
        lambda words, labels: [IGNORE, *labels, *[IGNORE] * (len(words) - len(labels) - 1)],
    ),
    Mistake("The labels come back as they are; there is one for each token, not each word.", lambda w, x: list(x)),
    Mistake(
        "A word's label is its number; look it up: labels[word].",
        lambda words, labels: [IGNORE if w is None or w in words[:p] else w for p, w in enumerate(words)],
    ),
]


# --- spans ------------------------------------------------------------------------------------------------------


def _span_probabilities(logits: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    p = logits.masked_fill(~keep[..., None], float("-inf")).softmax(1)
    return p[..., 0], p[..., 1]


def _masked(logits: Tensor, keep: Tensor, fill: float = float("-inf")) -> Tensor:
    return logits.masked_fill(~keep[..., None], fill)


def _both(says: str, p: Callable[[Tensor, Tensor], Tensor]) -> Mistake:
    return Mistake(says, lambda logits, keep: tuple(p(logits, keep).unbind(-1)))


_AXIS = "It compares start with end at each token, dim=-1; the positions compete with each other: dim=1."
_PROBABILITY_MISTAKES = [
    _both(f"The softmax runs over the wrong axis. {_AXIS}", lambda x, k: x.softmax(-1)),
    _both(f"The softmax runs over the wrong axis. {_AXIS}", lambda x, k: x.softmax(-1) * k[..., None]),
    _both(f"The softmax runs over the wrong axis. {_AXIS}", lambda x, k: _masked(x, k).softmax(-1)),
    _both(
        "The softmax runs over the batch, dim=0: rows would compete with each other. The positions do, dim=1.",
        lambda x, k: x.softmax(0),
    ),
    _both(
        "The softmax runs over the batch, dim=0: rows would compete with each other. The positions do, dim=1.",
        lambda x, k: _masked(x, k).softmax(0),
    ),
    _both("Padding has a share: set its logits to -inf before the softmax.", lambda x, k: x.softmax(1)),
    _both(
        "The padding is set to 0 after the softmax, so the rest adds up to less than 1. Mask the logits before.",
        lambda x, k: x.softmax(1) * k[..., None],
    ),
    _both(
        "The padding's logits are set to 0, and exp(0) = 1; set them to -inf.", lambda x, k: _masked(x, k, 0).softmax(1)
    ),
    _both(
        "The padding's logits are multiplied by 0, and exp(0) = 1; set them to -inf.",
        lambda x, k: (x * k[..., None]).softmax(1),
    ),
    _both("keep is used the wrong way round: the padding alone is left.", lambda x, k: _masked(x, ~k).softmax(1)),
    _both("These are log-probabilities.", lambda x, k: _masked(x, k).log_softmax(1)),
    _both(
        "Each position is judged on its own (sigmoid); one answer starts at one place, so they compete: softmax.",
        lambda x, k: x.sigmoid(),
    ),
    _both(
        "Starts and ends share one softmax; they are two questions, each row has two distributions.",
        lambda x, k: _masked(x, k).flatten(1).softmax(1).view_as(x),
    ),
    Mistake("Start and end have changed places.", lambda x, k: _span_probabilities(x, k)[::-1]),
    Mistake(
        "Both stand in one tensor; return two, start and end.", lambda x, k: torch.stack(_span_probabilities(x, k), -1)
    ),
]


def _span_case(seed: int) -> Case:
    """[CLS] question [SEP] passage [SEP] padding, logits that are high outside the passage too."""
    draw = rng(seed)
    t, first = 12, 4
    inside = torch.zeros(t, dtype=torch.bool)
    inside[first : first + 5 + seed % 3] = True
    start, end = (2 * torch.randn(t, generator=draw) for _ in range(2))
    if seed % 2:
        start[-1] += 4
        end[1] += 4
    return {"start": start, "end": end, "inside": inside}


def _best_span(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    return _argmax(start[:, None] + end[None, :], inside)


def _argmax(
    scores: Tensor, inside: Tensor | None, order: Callable[[int, int], bool] = lambda i, j: i <= j
) -> list[int]:
    t = len(scores)
    every = range(t) if inside is None else [i for i in range(t) if inside[i]]
    pairs = [(i, j) for i in every for j in every if order(i, j)]
    first, last = max(pairs, key=lambda pair: float(scores[pair]))
    return [first, last]


def _alone(start: Tensor, end: Tensor, inside: Tensor | None = None) -> tuple[int, int]:
    if inside is not None:
        start, end = start.masked_fill(~inside, float("-inf")), end.masked_fill(~inside, float("-inf"))
    return int(start.argmax()), int(end.argmax())


def _greedy(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    first, _ = _alone(start, end, inside)
    behind = inside & (torch.arange(len(end)) >= first)
    return [first, int(end.masked_fill(~behind, float("-inf")).argmax())]


def _backwards(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    _, last = _alone(start, end, inside)
    before = inside & (torch.arange(len(end)) <= last)
    return [int(start.masked_fill(~before, float("-inf")).argmax()), last]


_APART = "Start and end are chosen apart from each other, so the end may stand before the start."
_SPAN_MISTAKES = [
    Mistake(
        f"{_APART} And the question, [SEP] and padding take part; only tokens inside the passage may answer.",
        lambda s, e, inside: list(_alone(s, e)),
    ),
    Mistake(f"{_APART} Take the best pair with first <= last.", lambda s, e, inside: list(_alone(s, e, inside))),
    Mistake(
        "Start and end are chosen apart and then put in order; the sum of the pair decides, so compare pairs.",
        lambda s, e, inside: sorted(_alone(s, e, inside)),
    ),
    Mistake(
        "The question, [SEP] and padding take part; only tokens inside the passage may answer.",
        lambda s, e, inside: _argmax(s[:, None] + e[None, :], None),
    ),
    Mistake("First the best start, then the best end behind it: the best pair may begin elsewhere.", _greedy),
    Mistake("First the best end, then the best start before it: the best pair may end elsewhere.", _backwards),
    Mistake(
        "An answer of a single token is not found: first may equal last.",
        lambda s, e, inside: _argmax(s[:, None] + e[None, :], inside, lambda i, j: i < j),
    ),
    Mistake(
        "Only answers of a single token are found: first <= last.",
        lambda s, e, inside: _argmax(s[:, None] + e[None, :], inside, lambda i, j: i == j),
    ),
    Mistake(
        "The logits are multiplied; they are logarithms, so they are added: start[first] + end[last].",
        lambda s, e, inside: _argmax(s[:, None] * e[None, :], inside),
    ),
    Mistake("First and last have changed places.", lambda s, e, inside: _best_span(s, e, inside)[::-1]),
    Mistake(
        "The positions are counted from the passage's first token; they are those of the whole input.",
        lambda s, e, inside: [i - int(inside.int().argmax()) for i in _best_span(s, e, inside)],
    ),
    Mistake(
        "last is one too far: it is the answer's last token, not the one behind it.",
        lambda s, e, inside: [(x := _best_span(s, e, inside))[0], x[1] + 1],
    ),
    Mistake(
        "start and end have changed places in the sum: the first token is scored by start, the last by end.",
        lambda s, e, inside: _best_span(e, s, inside),
    ),
]
