"""Lesson 16: text infilling, sentences in another order, ROUGE-N."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from classroom.checks.exercise import exercise

Spans = Sequence[tuple[int, int]]


def _moved(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    """Replaced from left to right in the list that has already changed."""
    said = ids.tolist()
    for start, length in spans:
        said[start : start + length] = [mask]
    return ids.new_tensor(said)


@exercise(
    [
        (torch.arange(10, 10 + n), spans, 4)
        for n, spans in (
            (9, [(1, 3), (6, 2)]),
            (7, [(2, 2), (5, 0)]),
            (6, [(0, 1), (3, 0), (4, 2)]),
            (6, [(1, 2), (3, 2)]),
            (5, [(5, 0)]),
            (4, []),
        )
    ],
)
def infill(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    """One `mask` in place of each (start, length) of ids Int[T]; a length of 0 puts one in before
    `start`.

    Spans come from left to right and do not overlap; starts are places of `ids` as it was given.
    """
    said: list[int] = []
    done = 0
    for start, length in spans:
        said += [*ids[done:start].tolist(), mask]
        done = start + length
    return ids.new_tensor([*said, *ids[done:].tolist()])


@exercise(
    [
        (torch.tensor(ids), 3, order)
        for ids, order in (
            ([11, 12, 13, 3, 14, 15, 3, 16, 17, 3], [2, 0, 1]),
            ([21, 3, 22, 23, 3, 24, 25, 26], [1, 2, 0]),
            ([31, 32, 3], [0]),
            ([41, 3, 42, 3, 43, 3, 44, 3], [3, 1, 0, 2]),
        )
    ],
)
def permute_sentences(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    """The sentences of ids Int[T] in another order.

    A sentence ends with the token `end`; what follows the last one counts as a sentence. `order`
    says which of them comes first, second, ..."""
    cuts = [0, *((ids == end).nonzero()[:, 0] + 1).tolist(), len(ids)]
    sentences = [ids[a:b] for a, b in pairwise(cuts) if a < b]
    return torch.cat([sentences[i] for i in order])


@exercise(
    [
        (said.split(), right.split(), n)
        for said, right, n in (
            ("the cat saw the dog", "the dog saw the old cat", 1),
            ("the cat saw the dog", "the dog saw the old cat", 2),
            ("the the the the", "the lamp and the coin", 1),
            ("Paul sold the lamp", "Paul sold the lamp", 2),
            ("Paul", "Nora sold the coin", 1),
            ("Paul", "Paul sold it", 2),
            ("a b a b c", "a b a b", 3),
        )
    ],
)
def rouge_n(said: Sequence[str], right: Sequence[str], n: int) -> float:
    """The F-measure of the n-grams that two lists of words share, each counted as often as both
    have it.

    0 where they share none or one has none.
    """
    a, b = (
        Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        for words in (said, right)
    )
    common = (a & b).total()
    p, r = common / max(1, a.total()), common / max(1, b.total())
    return 2 * p * r / (p + r) if p + r else 0.0
