"""The claims of lesson 15: sentence vectors, and search by them."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

from classroom import lesson, rivals
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
from course_lib.training.finetune import FinetuneConfig, FineTuned, finetune
from lab.lessons import Lab, experiment, fit, given, linear_config
from lab.real import embedders, graded, parts, search
from lab.real.search import Collection, Ranking, fused, stems

BODY, STATIC = "bert-mini", {"avg GloVe": "glove-mini", "avg word2vec": "word2vec-mini"}
SIZES: dict[str, dict[str, int]] = given("sbert")["sizes"]
OWN = "S-BERT"
PARTS: dict[str, int] = given("sbert")["parts"]
SEARCH: dict[str, dict[str, Any]] = given("sbert")["search"]


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
        overlaps = [rivals.shared_words(pair.first, pair.second) for pair in some]
        values[f"{name}/shared words"] = metrics.spearman(overlaps, grades)
        for kind, encoder in encoders.items():
            values[f"{name}/{kind}"] = sts(encoder, firsts, seconds, grades)
    return values


Shelf = tuple[Collection, dict[str, list[Ranking]]]  # with what each search finds for each query


@cache
def shelves(xquad: Path) -> dict[str, Shelf]:
    """The three collections, searched by words, by vectors and by both; made once a process."""
    encoders = {
        "sbert-english": lesson.sentence_encoder("sbert-english"),
        "MiniLM": zoo.public("minilm").sentence_encoder(),
    }
    collections = {
        "paragraphs": search.of_squad(xquad, sentences=False),
        "sentences": search.of_squad(xquad, sentences=True),
        "ours": search.of_course(),
    }
    found = {}
    for name, texts in collections.items():
        rankings = search.ranked(texts, encoders)
        pairs = zip(rankings["BM25"], rankings["MiniLM"], strict=True)
        found[name] = texts, rankings | {"joined": [fused(pair) for pair in pairs]}
    return found


def divided(texts: Collection, seed: int, size: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The numbers of the queries to learn from and to test: those of other articles.

    The first articles are for the choice of a learning rate, which seeds of 100 and above test.
    """
    titles = sorted(set(texts.groups))
    if seed >= 100:
        tested = set(titles[: size["pilot"]])
    else:
        tested = set(titles[size["pilot"] + seed % size["parts"] :: size["parts"]])
    numbers = range(len(texts.queries))
    learned = [number for number in numbers if texts.groups[number] not in tested]
    return learned, [number for number in numbers if texts.groups[number] in tested]


def cross_encoder(lab: Lab, shelf: Shelf, seed: int, lr: float) -> FineTuned:
    """MiniLM, tuned to choose the right sentence among those that BM25 and its own vectors find."""
    size = SEARCH[lab.plan.scale]
    texts, rankings = shelf
    learned, _ = divided(texts, seed, size)
    found = [rankings["BM25"], rankings["MiniLM"]]
    rows = search.hard_rows(texts, found, learned, size["negatives"])
    rows = random.Random(seed).sample(rows, min(size["rows"], len(rows)))
    config = FinetuneConfig(
        pool="mean",
        epochs=1,
        batch=8,
        lr=lr,
        seed=seed,
        dropout=0.1,
        precision="auto",
        device=lab.device,
    )
    model, tokenizer, _ = zoo.public("minilm").load()
    return finetune(model, {"train": rows, "test": rows[:8]}, tokenizer, config)


@experiment("search-by-meaning")
def search_by_meaning(lab: Lab, seed: int) -> dict[str, float]:
    """Mean reciprocal rank and the share of right first places, by collection and search, on a
    part of the queries.
    """
    size = SEARCH[lab.plan.scale]
    found = shelves(lab.public_data("xquad_en") / "xquad.en.json")
    tuned = cross_encoder(lab, found["sentences"], seed, size["lr"])
    values: dict[str, float] = {}
    for name, (texts, rankings) in found.items():
        _, asked = divided(texts, seed, size)
        if name == "ours":
            asked = parts.part(range(len(texts.queries)), seed, size["parts"])
        chosen = {kind: [ranking[n] for n in asked] for kind, ranking in rankings.items()}
        if name != "paragraphs":
            chosen["cross-encoder"] = [
                search.sorted_again(tuned, texts.queries[n], first, texts.passages)
                for n, first in zip(asked, chosen["MiniLM"], strict=True)
            ]
        right = [texts.answers[n] for n in asked]
        for kind, ranking in chosen.items():
            values[f"MRR, {name}/{kind}"] = metrics.mrr(ranking, right)
            values[f"first, {name}/{kind}"] = metrics.mrr(ranking, right, k=1)
    return values
