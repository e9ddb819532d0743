"""What a practitioner would try first on a public task: linear models of counted words, letters and
shapes.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from math import log
from typing import Any

import numpy as np
from datasets import Dataset
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from course_lib.analysis.metrics import METRICS

# (training rows, rows to score, rate or penalty, seed) -> score
Run = Callable[[Dataset, Dataset, float, int], float]
PENALTIES = (0.1, 1.0, 10.0, 100.0)  # inverse regularisations
LONGEST = 6  # words of a candidate answer
WRONG = 40  # wrong candidates of a training question
QUESTION_WORDS = {"what", "who", "whom", "whose", "when", "where", "which", "why", "how"}


def most_frequent(rows: Dataset, test: Dataset) -> float:
    """Accuracy of always predicting the most frequent label of the training rows (or words)."""
    known, asked = _labels(rows), _labels(test)
    [(label, _)] = Counter(known).most_common(1)
    return asked.count(label) / len(asked)


def _labels(rows: Dataset) -> list[Any]:
    """The labels of all rows, or of all words of all rows."""
    if "tokens" in rows.column_names:
        return list(chain.from_iterable(rows["labels"]))
    return list(rows["label"])


def linear(metric: str) -> Run:
    """A linear model of counted features: ridge regression for grades, else logistic regression.

    Texts: TF-IDF of words, one and two, and of two to five letters. Pairs: also what both texts
    share, and what only one has. Tags: the word, its ends, its shape, its neighbours. Spans: the
    question's first word, the candidate's shape and length, the question's words near it. For macro
    F1 all classes weigh the same.
    """
    if metric == "token_f1":
        return _spans

    def run(rows: Dataset, test: Dataset, penalty: float, seed: int) -> float:
        if "tokens" in rows.column_names:
            return _tags(metric, rows, test, penalty)
        known, asked = _texts(rows, test)
        if isinstance(rows["label"][0], float):
            model = Ridge(1 / penalty)
        else:
            model = _classifier(metric, penalty)
        predictions = model.fit(known, rows["label"]).predict(asked).tolist()
        return float(METRICS[metric](predictions, test["label"]))

    return run


def _classifier(metric: str, penalty: float) -> LogisticRegression:
    weights = "balanced" if metric == "macro_f1" else None
    return LogisticRegression(C=penalty, max_iter=2000, class_weight=weights)


def _tags(metric: str, rows: Dataset, test: Dataset, penalty: float) -> float:
    """The score of a word's tag, each predicted for itself."""
    counter = DictVectorizer()
    known = counter.fit_transform(_word_features(rows))
    asked = counter.transform(_word_features(test))
    model = _classifier(metric, penalty).fit(known, [*chain.from_iterable(rows["labels"])])
    predictions = model.predict(asked).tolist()
    if metric != "entity_f1":  # a tag alone is right or wrong
        return float(METRICS[metric](predictions, [*chain.from_iterable(test["labels"])]))
    names = test.features["labels"].feature.names
    following = iter(predictions)
    predicted = [[names[next(following)] for _ in row] for row in test["labels"]]
    truth = [[names[tag] for tag in row] for row in test["labels"]]
    return float(METRICS[metric](predicted, truth))


def _texts(*parts: Dataset) -> list[sparse.csr_matrix]:
    """Features of each part's rows; words and letters are counted in the first part's."""
    columns = [name for name in ("text", "pair") if name in parts[0].column_names]
    blocks: list[list[Any]] = [[] for _ in parts]
    for analyzer, grams in (("word", (1, 2)), ("char_wb", (2, 5))):
        counter = TfidfVectorizer(analyzer=analyzer, ngram_range=grams, min_df=2, sublinear_tf=True)
        counter.fit([text for name in columns for text in parts[0][name]])
        for own, part in zip(blocks, parts, strict=True):
            first = counter.transform(part["text"])
            own.append(first)
            if "pair" in columns:
                second = counter.transform(part["pair"])
                product = first.multiply(second)  # what both have
                cosine = sparse.csr_matrix(product.sum(1))
                own += [cosine, abs(first - second), product]
    return [sparse.hstack(own).tocsr() for own in blocks]


def _word_features(rows: Dataset) -> list[dict[str, bool]]:
    """Of all words of all rows."""
    return [features for tokens in rows["tokens"] for features in _features(tokens)]


def _features(tokens: Sequence[str]) -> list[dict[str, bool]]:
    """What tells each word's tag: the word, its neighbours, its ends and its shape."""
    lower = ["<", *(token.lower() for token in tokens), ">"]
    found = []
    for i, token in enumerate(tokens, start=1):  # `lower` begins with a mark
        features = [
            f"word {lower[i]}",
            f"before {lower[i - 1]}",
            f"after {lower[i + 1]}",
            f"shape {_shape(token)}",
        ]
        for letters in (1, 2, 3):
            features += [f"ends {token[-letters:]}", f"begins {token[:letters]}"]
        found.append(dict.fromkeys(features, True))
    return found


def _shape(word: str) -> str:
    """The kinds of a word's characters: those of McDonald-9 are AaAaaaaa-9."""
    return "".join(map(_shape_of, word))


def _shape_of(character: str) -> str:
    if character.isupper():
        return "A"
    if character.isdigit():
        return "9"
    return "a" if character.isalpha() else character


def _spans(rows: Dataset, test: Dataset, penalty: float, seed: int) -> float:
    """Logistic regression over candidate answers, as in Rajpurkar et al. 2016, section 5.2, without
    a parser.
    """
    passages = dict.fromkeys([*rows["pair"], *test["pair"]])
    counts = Counter(word for passage in passages for word in set(passage.lower().split()))
    rarity = {word: log(len(passages) / n) for word, n in counts.items()}
    rng = np.random.default_rng(seed)
    known: list[dict[str, float]] = []
    is_right: list[bool] = []
    for row in rows:
        candidates = _candidates(row, rarity)
        right = [text == row["answer"] for text, _ in candidates]
        # All right candidates, and some others.
        chosen = {i for i, good in enumerate(right) if good}
        chosen |= set(rng.permutation(len(right))[:WRONG].tolist())
        known += [candidates[i][1] for i in chosen]
        is_right += [right[i] for i in chosen]
    counter = DictVectorizer()
    model = LogisticRegression(C=penalty, max_iter=2000)
    model.fit(counter.fit_transform(known), is_right)
    answers = []
    for row in test:
        texts, features = zip(*_candidates(row, rarity), strict=True)
        scores = model.decision_function(counter.transform(features))
        answers.append(texts[int(scores.argmax())])
    return float(METRICS["token_f1"](answers, test["answers"]))


def _candidates(
    row: dict[str, Any], rarity: dict[str, float]
) -> list[tuple[str, dict[str, float]]]:
    """All stretches of up to six words of the passage, each with what may tell the answer.

    Args:
        row: "text" is the question, "pair" the passage.
        rarity: of a word: the logarithm of its inverse document frequency.
    """
    passage = row["pair"]
    question = re.findall(r"\w+", row["text"].lower())
    wh = _question_words(question)
    wh_word = wh.split()[0]
    words = list(re.finditer(r"\w+(?:[-'.,]\w+)*|[^\w\s]", passage))
    lower = ["<", *(word.group().lower() for word in words), ">"]
    shapes = [_shape(word.group()) for word in words]
    asked = [rarity.get(word, 0.0) if word in question else 0.0 for word in lower[1:-1]]
    weights = np.array(asked)
    positions = np.arange(len(words))
    found = []
    for first in range(len(words)):
        for last in range(first, min(first + LONGEST, len(words))):
            # The question's words count less the farther they stand from the stretch.
            left = np.where(positions < first, first - positions, np.inf)
            distance = np.where(positions > last, positions - last, left)
            numbers = {
                "near": float((weights / distance).sum()),
                "within ten": float(weights[distance <= 10].sum()),
                "in the question": float(weights[first : last + 1].sum()),
            }
            begin = shapes[first][:2]
            end = shapes[last][-2:]
            length = last - first
            signs = [
                f"{wh} {begin} {end}",
                f"{wh_word} {begin} {end}",
                f"{wh_word} {length}",
                f"{begin} {length}",
                f"before {lower[first]}",  # `lower` begins with a mark
                f"after {lower[last + 2]}",
                f"begins {lower[first + 1]}",
                f"ends {lower[last + 1]}",
                f"{wh} ends {lower[last + 1]}",
            ]
            text = passage[words[first].start() : words[last].end()]
            found.append((text, numbers | dict.fromkeys(signs, 1.0)))
    return found


def _question_words(question: Sequence[str]) -> str:
    """The question's first question word and the word behind it: "how many"; or "none"."""
    for i, word in enumerate(question):
        if word in QUESTION_WORDS:
            return " ".join(question[i : i + 2])
    return "none"
