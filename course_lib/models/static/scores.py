"""What word vectors know: analogies and graded similarity."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from course_lib import metrics
from course_lib.errors import CourseError
from course_lib.models.static.vectors import WordVectors

FORM = re.compile(r"(.+) is to (.+) as (.+) is to")


class Question(NamedTuple):
    """a is to b as c is to d. relation: what kind of pairs these are. others: wrong answers to choose from."""

    a: str
    b: str
    c: str
    d: str
    relation: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analogies:
    """accuracy: of the first word among all. choice: of the best of the given answers. a, b and c are never an answer.
    asked: the questions whose words all have vectors; by_relation: accuracy of each relation's."""

    accuracy: float
    choice: float
    asked: int
    by_relation: dict[str, float]


def questions(rows: Iterable[Mapping[str, Any]]) -> list[Question]:
    """Rows of the world's analogies task as questions, in lower case."""
    found = []
    for row in rows:
        parts = FORM.fullmatch(row["text"].lower())
        if parts is None:
            raise CourseError(f"{row['text']!r} is no analogy; it should read 'A is to B as C is to'.")
        choices = [word.lower() for word in row["choices"]]
        d = choices.pop(row["label"])
        found.append(Question(parts[1], parts[2], parts[3], d, row.get("relation", ""), tuple(choices)))
    return found


def analogies(vectors: WordVectors, asked: Sequence[Question]) -> Analogies:
    """Answer by 3CosAdd. Questions with a word that has no vector are left out.

    Raises:
        CourseError: none is left.
    """
    known = [q for q in asked if all(word in vectors for word in (q.a, q.b, q.c, q.d, *q.others))]
    if not known:
        raise CourseError(f"None of the {len(asked)} questions has vectors for all its words.")
    units = vectors.units()
    given = torch.tensor([[vectors.numbers[word] for word in (q.a, q.b, q.c)] for q in known])
    a, b, c = units[given].unbind(1)
    cosines = ((b - a + c) @ units.T).scatter(1, given, float("-inf"))  # one row a question
    answers = [vectors.words[i] for i in cosines.argmax(1).tolist()]
    right = [answer == q.d for answer, q in zip(answers, known, strict=True)]
    chosen = [
        max((q.d, *q.others), key=lambda word: float(scores[vectors.numbers[word]])) == q.d
        for scores, q in zip(cosines, known, strict=True)
    ]
    by: dict[str, list[bool]] = {}
    for ok, q in zip(right, known, strict=True):
        by.setdefault(q.relation, []).append(ok)
    share = {relation: sum(oks) / len(oks) for relation, oks in by.items()}
    return Analogies(sum(right) / len(known), sum(chosen) / len(known), len(known), share)


def similarity(vectors: WordVectors, pairs: Sequence[tuple[str, str]], judged: Sequence[float]) -> float:
    """Spearman's correlation of the cosines of word pairs with what was judged. Texts: `models.sentence.WordAverage`.

    Raises:
        CourseError: a word without a vector, fewer than two pairs.
    """
    return metrics.spearman([vectors.similarity(a, b) for a, b in pairs], list(judged))
