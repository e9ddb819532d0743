"""How each of the world's tasks is given to a model, and what can be scored without any model that reads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from random import Random
from typing import Any, Literal

from course_lib import metrics
from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.inputs import kind_of

Row = dict[str, Any]
Rows = list[Row]
Kind = Literal["single", "pair", "tagging", "choice", "span", "target"]

TEST_SEED = 1000  # of the test rows, the same for every run
TOKENS = r"\w+|[.,?]"


@dataclass(frozen=True)
class View:
    """A task as it is learned: its kind, its metric, the names of its classes (where it has some).

    train: the task whose rows train it, another one where the test is of another genre.
    """

    task: str
    train: str
    kind: Kind
    metric: str
    classes: tuple[str, ...] = ()

    def rows(self, n: int, split: str, seed: int) -> Rows:
        """`n` rows with the columns of the kind."""
        name = self.train if split == "train" else self.task
        return [_shaped(row, i) for i, row in enumerate(world().task(name, n, split, seed))]


@cache
def world() -> World:
    """The town of the shipped checkpoints."""
    return World(0)


def view(name: str) -> View:
    """How the task of this name is learned and scored."""
    labels = World.label_names(name)
    train = "nli" if name == "nli-mismatched" else name
    row = _shaped(world().task(name, 1)[0], 0)
    if "target" in row:
        return View(name, train, "target", "exact" if name.startswith("arithmetic") else "tokens")
    kind: Kind = "pair" if name == "questions-open" else kind_of(row)  # is there an answer?
    if kind == "tagging":
        return View(name, train, kind, "entity_f1" if name == "entities" else "accuracy", labels)
    if kind == "span":
        return View(name, train, kind, "exact_match")
    if not labels and kind == "pair":
        return View(name, train, kind, "pearson")
    return View(name, train, kind, "accuracy", labels if kind in ("single", "pair") else ())


def _shaped(row: Row, index: int) -> Row:
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
    """The score of a baseline's predictions, in the view's metric."""
    expected = truth(view, rows)
    if view.metric == "exact":
        return metrics.accuracy(predictions, expected)
    if view.metric == "tokens":
        return sum(map(_agreement, predictions, expected)) / len(expected)
    if view.kind == "tagging" and view.metric != "entity_f1":
        predictions, expected = list(chain(*predictions)), list(chain(*expected))
    return metrics.METRICS[view.metric](predictions, expected)


def _agreement(said: str, target: str) -> float:
    """The share of the target's words that stand at the same place of what is said."""
    a, b = said.split(), target.split()
    return sum(x == y for x, y in zip(a, b, strict=False)) / len(b)


def majority(view: View, train: Rows, test: Rows) -> float:
    """The score of always saying what is commonest (of spans: the first word; of scores: nothing, so 0)."""
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

    One or two texts: both bags and the bag of the words that they share. Choices: each by itself, with its text. Tags:
    the commonest tag of the word. Spans: every stretch of three words or less, with the question's first word. Targets:
    that of the nearest training text.
    """
    if view.kind == "tagging":
        return score(view, _by_word(view, train, test), test)
    if view.kind == "span":
        return score(view, _by_stretch(train, test), test)
    if view.kind == "target":
        return score(view, _nearest(train, test), test)
    bags, asked = ([_bag(row) for row in apart(rows)] for rows in (train, test))
    return judge(view, _linear(scores=view.metric == "pearson"), train, test, bags, asked)


def apart(rows: Rows) -> Rows:
    """Every choice as a pair of its own, with its text; other rows as they are."""
    if "choices" not in rows[0]:
        return rows
    return [{"text": row["text"], "pair": choice} for row in rows for choice in row["choices"]]


def judge(view: View, model: Any, train: Rows, test: Rows, told: Any, asked: Any) -> float:
    """The test score of a classifier (scikit-learn's) that learns the labels of rows, or which choice is the right one.

    told, asked: what it reads, for each of the rows of `apart(train)` and of `apart(test)`.
    """
    if view.kind != "choice":
        return score(view, list(model.fit(told, [row["label"] for row in train]).predict(asked)), test)
    right = [i == row["label"] for row in train for i in range(len(row["choices"]))]
    chances = model.fit(told, right).predict_proba(asked)[:, 1].reshape(len(test), -1)
    return score(view, list(chances.argmax(1)), test)


def _bag(row: Row) -> str:
    """The words of a text, or those of a pair: each text's marked as its own, and the shared ones once more."""
    if "pair" not in row:
        return str(row["text"])
    first, second = row["text"].lower().split(), row["pair"].lower().split()
    shared = [f"both_{word.strip('.,?')}" for word in first if word in second]
    share = f"shared_{round(10 * len(set(first) & set(second)) / len(set(second)))}"
    return " ".join([*(f"a_{w}" for w in first), *(f"b_{w}" for w in second), *shared, share])


def _linear(*, scores: bool = False) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    model = Ridge() if scores else LogisticRegression(max_iter=500)
    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), token_pattern=TOKENS), model)


def _by_word(view: View, train: Rows, test: Rows) -> list[list[str]]:
    seen: dict[str, Counter[str]] = {}
    for row, tags in zip(train, truth(view, train), strict=True):
        for word, tag in zip(row["tokens"], tags, strict=True):
            seen.setdefault(word.lower(), Counter())[tag] += 1
    common = sum(seen.values(), Counter[str]()).most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    return [[best.get(word.lower(), common) for word in row["tokens"]] for row in test]


def _stretches(row: Row) -> list[tuple[str, str]]:
    """(stretch, its words each with the question's first word, and the words around it)."""
    words, wh = row["pair"].split(), row["text"].split()[0]
    found = []
    for i in range(len(words)):
        for j in range(i + 1, min(len(words), i + 3) + 1):
            around = [f"l_{words[i - 1]}" if i else "l_", f"r_{words[j]}" if j < len(words) else "r_"]
            known = [f"in_{w.strip('.,')}" for w in words[i:j] if w.strip(".,") in row["text"]]
            features = " ".join(
                [*(f"{wh}_{w}" for w in words[i:j]), *(f"{wh}_{w}" for w in around), *known, f"n{j - i}"]
            )
            found.append((" ".join(words[i:j]).strip(".,"), features))
    return found


def _by_stretch(train: Rows, test: Rows) -> list[str]:
    texts, right = [], []
    for number, row in enumerate(train):
        stretches = _stretches(row)
        wrong = [features for text, features in stretches if text != row["answer"]]
        some = [features for text, features in stretches if text == row["answer"]]
        rest = Random(number).sample(wrong, min(10, len(wrong)))
        texts += some + rest
        right += [True] * len(some) + [False] * len(rest)
    model = _linear().fit(texts, right)
    answers = []
    for row in test:
        stretches = _stretches(row)
        chances = model.predict_proba([features for _, features in stretches])[:, 1]
        answers.append(stretches[int(chances.argmax())][0])
    return answers


def _nearest(train: Rows, test: Rows) -> list[str]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(ngram_range=(1, 2)).fit([row["text"] for row in train])
    known = vectors.transform([row["text"] for row in train])
    close = (vectors.transform([row["text"] for row in test]) @ known.T).toarray().argmax(1)
    return [train[i]["target"] for i in close]


def check(names: Sequence[str]) -> None:
    """Raises CourseError if the world lacks one of these tasks, or one is named twice."""
    for name in names:
        if name not in World.task_names():
            raise CourseError(f"The world has no task {name!r}; choose among {', '.join(World.task_names())}.")
    if any(a == b for a, b in pairwise(sorted(names))):
        raise CourseError(f"A task is named twice in {', '.join(names)}.")
