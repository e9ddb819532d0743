"""Sentences to sort: balanced samples, and no paragraph on both sides."""

from collections import Counter

from classroom import topics
from classroom.town import searches


def test_no_paragraph_is_on_both_sides():
    task = topics.sorting("tasks/search")
    shelf = searches.collection("tasks/search")
    where = {s: i for i, p in enumerate(shelf.passages) for s in searches.SENTENCE.split(p)}
    train, test = ({where[row["text"]] for row in part} for part in (task.train, task.test))
    assert train and test and not train & test
    assert {row["label"] for row in task.train} == {row["label"] for row in task.test}


def test_a_sample_is_balanced_and_another_draw_is_another():
    train = topics.sorting("tasks/search").train
    first, second = (topics.sample(train, 24, draw) for draw in (0, 1))
    assert set(Counter(train[i]["label"] for i in first).values()) == {3}
    assert first != second and first == topics.sample(train, 24, 0)
    assert sorted(topics.sample(train, 10_000, 0)) == [*range(len(train))]


def test_labelled_texts_and_texts_without_labels():
    assert topics.sorting("tasks/sentiment", tests=7).names == ["negative", "positive"]
    assert len(topics.sorting("tasks/sentiment", tests=7).test) == 7
    assert topics.sorting("text").names == list(topics.TOPICS)
