"""The claims of lesson 04: what static vectors know of words, and what they cannot tell apart."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch.nn.functional as F
from datasets import concatenate_datasets

from course_lib import data, zoo
from course_lib.analysis import metrics
from course_lib.families.word_vectors import WordVectors
from lab.lessons import Lab, experiment, given, settings
from lab.real import baselines, counts, parts, senses, words

GIVEN = given("word_embeddings")
SETS = {
    "WS-353": "EN-WS-353-ALL",
    "MEN": "EN-MEN-TR-3k",
    "MTurk-771": "EN-MTurk-771",
    "SimLex-999": "EN-SIMLEX-999",
}
Pair = tuple[str, str, float]  # two words and people's grade
# What reads a word in its sentence. Another encoder is another entry.
READERS: dict[str, Callable[[], senses.Reader]] = {
    "neighbours": lambda: senses.neighbours("vectors-english"),
    "MiniLM": lambda: senses.contextual("minilm"),
}


def pairs_of(path: Path, known: WordVectors) -> list[Pair]:
    """The pairs of a file whose words both have a vector."""
    rows = [line.lower().split() for line in path.read_text("utf-8").splitlines()]
    return [(a, b, float(grade)) for a, b, grade in rows if a in known and b in known]


def counted_cosines(
    lab: Lab, pairs: Mapping[str, Sequence[Pair]], vocabulary: Sequence[str]
) -> dict[str, float]:
    """The cosines of the pairs, "bank money", by counts of the English corpus; made once."""
    corpus = lab.public_data("english")
    how = GIVEN["counts"][lab.plan.scale]
    files = {path.name: path.stat().st_size for path in sorted(corpus.iterdir())}

    def make() -> dict[str, float]:
        text = counts.encode(data.corpus(corpus)["text"], vocabulary)
        matrix = counts.ppmi(text, how["window"])
        vectors = counts.reduced(matrix, vocabulary, how["size"], [how["power"]])[how["power"]]
        return {
            f"{a} {b}": F.cosine_similarity(vectors[a], vectors[b], dim=0).item()
            for some in pairs.values()
            for a, b, _ in some
        }

    follows = {"how": how, "files": files, "config": settings("word-similarity"), "sets": SETS}
    return lab.kept("counted cosines", follows, make)


@experiment("word-similarity")
def word_similarity(lab: Lab, seed: int) -> dict[str, float]:
    """Spearman's correlation with people's grades by set and kind of vector, on a part of the
    pairs.
    """
    vectors = zoo.load("vectors-english").model
    folder = lab.public_data("wordsim_sets")
    pairs = {name: pairs_of(folder / f"{file}.txt", vectors) for name, file in SETS.items()}
    counted = counted_cosines(lab, pairs, vectors.words)
    values: dict[str, float] = {}
    for name, every in pairs.items():
        some = parts.part(every, seed, GIVEN["parts"][lab.plan.scale])
        cosines = [F.cosine_similarity(vectors[a], vectors[b], dim=0).item() for a, b, _ in some]
        scores = {
            "skip-gram": cosines,
            "counts": [counted[f"{a} {b}"] for a, b, _ in some],
            "shared letters": [words.letters(a, b) for a, b, _ in some],
        }
        grades = [grade for _, _, grade in some]
        for kind, said in scores.items():
            values[f"{name}/{kind}"] = metrics.spearman(said, grades)
    return values


@experiment("senses")
def word_senses(lab: Lab, seed: int) -> dict[str, float]:
    """Macro F1 of the senses of one word, by what a linear classifier reads."""
    folder = lab.public_data("coarsewsd20")
    asked = sorted(path for path in folder.iterdir() if path.is_dir())
    word = asked[seed % len(asked)]
    size = GIVEN["sentences"][lab.plan.scale]
    train, test = (senses.read(word, split, each=size[split]) for split in ("train", "test"))

    # Without vectors: the sense that is most frequent, and n-grams of the sentence.
    [(most_frequent, _)] = Counter(train["label"]).most_common(1)
    guesses = [most_frequent] * len(test)
    values = {"most frequent sense": metrics.f1(guesses, test["label"], macro=True)}
    linear = baselines.linear("macro_f1")

    def score(rows: senses.Numbers, held: senses.Numbers, penalty: float) -> float:
        return linear(train.select(rows), train.select(held), penalty, 0)

    penalty, _ = senses.chosen(score, baselines.PENALTIES, train["label"])
    values["n-grams"] = linear(train, test, penalty, 0)

    both = concatenate_datasets([train, test])
    texts = [text.split() for text in both["text"]]
    for name, reader in READERS.items():
        features = reader()(texts, both["place"])
        scores = senses.scores(features, both["label"], len(train))
        values[name] = scores.pop("chosen")
        values |= {f"{name}, {kind}": score for kind, score in scores.items()}
    return values
