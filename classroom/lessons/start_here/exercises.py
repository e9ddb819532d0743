"""Lesson 00: three small functions, to see how a check speaks."""

from classroom.checks.exercise import exercise


@exercise(
    [
        ([1, 0, 1, 1], [1, 1, 1, 0]),
        ([0, 2, 1, 2, 1], [0, 2, 1, 2, 0]),
        ([1], [1]),
        ([0, 0, 1], [1, 1, 0]),
    ]
)
def accuracy(predicted: list[int], gold: list[int]) -> float:
    """Share of equal entries of two lists, from 0 to 1."""
    hits = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return hits / len(gold)


@exercise(
    [
        (["the cat sat on the mat", "the dog sat"],),
        (["a b", "b a", "The the"],),
        (["one two", "two. one."],),
        (["one"],),
    ],
)
def vocabulary_size(texts: list[str]) -> int:
    """How many different words (split at spaces, as written) a list of texts holds together."""
    words = {word for text in texts for word in text.split()}
    return len(words)


@exercise([(["pos", "neg", "pos"],), ([0, 0, 2, 1, 0],), (["x"],)])
def label_counts(labels: list[object]) -> dict[object, int]:
    """A dict from label to how often it occurs."""
    return {label: labels.count(label) for label in labels}
