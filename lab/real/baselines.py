"""What a practitioner would try first on a public task: linear models of counted words, letters and
shapes.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
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
_WH = {"what", "who", "whom", "whose", "when", "where", "which", "why", "how"}


def linear(metric: str) -> Run:
    """Ridge or logistic regression (for macro F1 with equal classes). Texts: TF-IDF of words, one
    and two, and of two to five letters; pairs: what both texts share, what only one has. Tags: the
    word, its ends, its shape, its neighbours. Spans: the question's first word, the candidate's
    shape and length, the question's words near it."""

    def run(rows: Dataset, test: Dataset, penalty: float, seed: int) -> float:
        if metric == "token_f1":
            return _spans(rows, test, penalty, seed)
        tags = "tokens" in rows.column_names
        known, asked = (_words if tags else _texts)(rows, test)
        truth = [tag for row in rows["labels"] for tag in row] if tags else rows["label"]
        ridge = isinstance(truth[0], float)
        weights = "balanced" if metric == "macro_f1" else None
        model = (
            Ridge(1 / penalty)
            if ridge
            else LogisticRegression(C=penalty, max_iter=2000, class_weight=weights)
        )
        predicted = model.fit(known, truth).predict(asked).tolist()
        if not tags:
            return float(METRICS[metric](predicted, test["label"]))
        if metric != "entity_f1":  # a tag alone is right or wrong
            return float(METRICS[metric](predicted, [tag for row in test["labels"] for tag in row]))
        names, flat = test.features["labels"].feature.names, iter(predicted)
        spoken = [[names[next(flat)] for _ in row] for row in test["labels"]]
        return float(
            METRICS[metric](spoken, [[names[tag] for tag in row] for row in test["labels"]])
        )

    return run


def _texts(*parts: Dataset) -> list[sparse.csr_matrix]:
    columns = [name for name in ("text", "pair") if name in parts[0].column_names]
    found: list[list[Any]] = [[] for _ in parts]
    for analyzer, grams in (("word", (1, 2)), ("char_wb", (2, 5))):
        counter = TfidfVectorizer(analyzer=analyzer, ngram_range=grams, min_df=2, sublinear_tf=True)
        counter.fit([text for name in columns for text in parts[0][name]])
        for blocks, part in zip(found, parts, strict=True):
            one, *other = (counter.transform(part[name]) for name in columns)
            cosine = [sparse.csr_matrix(one.multiply(o).sum(1)) for o in other]
            blocks += [
                one,
                *cosine,
                *(abs(one - o) for o in other),
                *(one.multiply(o) for o in other),
            ]
    return [sparse.hstack(blocks).tocsr() for blocks in found]


def _words(*parts: Dataset) -> list[sparse.csr_matrix]:
    counter = DictVectorizer().fit([one for row in parts[0]["tokens"] for one in _features(row)])
    return [
        counter.transform([one for row in part["tokens"] for one in _features(row)])
        for part in parts
    ]


def _shape(word: str) -> str:
    return "".join(
        "A" if c.isupper() else "9" if c.isdigit() else "a" if c.isalpha() else c for c in word
    )


def _features(tokens: Sequence[str]) -> list[dict[str, bool]]:
    lower, found = ["<", *(token.lower() for token in tokens), ">"], []
    for i, token in enumerate(tokens, start=1):
        said = [
            f"word {lower[i]}",
            f"before {lower[i - 1]}",
            f"after {lower[i + 1]}",
            f"shape {_shape(token)}",
        ]
        said += [part for n in (1, 2, 3) for part in (f"ends {token[-n:]}", f"begins {token[:n]}")]
        found.append(dict.fromkeys(said, True))
    return found


def _spans(rows: Dataset, test: Dataset, penalty: float, seed: int) -> float:
    """Logistic regression over candidate answers, as in Rajpurkar et al. 2016, section 5.2, without
    a parser.
    """
    passages = dict.fromkeys([*rows["pair"], *test["pair"]])
    counts = Counter(word for passage in passages for word in set(passage.lower().split()))
    rarity = {word: log(len(passages) / n) for word, n in counts.items()}
    counter, pick = DictVectorizer(), np.random.default_rng(seed)
    known, truth = [], []
    for row in rows:
        candidates = _candidates(row, rarity)
        right = [text == row["answer"] for text, _ in candidates]
        chosen = {i for i, good in enumerate(right) if good} | set(
            pick.permutation(len(right))[:WRONG].tolist()
        )
        known += [candidates[i][1] for i in chosen]
        truth += [right[i] for i in chosen]
    model = LogisticRegression(C=penalty, max_iter=2000).fit(counter.fit_transform(known), truth)
    answers = []
    for row in test:
        texts, features = zip(*_candidates(row, rarity), strict=True)
        answers.append(texts[int(model.decision_function(counter.transform(features)).argmax())])
    return float(METRICS["token_f1"](answers, test["answers"]))


def _candidates(
    row: dict[str, Any], rarity: dict[str, float]
) -> list[tuple[str, dict[str, float]]]:
    """All runs of up to six words of the passage, trimmed of signs, with what may tell the
    answer.
    """
    question = re.findall(r"\w+", row["text"].lower())
    wh = next(
        (" ".join(question[i : i + 2]) for i, word in enumerate(question) if word in _WH), "none"
    )
    words = [
        (m.start(), m.end(), m.group())
        for m in re.finditer(r"\w+(?:[-'.,]\w+)*|[^\w\s]", row["pair"])
    ]
    lower = [word.lower() for _, _, word in words]
    near = np.array([rarity.get(word, 0.0) if word in question else 0.0 for word in lower])
    places = np.arange(len(words))
    found = []
    for i in range(len(words)):
        for j in range(i, min(i + LONGEST, len(words))):
            distance = np.where(places < i, i - places, np.where(places > j, places - j, np.inf))
            told = {
                "near": float((near / distance).sum()),
                "within ten": float(near[distance <= 10].sum()),
            }
            told["in the question"] = float(near[i : j + 1].sum())
            first, last = _shape(words[i][2])[:2], _shape(words[j][2])[-2:]
            said = [f"{wh} {first} {last}", f"{wh.split()[0]} {first} {last}"]
            said += [f"{wh.split()[0]} {j - i}", f"{first} {j - i}"]
            said += [
                f"before {lower[i - 1] if i else '<'}",
                f"after {lower[j + 1] if j + 1 < len(words) else '>'}",
            ]
            said += [f"begins {lower[i]}", f"ends {lower[j]}", f"{wh} ends {lower[j]}"]
            found.append((row["pair"][words[i][0] : words[j][1]], told | dict.fromkeys(said, 1.0)))
    return found
