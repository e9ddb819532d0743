"""Lesson 00: three small functions, to see how a check speaks."""

from collections import Counter

import numpy as np
import torch

from classroom.checks.exercise import exercise


@exercise(
    [([1, 0, 1, 1], [1, 1, 1, 0]), ([0, 2, 1, 2, 1], [0, 2, 1, 2, 0]), ([1], [1]), ([0, 0, 1], [1, 1, 0])],
    """
    count: hits / len(gold) => float(hits)
    errors: return => return 1 -
    percent: return => return 100 *
    floor: hits / len(gold) => float(hits // len(gold))
    floor: => float(predicted == gold)
    ones_only: p == g => p == g == 1
    """,
    also=[
        lambda p, g: float(np.mean(np.array(p) == np.array(g))),
        lambda p, g: (torch.tensor(p) == torch.tensor(g)).float().mean(),
    ],
)
def accuracy(predicted: list[int], gold: list[int]) -> float:
    """Share of equal entries of two lists, from 0 to 1."""
    hits = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return hits / len(gold)


@exercise(
    [(["the cat sat on the mat", "the dog sat"],), (["a b", "b a", "The the"],), (["one"],)],
    """
    repeated: {word => [word && .split()} => .split()]
    characters: => len(set("".join(texts)))
    characters: => len(set(" ".join(texts)))
    twice: => sum(len(set(text.split())) for text in texts)
    one_text: in texts => in texts[:1]
    one_text: in texts => in texts[-1:]
    texts: => len(set(texts))
    lower: {word => {word.lower()
    words: len(words) => words
    """,
    also=[lambda t: len(set(" ".join(t).split())), lambda t: len({w for x in t for w in x.split(" ")})],
)
def vocabulary_size(texts: list[str]) -> int:
    """How many different words (split at spaces, as written) a list of texts holds together."""
    words = {word for text in texts for word in text.split()}
    return len(words)


@exercise(
    [(["pos", "neg", "pos"],), ([0, 0, 2, 1, 0],), (["x"],)],
    """
    one_short: labels.count(label) => labels.count(label) - 1
    ones: labels.count(label) => 1
    shares: labels.count(label) => labels.count(label) / len(labels)
    labels: => len(set(labels))
    examples: => len(labels)
    no_labels: => [labels.count(label) for label in dict.fromkeys(labels)]
    """,
    also=[Counter],
)
def label_counts(labels: list[object]) -> dict[object, int]:
    """A dict from label to how often it occurs."""
    return {label: labels.count(label) for label in labels}
