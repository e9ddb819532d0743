"""Cheap opponents of a trained network, each a few lines of scikit-learn or none.

rivals.ngrams(train, test)              labels of texts, by counted words and pairs of words
rivals.linear_tagger(train, test)       labels of words, by the words around and their spelling
rivals.shared_words("a cat", "a dog")   1/3, the share of words that two texts have in common
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from course_lib.data.embedders import words

Row = Mapping[str, Any]


def ngrams(train: Sequence[Row], test: Sequence[Row]) -> list[int]:
    """The labels that a linear model on words and pairs of words gives to the test rows.

    Args:
        train: rows with the columns text and label.
        test: rows with the column text.
    """
    vectorizer = TfidfVectorizer(ngram_range=(1, 2))
    model = make_pipeline(vectorizer, LogisticRegression(C=10, max_iter=1000))
    model.fit([row["text"] for row in train], [row["label"] for row in train])
    return [int(label) for label in model.predict([row["text"] for row in test])]


def linear_tagger(train: Sequence[Row], test: Sequence[Row]) -> list[list[int]]:
    """The label of each word of the test rows, by a linear model on the word, its neighbours, its
    last three letters and whether it has a capital letter.

    Args:
        train: rows with the columns tokens (the words) and labels.
        test: rows with the column tokens.
    """
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=100, max_iter=500))
    labels = [label for row in train for label in row["labels"]]
    model.fit([_features(row["tokens"], i) for row in train for i in _places(row)], labels)
    tagged = []
    for row in test:
        found = model.predict([_features(row["tokens"], i) for i in _places(row)])
        tagged.append([int(label) for label in found])
    return tagged


def shared_words(first: str, second: str) -> float:
    """The words that two texts share, as a share of the words of both (Jaccard's index)."""
    one = set(words(first))
    other = set(words(second))
    return len(one & other) / max(1, len(one | other))


def _places(row: Row) -> range:
    return range(len(row["tokens"]))


def _features(tokens: Sequence[str], i: int) -> dict[str, Any]:
    before, word, after = ["", *tokens, ""][i : i + 3]
    return {
        "before": before.lower(),
        "word": word.lower(),
        "after": after.lower(),
        "end": word[-3:].lower(),
        "capital": word[:1].isupper(),
        "first": i == 0,
    }
