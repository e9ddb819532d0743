"""Analogies: "man" is to "king" as "woman" is to which word? (Mikolov et al. 2013c)

    score(vectors, [AnalogyQuestion("man", "king", "woman", "queen")]).accuracy    1.0
    read_questions("questions-words.txt", vectors)["form"]    Mikolov et al.'s own questions

The answer is the word whose vector is nearest to king - man + woman.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from course_lib.errors import CourseError
from course_lib.families.word_vectors import WordVectors


class AnalogyQuestion(NamedTuple):
    """a is to b as c is to d, the right answer."""

    a: str
    b: str
    c: str
    d: str
    others: tuple[str, ...] = ()  # wrong answers to choose from


class AnalogyScores(NamedTuple):
    """The shares of right answers. The words a, b and c are never an answer."""

    accuracy: float  # the nearest of all words is d
    choice: float  # d is nearer than the `others`
    asked: int  # the number of questions that were scored: all their words have vectors


def read_questions(file: str | Path, vectors: WordVectors) -> dict[str, list[AnalogyQuestion]]:
    """The questions of Mikolov et al.'s file whose words all have vectors, in lower case.

    Args:
        file: questions-words.txt, or a file like it: four words a line; ": NAME" begins a relation,
            and ": gram..." one of form.
        vectors: the word vectors.

    Returns:
        The questions of "meaning" and those of "form".
    """
    found: dict[str, list[AnalogyQuestion]] = {"meaning": [], "form": []}
    kind = "meaning"
    for line in Path(file).read_text("utf-8").lower().splitlines():
        words = line.split()
        if line.startswith(":"):
            kind = "form" if line.startswith(": gram") else "meaning"
        elif len(words) == 4 and all(word in vectors for word in words):
            a, b, c, d = words
            found[kind].append(AnalogyQuestion(a, b, c, d))
    return found


def score(vectors: WordVectors, questions: Sequence[AnalogyQuestion]) -> AnalogyScores:
    """Answer by 3CosAdd: the word nearest to b - a + c, with all three vectors of length 1.

    (Mikolov et al. 2013c; Levy and Goldberg 2014, equation 2.) Letters: Q questions, V words.

    Args:
        vectors: the word vectors.
        questions: one with a word that has no vector is left out.

    Raises:
        CourseError: if all questions are left out.
    """
    known = []
    for question in questions:
        words = (question.a, question.b, question.c, question.d, *question.others)
        if all(word in vectors for word in words):
            known.append(question)
    if not known:
        raise CourseError(f"None of the {len(questions)} questions has vectors for all its words.")

    units = vectors.units()  # V D
    numbers = vectors.numbers
    given = torch.tensor([[numbers[q.a], numbers[q.b], numbers[q.c]] for q in known])  # Q 3
    a, b, c = units[given].unbind(1)  # Q D each
    cosines = (b - a + c) @ units.T  # Q V
    cosines = cosines.scatter(1, given, float("-inf"))  # a, b and c are no answers

    right = 0
    chosen = 0
    for question, scores, best in zip(known, cosines, cosines.argmax(1).tolist(), strict=True):
        right += vectors.words[best] == question.d
        # The best of the given answers; of equally good ones the first.
        answers = {word: float(scores[numbers[word]]) for word in (question.d, *question.others)}
        chosen += max(answers, key=answers.__getitem__) == question.d
    return AnalogyScores(right / len(known), chosen / len(known), len(known))
