"""How the sentences of documents become the rows of a batch: next-sentence pairs, RoBERTa's four input formats."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from course_lib.errors import CourseError


@dataclass(frozen=True)
class SentencePair:
    """Two stretches of text. `next`: 0 = the second followed the first, 1 = it is from another document."""

    text: str
    pair: str
    next: int


def nsp_pairs(documents: Sequence[Sequence[str]], rng: torch.Generator, *, n: int) -> list[SentencePair]:
    """Sentence pairs for next-sentence prediction (Devlin et al. 2019, section 3.1): half true, half false.

    A true pair is two neighbouring sentences of one document; a false one has its second sentence from
    another document. Exactly half are true (n odd: one fewer), in random order.

    Args:
        documents: each a list of its sentences. rng: where every draw comes from. n: number of pairs.

    Returns: n pairs.

    Raises:
        CourseError: fewer than two non-empty documents, or none with two sentences.
    """
    if n < 0:
        raise CourseError(f"n is {n}; the number of pairs cannot be negative.")
    full = [document for document in documents if len(document) > 0]
    long = [i for i, document in enumerate(full) if len(document) > 1]
    if len(full) < 2 or not long:
        raise CourseError(
            "Next-sentence pairs need at least two documents, one of them with two sentences; "
            f"there are {len(full)} documents, {len(long)} of them long enough."
        )
    truth = (torch.randperm(n, generator=rng) < n // 2).tolist()
    return [_pair(full, long, bool(true), rng) for true in truth]


def _pair(documents: Sequence[Sequence[str]], long: Sequence[int], true: bool, rng: torch.Generator) -> SentencePair:
    draw = _draws(rng)
    here = long[next(draw) % len(long)]
    first = next(draw) % (len(documents[here]) - 1)
    if true:
        return SentencePair(documents[here][first], documents[here][first + 1], 0)
    there = (here + 1 + next(draw) % (len(documents) - 1)) % len(documents)  # any document but this one
    return SentencePair(documents[here][first], documents[there][next(draw) % len(documents[there])], 1)


def _draws(rng: torch.Generator) -> Iterator[int]:
    while True:
        yield int(torch.randint(2**62, (1,), generator=rng))
