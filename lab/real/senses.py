"""Word senses (CoarseWSD-20, Loureiro et al. 2021): does a vector say which one is meant?

A linear classifier, to which all senses weigh the same, reads the vectors of a word in its
sentences. The score is macro F1. Letters: N sentences, D width of a vector.
"""

import random
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from course_lib import zoo
from course_lib.analysis import metrics, probing
from course_lib.data.embedders import WordAverage

AROUND = 25  # words on either side of the one that is asked about
NEAR = (3, 10, 25)  # words on either side whose static vectors are averaged
PENALTIES = (1e-3, 1e-2, 0.1, 1.0)  # inverse regularisations of a classifier of vectors
FOLDS = 5  # of the cross-validation that chooses one
Numbers = NDArray[np.int64]
# Texts, and where the word stands in each -> its vectors by name, such as one a layer.
Reader = Callable[[Sequence[Sequence[str]], Sequence[int]], dict[str, Float[Tensor, "N D"]]]


def read(folder: Path, split: str, *, each: int) -> Dataset:
    """Rows of one word: the words around it, its place, its sense.

    Args:
        folder: of the word.
        split: "train" or "test".
        each: at most so many rows of each sense, drawn at random and always the same.
    """
    lines = (folder / f"{split}.data.txt").read_text("utf-8").splitlines()
    senses = (folder / f"{split}.gold.txt").read_text("utf-8").splitlines()
    rows: list[dict[str, Any]] = []
    for line, sense in zip(lines, senses, strict=True):
        position, _, text = line.partition("\t")
        place = int(position)
        start = max(0, place - AROUND)
        around = text.split()[start : place + AROUND + 1]
        rows.append({"text": " ".join(around), "place": place - start, "label": int(sense)})
    drawn = []
    seen: Counter[int] = Counter()
    for row in random.Random(0).sample(rows, len(rows)):
        if seen[row["label"]] < each:
            seen[row["label"]] += 1
            drawn.append(row)
    return Dataset.from_list(drawn)


def contextual(name: str) -> Reader:
    """Reads the word's vector from every layer of an encoder; layer 0 is its input vector.

    Args:
        name: a shipped checkpoint, or a public model such as "minilm".
    """
    model, tokenizer, _ = zoo.open_model(name)

    def layers(
        texts: Sequence[Sequence[str]], places: Sequence[int]
    ) -> dict[str, Float[Tensor, "N D"]]:
        by_text = probing.word_layers(model, tokenizer, texts)
        vectors = [layers[:, place] for layers, place in zip(by_text, places, strict=True)]
        return {
            f"layer {number}": layer for number, layer in enumerate(torch.stack(vectors, dim=1))
        }

    return layers


def neighbours(name: str) -> Reader:
    """Reads the mean of the static vectors of the words around, without the word itself.

    Args:
        name: a checkpoint of word vectors.
    """
    vectors = zoo.load(name).model
    average = WordAverage(vectors.numbers, vectors.matrix)

    def means(
        texts: Sequence[Sequence[str]], places: Sequence[int]
    ) -> dict[str, Float[Tensor, "N D"]]:
        found = {}
        for reach in NEAR:
            around = []
            for text, place in zip(texts, places, strict=True):
                before = text[max(0, place - reach) : place]
                around.append(" ".join([*before, *text[place + 1 : place + reach + 1]]))
            found[f"{reach} words"] = average.embed(around)
        return found

    return means


def scores(
    features: Mapping[str, Float[Tensor, "N D"]], labels: Sequence[int], known: int
) -> dict[str, float]:
    """The test score of each kind of vector, and as "chosen" of the kind that the training rows
    choose.

    Args:
        features: of the training rows and then the test rows.
        labels: their senses.
        known: the number of training rows.
    """
    tests: dict[str, float] = {}
    validated: dict[str, float] = {}
    y = np.array(labels)
    for kind, vectors in features.items():
        x = vectors.numpy()

        def score(rows: Numbers, test: Numbers, penalty: float, x: NDArray[Any] = x) -> float:
            predictions = classifier(penalty).fit(x[rows], y[rows]).predict(x[test])
            return metrics.f1(predictions.tolist(), y[test].tolist(), macro=True)

        best, validated[kind] = chosen(score, PENALTIES, labels[:known])
        tests[kind] = score(np.arange(known), np.arange(known, len(y)), best)
    return tests | {"chosen": tests[max(validated, key=validated.__getitem__)]}


def chosen(
    score: Callable[[Numbers, Numbers, float], float],
    penalties: Sequence[float],
    labels: Sequence[int],
) -> tuple[float, float]:
    """The best penalty and its score in cross-validation on training rows.

    There are fewer folds where the rarest sense has fewer rows.

    Args:
        score: (numbers of rows to learn from, numbers of rows to score, penalty) -> the score.
        penalties: what is tried.
        labels: of the training rows.
    """
    _, counts = np.unique(labels, return_counts=True)
    folds = max(2, min(FOLDS, int(counts.min())))
    divided = StratifiedKFold(folds, shuffle=True, random_state=0)
    trials = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        parts = list(divided.split(labels, labels))
    for penalty in penalties:
        trials[penalty] = sum(score(rows, held, penalty) for rows, held in parts) / folds
    best = max(trials, key=trials.__getitem__)
    return best, trials[best]


def classifier(penalty: float) -> Any:
    """A linear classifier to which all senses weigh the same."""
    linear = LogisticRegression(C=penalty, max_iter=500, class_weight="balanced")
    return make_pipeline(StandardScaler(), linear)
