"""How each of the world's tasks is given to a model, and what can be scored without any model that
reads.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any, Literal

import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from torch import Tensor

from classroom.town import World
from course_lib.analysis import metrics, probing
from course_lib.data import columns, inputs
from course_lib.model.config import Kind
from lab.engine import arms, small_models

Rows = list[columns.Row]

TEST_SEED = 1000  # of the test rows, the same for every run
WORDS = r"\w+|[.,?]"
METRICS = {"entities": "entity_f1", "questions": "exact_match"}  # of tasks with one of their own


@dataclass(frozen=True)
class View:
    """A task as it is learned: its kind, its metric, the names of its classes (where it has
    some).
    """

    task: str
    kind: Kind | Literal["target"]
    metric: str
    classes: tuple[str, ...] = ()

    def rows(self, n: int, split: str, seed: int) -> Rows:
        """`n` rows with the columns of the kind; another genre is learned from the usual one."""
        is_other_genre = self.task == "nli-mismatched" and split == "train"
        name = "nli" if is_other_genre else self.task
        rows = arms.town(small_models.WORLD).task(name, n, split, seed)
        return [_shaped(row, i) for i, row in enumerate(rows)]


def view(name: str) -> View:
    """How the task of this name is learned and scored."""
    labels = World.label_names(name)
    row = _shaped(arms.town(small_models.WORLD).task(name, 1)[0], 0)
    if "target" in row:
        return View(name, "target", "exact" if name.startswith("arithmetic") else "tokens")

    # Of an open question only this is asked: does the text answer it?
    kind: Kind = "pair" if name == "questions-open" else inputs.kind_of(row)
    is_graded = kind == "pair" and not labels
    metric = METRICS.get(name, "pearson" if is_graded else "accuracy")
    classes = labels if kind in ("single", "pair", "tagging") else ()
    return View(name, kind, metric, classes)


def _shaped(row: columns.Row, index: int) -> columns.Row:
    """Retrieval as a choice among passages; other rows as they are."""
    if "query" not in row:
        return row
    passages = [row["positive"], *row["negatives"]]
    order = Random(index).sample(range(len(passages)), len(passages))
    return {"text": row["query"], "choices": [passages[i] for i in order], "label": order.index(0)}


def truth(view: View, rows: Rows) -> list[Any]:
    """What a prediction for each row is compared with."""
    if view.kind == "tagging":
        return [[view.classes[label] for label in row["labels"]] for row in rows]
    column = {"span": "answer", "target": "target"}.get(view.kind, "label")
    return [row[column] for row in rows]


def score(view: View, predictions: Sequence[Any], rows: Rows) -> float:
    """The score of a baseline's predictions, in the view's metric."""
    expected = truth(view, rows)
    if view.metric == "tokens":
        pairs = zip(predictions, expected, strict=True)
        shares = [_shared_words(prediction, target) for prediction, target in pairs]
        return sum(shares) / len(shares)
    if view.kind == "tagging" and view.metric == "accuracy":
        predictions = list(chain.from_iterable(predictions))
        expected = list(chain.from_iterable(expected))
    metric = "accuracy" if view.metric == "exact" else view.metric
    return metrics.METRICS[metric](predictions, expected)


def _shared_words(prediction: str, target: str) -> float:
    """The share of the target's words that the prediction has in the same place."""
    words = target.split()
    same = [word == other for word, other in zip(words, prediction.split(), strict=False)]
    return sum(same) / len(words)


def majority(view: View, train: Rows, test: Rows) -> float:
    """The score of the most frequent label.

    A span is the first word; for a graded task it is 0, as of any constant.
    """
    if view.metric == "pearson":
        return 0.0
    if view.kind == "span":
        return score(view, [row["pair"].split()[0] for row in test], test)
    if view.kind == "tagging":
        tag = _most_frequent(chain.from_iterable(truth(view, train)))
        return score(view, [[tag] * len(row["labels"]) for row in test], test)
    return score(view, [_most_frequent(truth(view, train))] * len(test), test)


def _most_frequent(labels: Iterable[Any]) -> Any:
    return Counter(labels).most_common(1)[0][0]


def bag_of_words(view: View, train: Rows, test: Rows) -> float:
    """What words and pairs of neighbours tell, without their order: TF-IDF and a linear model.

    One or two texts: both bags and the bag of the words that they share. Choices: each by itself,
    with its text. Tags: the most frequent tag of the word. Spans: every stretch of three words or
    less, with the question's first word. Targets: that of the nearest training text.

    The baselines of public tasks (`lab/real/baselines.py`) read letters and shapes as well.
    """
    if view.kind == "tagging":
        return score(view, _by_word(view, train, test), test)
    if view.kind == "span":
        return score(view, _by_stretch(train, test), test)
    if view.kind == "target":
        return score(view, _nearest(train, test), test)
    train_bags = [_bag(row) for row in apart(train)]
    test_bags = [_bag(row) for row in apart(test)]
    model = _linear(scores=view.metric == "pearson")
    return judge(view, model, train, test, train_bags, test_bags)


def probed(
    view: View, x: Tensor, x_test: Tensor, train: Rows, test: Rows, steps: int = 40
) -> float:
    """The score of a linear model that reads vectors: words' for their tags, rows' for grades.

    Args:
        view: of tags or grades.
        x: Float[N D], the training vectors.
        x_test: Float[M D].
        train: the rows that the vectors belong to.
        test: likewise.
        steps: of L-BFGS.
    """
    if view.metric == "pearson":
        grades = torch.tensor(truth(view, train)).round().long()
        probe = probing.linear_probe(x, grades, 6, steps=steps)
        expected = probe(x_test).softmax(-1) @ torch.arange(6.0)  # M
        return score(view, expected.tolist(), test)
    labels = torch.tensor([*chain.from_iterable(row["labels"] for row in train)])
    probe = probing.linear_probe(x, labels, len(view.classes), steps=steps)
    predictions = probe(x_test).argmax(-1)  # M, the words of all rows
    predicted_rows = predictions.split([len(row["labels"]) for row in test])
    tags = [[view.classes[label] for label in row.tolist()] for row in predicted_rows]
    return score(view, tags, test)


def apart(rows: Rows) -> Rows:
    """Every choice as a pair of its own, with its text; other rows as they are."""
    if "choices" not in rows[0]:
        return rows
    return [{"text": row["text"], "pair": choice} for row in rows for choice in row["choices"]]


def judge(view: View, model: Any, train: Rows, test: Rows, x: Any, x_test: Any) -> float:
    """The test score of a classifier that learns the labels of rows, or which choice is right.

    Args:
        view: of texts, pairs or choices.
        model: scikit-learn's.
        train: the rows to learn from.
        test: the rows to score.
        x: what the model reads of `apart(train)`, row by row.
        x_test: likewise of `apart(test)`.
    """
    if view.kind != "choice":
        model.fit(x, [row["label"] for row in train])
        return score(view, list(model.predict(x_test)), test)
    is_right = [i == row["label"] for row in train for i in range(len(row["choices"]))]
    model.fit(x, is_right)
    chances = model.predict_proba(x_test)[:, 1].reshape(len(test), -1)  # rows, choices
    return score(view, list(chances.argmax(1)), test)


def _bag(row: columns.Row) -> str:
    """The words of a text, or those of a pair: each text's marked as its own, and the shared ones
    once more.
    """
    if "pair" not in row:
        return str(row["text"])
    first = row["text"].lower().split()
    second = row["pair"].lower().split()
    shared = [f"both_{word.strip('.,?')}" for word in first if word in second]
    tenths = round(10 * len(set(first) & set(second)) / len(set(second)))
    words = [f"a_{word}" for word in first] + [f"b_{word}" for word in second]
    return " ".join([*words, *shared, f"shared_{tenths}"])


def _linear(*, scores: bool = False) -> Any:
    model = Ridge() if scores else LogisticRegression(max_iter=500)
    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORDS), model)


def _by_word(view: View, train: Rows, test: Rows) -> list[list[str]]:
    """Each word's most frequent tag; an unknown word gets the most frequent of all."""
    counts: dict[str, Counter[str]] = {}
    for row, tags in zip(train, truth(view, train), strict=True):
        for word, tag in zip(row["tokens"], tags, strict=True):
            counts.setdefault(word.lower(), Counter())[tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    fallback = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
    return [[best.get(word.lower(), fallback) for word in row["tokens"]] for row in test]


def _stretches(row: columns.Row) -> list[tuple[str, str]]:
    """Each stretch of one to three words, and its features as a text.

    A feature is a word of the stretch or beside it, joined with the question's first word; a word
    that the question has too; the stretch's length.
    """
    question = row["text"]
    question_word = question.split()[0]
    words = row["pair"].split()
    stretches = []
    for start in range(len(words)):
        for end in range(start + 1, min(len(words), start + 3) + 1):
            inside = words[start:end]
            before = words[start - 1] if start > 0 else ""
            after = words[end] if end < len(words) else ""
            features = [
                f"{question_word}_{word}" for word in (*inside, f"l_{before}", f"r_{after}")
            ]
            bare = [word.strip(".,") for word in inside]
            features += [f"in_{word}" for word in bare if word in question]
            features.append(f"n{end - start}")
            stretches.append((" ".join(inside).strip(".,"), " ".join(features)))
    return stretches


def _by_stretch(train: Rows, test: Rows) -> list[str]:
    """The stretch that a linear model finds likeliest to be the answer."""
    texts: list[str] = []
    is_right: list[bool] = []
    for number, row in enumerate(train):
        stretches = _stretches(row)
        right = [features for text, features in stretches if text == row["answer"]]
        wrong = [features for text, features in stretches if text != row["answer"]]
        wrong = Random(number).sample(wrong, min(10, len(wrong)))
        texts += right + wrong
        is_right += [True] * len(right) + [False] * len(wrong)
    model = _linear().fit(texts, is_right)
    answers = []
    for row in test:
        texts_of_row, features = zip(*_stretches(row), strict=True)
        answers.append(texts_of_row[model.predict_proba(features)[:, 1].argmax()])
    return answers


def _nearest(train: Rows, test: Rows) -> list[str]:
    """The target of the training text that shares most words with the row's."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2))
    known = vectorizer.fit_transform([row["text"] for row in train])
    asked = vectorizer.transform([row["text"] for row in test])
    nearest = (asked @ known.T).toarray().argmax(1)
    return [train[i]["target"] for i in nearest]
