"""The claims of lesson 15: ways to make one vector of a sentence, and search by vectors."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import data, losses, metrics, optim, zoo
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.record import Figures
from course_lib.data.searches import KINDS, collection
from course_lib.experiments import family
from course_lib.experiments.judging import clearly_above, gap, names
from course_lib.losses import Loss
from course_lib.models import sentence
from course_lib.models.sentence import Embedder, Sentence, SentenceEncoder, TextBatches, WordAverage, encode
from course_lib.search import FingerprintedEmbedder, Index, best, words
from course_lib.train import train

BODY, STATIC = "bert-mini", ("glove-mini", "word2vec-mini")
SIZES = {  # graded pairs to train and to test on, documents to train and to search in, steps
    "smoke": (60, 60, 40, 25, 2),
    "cpu": (3000, 1000, 1500, 200, 100),
    "gpu": (10_000, 3000, 10_000, 1000, 1000),
}
UNTRAINED = ("avg GloVe", "avg BERT", "BERT CLS")
TRAINED = "S-BERT softmax"
CONFIG = {
    "graded pairs (train, test), documents (train, test), steps": SIZES,
    "checkpoints": family.shipped(BODY, *STATIC),
}


class Reader:
    """A seed's shipped body, the static vectors, and what trains a copy of the body on pairs."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.seed, self.size = lab, seed, SIZES[lab.plan.scale]
        model, self.tokenizer, _ = zoo.load(BODY)
        self.body = model.stack.to(lab.device).eval()
        static = [zoo.load(name).model for name in STATIC]
        self.static: dict[str, WordAverage] = {
            name: WordAverage(vectors.numbers, vectors.matrix)
            for name, vectors in zip(("avg GloVe", "avg word2vec"), static, strict=True)
        }

    def encoder(self, model: Sentence) -> SentenceEncoder:
        """Texts to vectors."""
        return SentenceEncoder(model.eval(), self.tokenizer)

    def taught(self, model: nn.Module, rows: Sequence[Any], loss: Loss, lr: float, best: float | None = None) -> None:
        """Train a model on pairs."""
        steps = self.size[-1]
        batches = TextBatches(rows, self.tokenizer, batch=32, seed=self.seed, max_length=72, best=best)
        schedule, optimizer = optim.stable(steps, steps // 8 + 1, 0.5), optim.adamw(model, lr)
        for _ in train(model, batches, loss, optimizer, schedule, steps=steps, device=self.lab.device):
            pass

    def fresh(self) -> Sentence:
        """A copy of the body with mean pooling."""
        torch.manual_seed(self.seed)
        return Sentence(deepcopy(self.body))


def overlap(a: str, b: str) -> float:
    """The share of words that two texts have in common."""
    first, second = set(words(a)), set(words(b))
    return len(first & second) / len(first | second)


def _pooling(f: Figures) -> tuple[str, str]:
    def ahead(a: str, b: str) -> bool:
        return clearly_above(f, f"STS/{a}", f"STS/{b}")

    statements = [
        ahead("avg GloVe", "avg BERT"),
        ahead("avg BERT", "BERT CLS"),
        all(ahead(TRAINED, other) for other in UNTRAINED),
    ]
    said = ", ".join(f"{name} {f[f'STS/{name}'].mean:.0f}" for name in names(f, "STS"))
    verdict = "reproduced" if all(statements) else "partly" if any(statements) else "not at this scale"
    told = ("static above averaged BERT", "averaged BERT above CLS", "S-BERT above all three")
    held = [name for name, holds in zip(told, statements, strict=True) if holds]
    return verdict, f"Spearman's correlation times 100: {said}. Of three statements hold: {', '.join(held) or 'none'}."


@experiment(
    "sbert-pooling",
    rule="""Three statements: averaged GloVe is above averaged BERT; averaged BERT is above CLS; S-BERT, by the softmax
    objective as in the paper's table, is above all three. A statement holds if the 95% interval of the paired
    difference lies above zero. Reproduced if all three hold; partly if one or two do; otherwise not at this scale.
    S-BERT by cosines, which has seen graded pairs, shared words, and correlations after the mean vector is taken out
    are recorded and not judged.""",
    judge=_pooling,
    config=CONFIG,
)
def sbert_pooling(lab: Lab, seed: int) -> dict[str, float]:
    """Spearman's correlation times 100 with the grades of the town's pairs, by system."""
    reader = Reader(lab, seed)
    counts = dict(zip(("train", "test"), reader.size[:2], strict=True))
    graded = {part: list(data.task("world/similarity", split=part, n=n, seed=seed)) for part, n in counts.items()}
    grades = [row["label"] for row in graded["test"]]
    systems: dict[str, Embedder] = dict(reader.static)
    for name, pool in (("avg BERT", "mean"), ("BERT max", "max"), ("BERT CLS", "first")):
        systems[name] = reader.encoder(Sentence(reader.body, pool))  # type: ignore[arg-type]
    inferred = [
        row | {"label": 0 if row["label"] >= 3.5 else 1 if row["label"] >= 1.5 else 2} for row in graded["train"]
    ]
    classifier = sentence.PairClassifier(reader.fresh(), 3)
    reader.taught(classifier, inferred, losses.classification, 5e-4)
    by_cosine = reader.fresh()
    reader.taught(by_cosine, graded["train"], sentence.cosine_regression, 5e-4, best=5.0)
    systems |= {TRAINED: reader.encoder(classifier.sentence), "S-BERT cosine": reader.encoder(by_cosine)}
    first, second = ([row[side] for row in graded["test"]] for side in ("text", "pair"))

    def sts(vectors: Tensor) -> float:
        """Of the vectors of all first and all second texts."""
        return 100 * metrics.spearman(sentence.cosines(*vectors.chunk(2)).tolist(), grades)

    shared = metrics.spearman([overlap(*pair) for pair in zip(first, second, strict=True)], grades)
    values = {"STS/shared words": 100 * shared}
    for name, embedder in systems.items():
        vectors = encode(embedder, [*first, *second], batch=64)
        values |= {f"STS/{name}": sts(vectors), f"mean taken out/{name}": sts(vectors - vectors.mean(0))}
    return values


HARDEST, OWN = KINDS[-1], "S-BERT"
OTHERS = ("BM25", "TF-IDF", "avg word2vec", "avg GloVe")


def _retrieval(f: Figures) -> tuple[str, str]:
    hard = all(clearly_above(f, f"MRR, {HARDEST}/{OWN}", f"MRR, {HARDEST}/{other}") for other in OTHERS)
    both = all(clearly_above(f, "MRR, all/hybrid", f"MRR, all/{other}") for other in ("BM25", OWN))
    said = "; ".join(
        f"{kind}: "
        + ", ".join(f"{name} {100 * f[f'MRR, {kind}/{name}'].mean:.0f}" for name in (*OTHERS, OWN, "hybrid"))
        for kind in (*KINDS, "all")
    )
    lead = gap(f, "MRR, all/hybrid", f"MRR, all/{OWN}")
    return "reproduced" if hard and both else "partly" if hard or both else "not at this scale", (
        f"MRR times 100 by kind of query: {said}. Vectors are {'' if hard else 'not '}ahead where no word is shared; "
        f"the hybrid is {'' if both else 'not '}ahead of both over all queries (of S-BERT by {100 * lead.mean:.0f})."
    )


@experiment(
    "dense-retrieval",
    rule="""Two statements. (1) For queries that share no word with their passage, S-BERT's reciprocal rank is above
    those of BM25, TF-IDF and both averaged word vectors. (2) Over all queries, the hybrid is above both BM25 and
    S-BERT. Each with 95% intervals of the paired differences above zero. Reproduced if both hold; partly if one does;
    otherwise not at this scale.""",
    judge=_retrieval,
    config=CONFIG,
)
def dense_retrieval(lab: Lab, seed: int) -> dict[str, float]:
    """Mean reciprocal rank and nDCG of the first ten places, by system and kind of query."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    reader = Reader(lab, seed)
    *_, documents, held, _ = reader.size
    lessons = collection("world", split="train", n=documents, seed=seed)
    shelf = collection("world", split="test", n=held, seed=seed)
    searcher = reader.fresh()
    reader.taught(searcher, lessons.pairs(), sentence.ranking, 1e-3)
    asked = [query.text for query in shelf.queries]

    def ranked(index: Index, how: Any) -> list[list[int]]:
        return [[hit.number for hit in hits] for hits in index.search_all(asked, how=how)]

    tfidf = TfidfVectorizer(tokenizer=words, token_pattern=None).fit(shelf.passages)
    close = (tfidf.transform(asked) @ tfidf.transform(shelf.passages).T).toarray()
    index = Index.build(shelf.passages, embedder=reader.encoder(searcher), batch=64)
    found = {"BM25": ranked(index, "bm25"), OWN: ranked(index, "dense"), "hybrid": ranked(index, "rrf")}
    found["TF-IDF"] = [best(np.where(row > 0, row, -np.inf).astype(np.float32), 10).tolist() for row in close]
    plain: dict[str, FingerprintedEmbedder] = {"avg BERT": reader.encoder(Sentence(reader.body)), **reader.static}
    for name, embedder in plain.items():
        found[name] = ranked(Index.build(shelf.passages, embedder=embedder, batch=64), "dense")
    values: dict[str, float] = {}
    for kind in (*KINDS, "all"):
        at = [i for i, query in enumerate(shelf.queries) if kind in (query.kind, "all")]
        right = [shelf.queries[i].answers for i in at]
        for name, rankings in found.items():
            chosen = [rankings[i] for i in at]
            values[f"MRR, {kind}/{name}"] = metrics.mrr(chosen, right)
            values[f"nDCG, {kind}/{name}"] = metrics.ndcg(chosen, right, k=10)
    return values
