"""How each of the world's tasks is given to a model, and what can be scored without any model that
reads.
"""

from collections import Counter
from collections.abc import Sequence
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
from course_lib.model.heads import Kind
from lab.engine import arms, small_models

Rows = list[columns.Row]

TEST_SEED = 1000  # of the test rows, the same for every run
WORDS = r"\w+|[.,?]"


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
        name = "nli" if (self.task, split) == ("nli-mismatched", "train") else self.task
        return [
            _shaped(row, i)
            for i, row in enumerate(arms.town(small_models.WORLD).task(name, n, split, seed))
        ]


def view(name: str) -> View:
    """How the task of this name is learned and scored."""
    labels, row = (
        World.label_names(name),
        _shaped(arms.town(small_models.WORLD).task(name, 1)[0], 0),
    )
    if "target" in row:
        return View(name, "target", "exact" if name.startswith("arithmetic") else "tokens")
    # is there an answer?
    kind: Kind = "pair" if name == "questions-open" else inputs.kind_of(row)
    scores = kind == "pair" and not labels
    metric = {"entities": "entity_f1", "questions": "exact_match"}.get(
        name, "pearson" if scores else "accuracy"
    )
    return View(name, kind, metric, labels if kind in ("single", "pair", "tagging") else ())


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
    return [row[{"span": "answer", "target": "target"}.get(view.kind, "label")] for row in rows]


def score(view: View, predictions: Sequence[Any], rows: Rows) -> float:
    """Of a baseline's predictions, in the view's metric; "tokens": the share of words at the
    target's own places.
    """
    expected = truth(view, rows)
    if view.metric == "tokens":
        pairs = [
            (said.split(), target.split())
            for said, target in zip(predictions, expected, strict=True)
        ]
        shares = [sum(x == y for x, y in zip(a, b, strict=False)) / len(b) for a, b in pairs]
        return float(sum(shares) / len(shares))
    if view.kind == "tagging" and view.metric == "accuracy":
        predictions, expected = list(chain(*predictions)), list(chain(*expected))
    return metrics.METRICS["accuracy" if view.metric == "exact" else view.metric](
        predictions, expected
    )


def majority(view: View, train: Rows, test: Rows) -> float:
    """The score of always saying what is commonest (of spans: the first word; of scores: nothing,
    so 0).
    """
    if view.metric == "pearson":
        return 0.0
    if view.kind == "span":
        return score(view, [row["pair"].split()[0] for row in test], test)
    if view.kind == "tagging":
        common = Counter(tag for row in truth(view, train) for tag in row).most_common(1)[0][0]
        return score(view, [[common] * len(row["labels"]) for row in test], test)
    return score(view, [Counter(truth(view, train)).most_common(1)[0][0]] * len(test), test)


def bag_of_words(view: View, train: Rows, test: Rows) -> float:
    """What words and pairs of neighbours tell, without their order: TF-IDF and a linear model.

    One or two texts: both bags and the bag of the words that they share. Choices: each by itself,
    with its text. Tags: the commonest tag of the word. Spans: every stretch of three words or less,
    with the question's first word. Targets: that of the nearest training text."""
    others: dict[str, Any] = {"tagging": _by_word, "span": _by_stretch, "target": _nearest}
    if view.kind in others:
        return score(view, others[view.kind](view, train, test), test)
    bags, asked = ([_bag(row) for row in apart(rows)] for rows in (train, test))
    return judge(view, _linear(scores=view.metric == "pearson"), train, test, bags, asked)


def probed(
    view: View, x: Tensor, x_test: Tensor, train: Rows, test: Rows, steps: int = 40
) -> float:
    """What a linear model, trained by so many steps of L-BFGS, tells from vectors: of words their
    tags, of rows the grade, as its expected value."""
    if view.metric == "pearson":
        probe = probing.linear_probe(
            x, torch.tensor(truth(view, train)).round().long(), 6, steps=steps
        )
        return score(view, (probe(x_test).softmax(-1) @ torch.arange(6.0)).tolist(), test)
    labels = torch.tensor([*chain(*(row["labels"] for row in train))])
    said = probing.linear_probe(x, labels, len(view.classes), steps=steps)(x_test).argmax(-1)
    parts = said.split([len(row["labels"]) for row in test])
    return score(view, [[view.classes[tag] for tag in part.tolist()] for part in parts], test)


def apart(rows: Rows) -> Rows:
    """Every choice as a pair of its own, with its text; other rows as they are."""
    if "choices" not in rows[0]:
        return rows
    return [{"text": row["text"], "pair": choice} for row in rows for choice in row["choices"]]


def judge(view: View, model: Any, train: Rows, test: Rows, told: Any, asked: Any) -> float:
    """The test score of a classifier (scikit-learn's) that learns the labels of rows, or which
    choice is the right one.

    told, asked: what it reads, for each of the rows of `apart(train)` and of `apart(test)`.
    """
    if view.kind != "choice":
        return score(
            view, list(model.fit(told, [row["label"] for row in train]).predict(asked)), test
        )
    right = [i == row["label"] for row in train for i in range(len(row["choices"]))]
    chances = model.fit(told, right).predict_proba(asked)[:, 1].reshape(len(test), -1)
    return score(view, list(chances.argmax(1)), test)


def _bag(row: columns.Row) -> str:
    """The words of a text, or those of a pair: each text's marked as its own, and the shared ones
    once more.
    """
    if "pair" not in row:
        return str(row["text"])
    first, second = row["text"].lower().split(), row["pair"].lower().split()
    shared = [f"both_{word.strip('.,?')}" for word in first if word in second]
    share = f"shared_{round(10 * len(set(first) & set(second)) / len(set(second)))}"
    return " ".join([*(f"a_{w}" for w in first), *(f"b_{w}" for w in second), *shared, share])


def _linear(*, scores: bool = False) -> Any:
    model = Ridge() if scores else LogisticRegression(max_iter=500)
    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORDS), model)


def _by_word(view: View, train: Rows, test: Rows) -> list[list[str]]:
    seen: dict[str, Counter[str]] = {}
    for row, tags in zip(train, truth(view, train), strict=True):
        for word, tag in zip(row["tokens"], tags, strict=True):
            seen.setdefault(word.lower(), Counter())[tag] += 1
    common = sum(seen.values(), Counter[str]()).most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    return [[best.get(word.lower(), common) for word in row["tokens"]] for row in test]


def _stretches(row: columns.Row) -> list[tuple[str, str]]:
    """(stretch, its words each with the question's first word, and the words around it)."""
    words, wh = row["pair"].split(), row["text"].split()[0]
    found = []
    for i in range(len(words)):
        for j in range(i + 1, min(len(words), i + 3) + 1):
            around = [
                f"l_{words[i - 1]}" if i else "l_",
                f"r_{words[j]}" if j < len(words) else "r_",
            ]
            known = [f"in_{w.strip('.,')}" for w in words[i:j] if w.strip(".,") in row["text"]]
            asked = [f"{wh}_{w}" for w in (*words[i:j], *around)]
            found.append(
                (" ".join(words[i:j]).strip(".,"), " ".join([*asked, *known, f"n{j - i}"]))
            )
    return found


def _by_stretch(view: View, train: Rows, test: Rows) -> list[str]:
    texts, right = [], []
    for number, row in enumerate(train):
        wrong = [features for text, features in _stretches(row) if text != row["answer"]]
        some = [features for text, features in _stretches(row) if text == row["answer"]]
        rest = Random(number).sample(wrong, min(10, len(wrong)))
        texts += some + rest
        right += [True] * len(some) + [False] * len(rest)
    model, answers = _linear().fit(texts, right), []
    for row in test:
        stretches, features = zip(*_stretches(row), strict=True)
        answers.append(stretches[model.predict_proba(features)[:, 1].argmax()])
    return answers


def _nearest(view: View, train: Rows, test: Rows) -> list[str]:
    vectors = TfidfVectorizer(ngram_range=(1, 2)).fit([row["text"] for row in train])
    asked, known = (vectors.transform([row["text"] for row in rows]) for rows in (test, train))
    return [train[i]["target"] for i in (asked @ known.T).toarray().argmax(1)]
