"""Checks of lesson 00: three small functions, to see how a check speaks."""

from typing import Any

from course_lib.check.base import Case, Mistake, Verdict, compare, report


def accuracy(fn: object) -> Verdict:
    """`fn(predicted, gold)` -> share of equal entries of two lists, from 0 to 1."""
    cases: list[Case] = [
        {"predicted": [1, 0, 1, 1], "gold": [1, 1, 1, 0]},
        {"predicted": [0, 2, 1, 2, 1], "gold": [0, 2, 1, 2, 0]},
        {"predicted": [1], "gold": [1]},
        {"predicted": [0, 0, 1], "gold": [1, 1, 0]},
    ]

    def hits(p: list[int], g: list[int]) -> int:
        return sum(a == b for a, b in zip(p, g, strict=True))

    mistakes = [
        Mistake("It counts the right answers; divide by how many there are.", lambda p, g: float(hits(p, g))),
        Mistake(
            "It is the share of errors; accuracy is the share of right answers.", lambda p, g: 1 - hits(p, g) / len(g)
        ),
        Mistake("It is in percent; a share goes from 0 to 1.", lambda p, g: 100 * hits(p, g) / len(g)),
        Mistake("// throws the fraction away; divide with /.", lambda p, g: float(hits(p, g) // len(g))),
        Mistake("It is 1 only if all are right, else 0; count them one by one.", lambda p, g: float(p == g)),
        Mistake(
            "It looks at ones only: a zero that is predicted as zero is right too.",
            lambda p, g: sum(a == b == 1 for a, b in zip(p, g, strict=True)) / len(g),
        ),
    ]

    def test() -> str:
        compare(fn, cases, lambda p, g: hits(p, g) / len(g), mistakes)
        return "four lists, from none right to all right"

    return report("accuracy", test)


def vocabulary_size(fn: object) -> Verdict:
    """`fn(texts)` -> how many different words (split at spaces, as written) a list of texts holds together."""
    cases: list[Case] = [
        {"texts": ["the cat sat on the mat", "the dog sat"]},
        {"texts": ["a b", "b a", "The the"]},
        {"texts": ["one"]},
    ]
    mistakes = [
        Mistake(
            "It counts all words, repeated ones too; put them into a set.", lambda t: sum(len(x.split()) for x in t)
        ),
        Mistake("It counts characters; split each text into words first.", lambda t: len(set("".join(t)))),
        Mistake("It counts characters; split each text into words first.", lambda t: len(set(" ".join(t)))),
        Mistake(
            "A word in two texts is counted twice; use one set for all texts.",
            lambda t: sum(len(set(x.split())) for x in t),
        ),
        Mistake("It looks at one text only.", lambda t: len(set(t[0].split()))),
        Mistake("It looks at one text only.", lambda t: len(set(t[-1].split()))),
        Mistake("It counts different texts, not words.", lambda t: len(set(t))),
        Mistake(
            "Words are counted as written here: The and the are two.",
            lambda t: len({w.lower() for x in t for w in x.split()}),
        ),
        Mistake(
            "It returns the words; their number is asked for, len(...).", lambda t: {w for x in t for w in x.split()}
        ),
    ]

    def test() -> str:
        compare(fn, cases, lambda t: len({w for x in t for w in x.split()}), mistakes)
        return "words shared between texts count once, upper and lower case apart"

    return report("vocabulary_size", test)


def label_counts(fn: object) -> Verdict:
    """`fn(labels)` -> dict from label to how often it occurs."""
    cases: list[Case] = [{"labels": ["pos", "neg", "pos"]}, {"labels": [0, 0, 2, 1, 0]}, {"labels": ["x"]}]

    def count(labels: list[Any]) -> dict[Any, int]:
        return {label: labels.count(label) for label in dict.fromkeys(labels)}

    mistakes = [
        Mistake(
            "Every count is one too small: the first occurrence counts as well.",
            lambda x: {k: v - 1 for k, v in count(x).items()},
        ),
        Mistake("Every label has count 1; add up instead of setting anew.", lambda x: dict.fromkeys(x, 1)),
        Mistake("It returns shares; counts are asked for.", lambda x: {k: v / len(x) for k, v in count(x).items()}),
        Mistake("It returns the number of labels; a dict from label to count is asked for.", lambda x: len(set(x))),
        Mistake("It returns the number of examples; a dict from label to count is asked for.", lambda x: len(x)),
        Mistake("It returns the counts without their labels.", lambda x: list(count(x).values())),
    ]

    def test() -> str:
        compare(fn, cases, count, mistakes)
        return "labels as words and as numbers"

    return report("label_counts", test)
