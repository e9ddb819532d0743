"""The claims of lesson 15: sentence vectors, and search by them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from gensim.parsing.porter import PorterStemmer  # type: ignore[import-untyped]

from classroom.town.searches import KINDS, collection
from course_lib import zoo
from course_lib.analysis import metrics
from course_lib.analysis.retrieval import Index, best, words
from course_lib.analysis.sts import sts
from course_lib.data.embedders import Embedder, SentenceEncoder, WordAverage
from course_lib.data.text_batches import TextBatches
from course_lib.families import sentence
from course_lib.families.sentence import Sentence
from course_lib.training import optim
from lab.lessons import Lab, experiment, fit, given, linear_config
from lab.real import embedders, graded, parts

BODY, STATIC = "bert-mini", {"avg GloVe": "glove-mini", "avg word2vec": "word2vec-mini"}
SIZES: dict[str, dict[str, int]] = given("sbert")["sizes"]
OWN = "S-BERT"
PARTS: dict[str, int] = given("sbert")["parts"]


def averages() -> dict[str, Embedder]:
    """The means of the shipped static vectors."""
    static = {name: zoo.load(checkpoint).model for name, checkpoint in STATIC.items()}
    return {name: WordAverage(vectors.numbers, vectors.matrix) for name, vectors in static.items()}


def taught(lab: Lab, seed: int, pairs: Any) -> SentenceEncoder:
    """The shipped body with mean pooling, trained on pairs of query and passage."""
    body, tokenizer, _ = zoo.load(BODY)
    model = Sentence(body.stack, "mean").eval().to(lab.device)
    torch.manual_seed(seed)
    steps = SIZES[lab.plan.scale]["steps"]
    batches = TextBatches(pairs, tokenizer, batch=32, seed=seed, max_length=72)
    schedule = optim.wsd(steps, steps // 8 + 1, 0.5)
    fit(model, batches, sentence.ranking, linear_config(steps, 1e-3, device=lab.device), schedule)
    return SentenceEncoder(model, tokenizer)


def stems(texts: Sequence[str]) -> list[str]:
    """Texts of their words' stems (Porter)."""
    porter = PorterStemmer()
    return [" ".join(porter.stem(word) for word in words(text)) for text in texts]


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """The first ten of several rankings of ten by the sum of 1 / (60 + rank)."""
    score: Counter[int] = Counter()
    for ranking in rankings:
        score.update({number: 1 / (60 + place) for place, number in enumerate(ranking, start=1)})
    return [number for number, _ in score.most_common(10)]


@experiment("dense-retrieval")
def dense_retrieval(lab: Lab, seed: int) -> dict[str, float]:
    """Mean reciprocal rank and nDCG of the first ten places, by system and kind of query."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    size = SIZES[lab.plan.scale]
    lessons = collection("world", split="train", n=size["taught"], seed=seed)
    shelf = collection("world", split="test", n=size["searched"], seed=seed)
    asked = [query.text for query in shelf.queries]

    def ranked(index: Index, how: Any) -> list[list[int]]:
        return [[hit.number for hit in hits] for hits in index.search_all(asked, how=how)]

    tfidf = TfidfVectorizer(tokenizer=words, token_pattern=None).fit(shelf.passages)
    close = (tfidf.transform(asked) @ tfidf.transform(shelf.passages).T).toarray()
    searcher = taught(lab, seed, lessons.pairs())
    index, roots = Index(shelf.passages, embedder=searcher, batch=64), Index(stems(shelf.passages))
    found = {
        "BM25": ranked(index, "bm25"),
        OWN: ranked(index, "dense"),
        "hybrid": ranked(index, "rrf"),
    }
    found["BM25, stems"] = [[hit.number for hit in hits] for hits in roots.search_all(stems(asked))]
    found["hybrid, stems"] = [
        fused(pair) for pair in zip(found["BM25, stems"], found[OWN], strict=True)
    ]
    found["TF-IDF"] = [
        best(np.where(row > 0, row, -np.inf).astype(np.float32), 10).tolist() for row in close
    ]
    for name, embedder in averages().items():
        found[name] = ranked(Index(shelf.passages, embedder=embedder, batch=64), "dense")
    values: dict[str, float] = {}
    for kind in (*KINDS, "all"):
        at = [i for i, query in enumerate(shelf.queries) if kind in (query.kind, "all")]
        right = [shelf.queries[i].answers for i in at]
        for name, rankings in found.items():
            chosen = [rankings[i] for i in at]
            values[f"MRR, {kind}/{name}"] = metrics.mrr(chosen, right)
            values[f"nDCG, {kind}/{name}"] = metrics.ndcg(chosen, right, k=10)
    return values


def shared_words(first: str, second: str) -> float:
    """The words of both texts over the words of either (Jaccard)."""
    one = set(words(first))
    other = set(words(second))
    return len(one & other) / max(1, len(one | other))


@experiment("sentence-vectors")
def sentence_vectors(lab: Lab, seed: int) -> dict[str, float]:
    """Spearman's correlation with people's grades by set and kind of vector, on a part of the
    pairs.
    """
    torch.manual_seed(seed)
    encoders = embedders.of_sentences()
    values: dict[str, float] = {}
    for name, pairs in graded.read_all(lab.public_data).items():
        some = parts.part(pairs, seed, PARTS[lab.plan.scale])
        firsts = [pair.first for pair in some]
        seconds = [pair.second for pair in some]
        grades = [pair.grade for pair in some]
        overlaps = [shared_words(pair.first, pair.second) for pair in some]
        values[f"{name}/shared words"] = metrics.spearman(overlaps, grades)
        for kind, encoder in encoders.items():
            values[f"{name}/{kind}"] = sts(encoder, firsts, seconds, grades)
    return values
