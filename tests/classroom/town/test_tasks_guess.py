"""Nothing but reading tells the labels of the world's tasks: words, halves and overlaps are
measured, and stay low.
"""

from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.classroom.town.reader import sentences, words

Rows = list[dict[str, Any]]


def bag_of_words(train: list[str], labels: list[int], test: list[str]) -> Any:
    """TF-IDF of single words and pairs of neighbours, then logistic regression: the probabilities
    on `test`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[.,?]")
    return (
        make_pipeline(vectors, LogisticRegression(max_iter=500))
        .fit(train, labels)
        .predict_proba(test)
    )


WHOLE = [  # a task, what a bag of its words may reach
    ("acceptability", 0.65),
    ("sentiment", 0.75),
    ("nli", 0.40),
    ("nli-mismatched", 0.41),
    ("rte", 0.56),
    ("paraphrase", 0.56),
    ("qnli", 0.65),
    ("wic", 0.65),
    ("questions-open", 0.56),
]
HALVES = [  # of halves alone, or of domains
    ("sentiment-food", None, 0.75),
    ("sentiment-film", None, 0.75),
    ("nli", "pair", 0.40),
    ("nli", "text", 0.40),
    ("nli-mismatched", "pair", 0.41),
    ("rte", "pair", 0.56),
    ("paraphrase", "pair", 0.56),
    ("qnli", "pair", 0.65),
    ("questions-open", "text", 0.56),
]
BAGS = [(name, None, ceiling) for name, ceiling in WHOLE] + [
    pytest.param(*h, marks=pytest.mark.slow) for h in HALVES
]


@pytest.mark.parametrize(("name", "part", "ceiling"), BAGS)
def test_a_bag_of_words_stays_low(world, name, part, ceiling):
    train, test = world.task(name, 1000), world.task(name, 999, "validation")
    texts = [
        [
            row[part] if part else " ".join(row[c] for c in ("text", "pair") if c in row)
            for row in rows
        ]
        for rows in (train, test)
    ]
    predicted = bag_of_words(texts[0], [row["label"] for row in train], texts[1]).argmax(1)
    score = sum(p == row["label"] for p, row in zip(predicted, test, strict=True)) / len(test)
    assert score < ceiling


@pytest.mark.parametrize(
    ("name", "ceiling"),
    [
        ("continuation", 0.35),
        ("pronouns", 0.6),
        ("cloze", 0.43),
        ("in-context", 0.6),
        ("analogies", 0.45),
    ],
)
def test_a_choice_by_itself_does_not_tell(world, name, ceiling):
    train, test = world.task(name, 400), world.task(name, 300, "validation")
    n = len(train[0]["choices"])
    texts, labels = zip(
        *((c, i == row["label"]) for row in train for i, c in enumerate(row["choices"])),
        strict=True,
    )
    scores = bag_of_words(list(texts), list(labels), [c for row in test for c in row["choices"]])[
        :, 1
    ]
    best = scores.reshape(-1, n).argmax(1)
    assert sum(b == row["label"] for b, row in zip(best, test, strict=True)) / len(test) < ceiling


@pytest.mark.parametrize(
    "name", ["nli", "nli-mismatched", "rte", "paraphrase", "qnli", "wic", "questions-open"]
)
def test_overlap_does_not_tell(world, name):
    """How many words of the one text are in the other, and how long both are."""
    from sklearn.linear_model import LogisticRegression

    def features(row: dict[str, Any]) -> list[float]:
        a, b = (set(words(row[side].lower())) for side in ("text", "pair"))
        return [len(a & b) / len(b), len(a & b) / len(a), len(a), len(b)]

    train, test = world.task(name, 1000), world.task(name, 999, "validation")
    model = LogisticRegression().fit(
        [features(row) for row in train], [row["label"] for row in train]
    )
    guessed = 1 / (len(world.label_names(name)))
    assert (
        model.score([features(row) for row in test], [row["label"] for row in test])
        < guessed + 0.12
    )


def test_shared_words_hardly_tell_the_similarity(world):
    from course_lib.analysis.metrics import pearson

    rows = world.task("similarity", 1000)
    shared = [len(set(words(row["text"])) & set(words(row["pair"]))) for row in rows]
    assert abs(pearson(shared, [row["label"] for row in rows])) < 0.65


@pytest.mark.parametrize("name", ["questions", "questions-open"])
def test_a_context_does_not_tell_its_question(world, name):
    """The answer stands in each of the three sentences equally often."""
    rows = [row for row in world.task(name, 600) if row["answer"]]
    places = Counter(len(sentences(row["pair"][: row["start"]] + "x")) for row in rows)
    assert len(places) == 3 and min(places.values()) > 0.25 * len(rows)


def test_overlap_does_not_tell_the_choice(world):
    """The words of every choice are in the text equally often, on average."""
    right, wrong = [], []
    for row in world.task("continuation", 300):
        text = set(words(row["text"].lower()))
        for i, choice in enumerate(row["choices"]):
            (right if i == row["label"] else wrong).append(len(text & set(words(choice.lower()))))
    assert abs(sum(right) / len(right) - sum(wrong) / len(wrong)) < 0.1


def test_entities_by_the_word_alone(world):
    """The commonest label of each word leaves many entities of the held-out sentences wrong."""
    seen = defaultdict(Counter)
    for row in world.task("entities", 1000):
        for token, label in zip(row["tokens"], row["labels"], strict=True):
            seen[token.lower()][label] += 1
    hits = total = 0
    for row in world.task("entities", 500, "test"):
        for token, label in zip(row["tokens"], row["labels"], strict=True):
            if label:
                guess = seen[token.lower()].most_common(1)[0][0] if token.lower() in seen else 0
                hits += guess == label
                total += 1
    assert hits / total < 0.7
