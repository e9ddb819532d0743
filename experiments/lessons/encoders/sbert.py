"""The claims of lesson 15: ways to make one vector of a sentence, search by vectors, the triplet
loss.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from gensim.parsing.porter import PorterStemmer  # type: ignore[import-untyped]

from classroom.town.searches import KINDS, collection
from course_lib import zoo
from course_lib.analysis import metrics
from course_lib.analysis.retrieval import Index, best, words
from course_lib.data.embedders import Embedder, SentenceEncoder, WordAverage, encode
from course_lib.data.text_batches import TextBatches
from course_lib.families import sentence
from course_lib.families.sentence import Sentence, triplet_loss
from course_lib.model.heads import Pool
from course_lib.objectives import losses, seeded_generator
from course_lib.training import optim
from experiments.lessons import Lab, experiment, fit, given, task_rows

BODY, STATIC = "bert-mini", {"avg GloVe": "glove-mini", "avg word2vec": "word2vec-mini"}
SIZES: dict[str, list[int]] = given("sbert")["sizes"]
TRAINED, OWN = "S-BERT softmax", "S-BERT"


def averages() -> dict[str, Embedder]:
    """The means of the shipped static vectors."""
    static = {name: zoo.load(checkpoint).model for name, checkpoint in STATIC.items()}
    return {name: WordAverage(vectors.numbers, vectors.matrix) for name, vectors in static.items()}


def shipped(lab: Lab, pool: Pool = "mean") -> SentenceEncoder:
    """The shipped body, not trained for sentences."""
    body, tokenizer, _ = zoo.load(BODY)
    return SentenceEncoder(Sentence(body.stack, pool).eval().to(lab.device), tokenizer)


def taught(
    lab: Lab, seed: int, rows: Any, loss: losses.Loss, lr: float, best: float | None = None
) -> SentenceEncoder:
    """The body with mean pooling, trained on pairs; those of three classes under a classifier."""
    reader, steps = shipped(lab), SIZES[lab.plan.scale][-1]
    torch.manual_seed(seed)
    whole = (
        sentence.PairClassifier(reader.model, 3) if loss is losses.classification else reader.model
    )
    batches = TextBatches(rows, reader.tokenizer, batch=32, seed=seed, max_length=72, best=best)
    fit(whole, batches, loss, steps, lr, optim.wsd(steps, steps // 8 + 1, 0.5), device=lab.device)
    return reader


@experiment("sbert-pooling")
def sbert_pooling(lab: Lab, seed: int) -> dict[str, float]:
    """Spearman's correlation times 100 with the grades of the town's pairs, by system."""
    size = SIZES[lab.plan.scale]
    train, test = (
        list(rows) for rows in task_rows("similarity", seed, train=size[0], test=size[1]).values()
    )
    inferred = [
        row | {"label": 0 if row["label"] >= 3.5 else 1 if row["label"] >= 1.5 else 2}
        for row in train
    ]
    systems = averages() | {
        "avg BERT": shipped(lab),
        "BERT CLS": shipped(lab, "first"),
        TRAINED: taught(lab, seed, inferred, losses.classification, 5e-4),
        "S-BERT cosine": taught(lab, seed, train, sentence.cosine_regression, 5e-4, best=5.0),
    }

    def sts(cosines: list[float]) -> float:
        return 100 * metrics.spearman(cosines, [row["label"] for row in test])

    said = [(set(words(row["text"])), set(words(row["pair"]))) for row in test]
    values = {"STS/shared words": sts([len(a & b) / len(a | b) for a, b in said])}
    for name, embedder in systems.items():
        vectors = encode(
            embedder, [row[side] for side in ("text", "pair") for row in test], batch=64
        )
        for kind, x in (("STS", vectors), ("mean taken out", vectors - vectors.mean(0))):
            values[f"{kind}/{name}"] = sts(sentence.cosines(*x.chunk(2)).tolist())
    return values


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
    lessons = collection("world", split="train", n=size[2], seed=seed)
    shelf = collection("world", split="test", n=size[3], seed=seed)
    asked = [query.text for query in shelf.queries]

    def ranked(index: Index, how: Any) -> list[list[int]]:
        return [[hit.number for hit in hits] for hits in index.search_all(asked, how=how)]

    tfidf = TfidfVectorizer(tokenizer=words, token_pattern=None).fit(shelf.passages)
    close = (tfidf.transform(asked) @ tfidf.transform(shelf.passages).T).toarray()
    searcher = taught(lab, seed, lessons.pairs(), sentence.ranking, 1e-3)
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


@experiment("sbert-triplet")
def sbert_triplet(lab: Lab, seed: int) -> dict[str, float]:
    """How many values, and gradients by anchor, positive and negative, agree with the formula."""
    triplets = torch.randn(3, 500, 1, 8, generator=seeded_generator(seed), dtype=torch.float64)
    values, slopes = [], []
    for triplet in triplets.unbind(1):
        parts = [part.clone().requires_grad_() for part in triplet]
        values.append(triplet_loss(parts[0], parts[1], parts[2], 1.0))
        slopes.append(torch.cat(torch.autograd.grad(values[-1], parts)))
    near, far = (triplets[0] - triplets[i] for i in (1, 2))
    pull, push = (side / side.norm(dim=-1, keepdim=True) for side in (near, far))
    loss = (near.norm(dim=-1) - far.norm(dim=-1) + 1.0)[:, 0]
    slope = torch.cat((pull - push, -pull, push), dim=1) * (loss > 0)[:, None, None]
    value, given = torch.stack(values).detach(), torch.stack(slopes)
    idle = (value == 0) & (given == 0).all(dim=(1, 2))
    return {
        "triplets": len(values),
        "values that agree": float(((value - loss.clamp(min=0)).abs() < 1e-12).sum()),
        "gradients that agree": float(((given - slope).abs() < 1e-12).all(dim=(1, 2)).sum()),
        "margin held": float((loss <= 0).sum()),
        "of these without loss and gradient": float((idle & (loss <= 0)).sum()),
    }
