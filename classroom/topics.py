"""Sentences to sort by topic with few labels: those of lesson 07.

task = topics.sorting("tasks/search")      eight topics of the paragraphs written for the course
topics.sample(task.train, 24, 0)           the numbers of 24 of them, three of each topic
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from classroom.town import searches
from course_lib import data

TOPICS = ("bread", "bike", "bird", "money", "train", "sleep", "space", "river")
LONGEST = 60  # words of a text
MOST = 400  # texts to train on, of one's own


class Sorting(NamedTuple):
    """Rows with the columns text and label, and what the labels are called."""

    train: list[dict[str, Any]]
    test: list[dict[str, Any]]
    names: list[str]


def sorting(source: str | Path, tests: int = 200, seed: int = 0) -> Sorting:
    """Sentences with their topic; those to test with stand in other paragraphs.

    Args:
        source: any labelled texts. Those without labels mean the paragraphs of "tasks/search".
        tests: at most so many test rows of labelled texts.
        seed: draws among labelled texts.
    """
    if str(source) != searches.WRITTEN and data.has_labels(source):
        found = data.task(source, n=MOST, seed=seed)
        held_out = data.task(source, split=data.held_out(source), n=tests)
        names = list(found.features["label"].names)
        return Sorting(_rows(found), _rows(held_out), names)
    shelf = searches.collection(searches.WRITTEN)
    seen: Counter[str] = Counter()
    train: list[dict[str, Any]] = []
    test: list[dict[str, Any]] = []
    for passage, topic in zip(shelf.passages, shelf.topics, strict=True):
        if topic in TOPICS:
            rows = train if seen[topic] % 2 == 0 else test  # every other paragraph of a topic
            seen[topic] += 1
            for sentence in searches.SENTENCE.split(passage):
                rows.append({"text": sentence, "label": TOPICS.index(topic)})
    return Sorting(train, test, list(TOPICS))


def sample(rows: Sequence[dict[str, Any]], n: int, draw: int) -> list[int]:
    """The numbers of n rows, as many of each label as there are.

    Args:
        rows: with the column label.
        n: how many; all of them if there are fewer.
        draw: its number; another one gives other rows.
    """
    by_label: dict[int, list[int]] = {}
    for number in random.Random(draw).sample(range(len(rows)), len(rows)):
        by_label.setdefault(rows[number]["label"], []).append(number)
    order = [(i, label) for label, own in by_label.items() for i in range(len(own))]
    return [by_label[label][i] for i, label in sorted(order)[:n]]


def _rows(found: Any) -> list[dict[str, Any]]:
    """The texts, cut, with their labels."""
    cut = (" ".join(row["text"].split()[:LONGEST]) for row in found)
    return [{"text": text, "label": row["label"]} for text, row in zip(cut, found, strict=True)]
