"""Analogies: a is to b as c is to which word? (Mikolov et al. 2013c)"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from course_lib.errors import CourseError
from course_lib.families.word_vectors import WordVectors


class AnalogyQuestion(NamedTuple):
    """a is to b as c is to d. others: wrong answers to choose from."""

    a: str
    b: str
    c: str
    d: str
    others: tuple[str, ...] = ()


class AnalogyScores(NamedTuple):
    """What `analogies` found; a, b and c are never an answer."""

    accuracy: float  # of the first word among all
    choice: float  # of the best of the given answers
    asked: int  # the questions whose words all have vectors


def score(vectors: WordVectors, asked: Sequence[AnalogyQuestion]) -> AnalogyScores:
    """Answer by 3CosAdd: the word nearest to b - a + c, all three of length 1 and not counted
    themselves (Mikolov et al. 2013c; Levy and Goldberg 2014, equation 2)."""
    known = [q for q in asked if all(word in vectors for word in (q.a, q.b, q.c, q.d, *q.others))]
    if not known:
        raise CourseError(f"None of the {len(asked)} questions has vectors for all its words.")
    units = vectors.units()
    given = torch.tensor([[vectors.numbers[word] for word in (q.a, q.b, q.c)] for q in known])
    a, b, c = units[given].unbind(1)
    cosines = ((b - a + c) @ units.T).scatter(1, given, float("-inf"))  # one row a question
    answers = [vectors.words[i] for i in cosines.argmax(1).tolist()]
    right = sum(answer == q.d for answer, q in zip(answers, known, strict=True))
    chosen = sum(
        max((q.d, *q.others), key=lambda word: float(scores[vectors.numbers[word]])) == q.d
        for scores, q in zip(cosines, known, strict=True)
    )
    return AnalogyScores(right / len(known), chosen / len(known), len(known))
