"""Collections in which one searches, what a search finds, and a cross-encoder that sorts it again.

found = Searched(collection)
found.rankings["MiniLM"][3]     numbers of the passages that MiniLM found for query 3, best first
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from gensim.parsing.porter import PorterStemmer  # type: ignore[import-untyped]

from course_lib.analysis.retrieval import Index
from course_lib.data.embedders import Embedder, words
from course_lib.files import DATA, read_json
from course_lib.model.modes import evaluating
from course_lib.training.fine_tuned import FineTuned

FIRST = 10  # places of a ranking
# Between two sentences.
END = re.compile(r"(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)\s+(?=[A-Z\"'])")
Ranking = list[int]  # numbers of passages, best first


@dataclass(frozen=True)
class Collection:
    """Passages, and queries for them.

    Attributes:
        passages: the texts in which one searches, all different.
        queries: what is asked.
        answers: of each query the numbers of the right passages.
        groups: of each query the article that it is about; "" where there are no articles.
    """

    passages: list[str]
    queries: list[str]
    answers: list[set[int]]
    groups: list[str]


def of_course() -> Collection:
    """The 200 paragraphs and 100 queries that were written for the course."""
    folder = DATA / "tasks" / "search"
    paragraphs = _json_lines(folder / "paragraphs.jsonl")
    numbers = {row["id"]: number for number, row in enumerate(paragraphs)}
    queries = _json_lines(folder / "queries.jsonl")
    return Collection(
        passages=[row["text"] for row in paragraphs],
        queries=[row["query"] for row in queries],
        answers=[{numbers[name] for name in row["relevant"]} for row in queries],
        groups=[""] * len(queries),
    )


def _json_lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def of_squad(file: Path, *, sentences: bool) -> Collection:
    """The questions of a file in SQuAD's format, and the passage that holds each answer.

    Args:
        file: JSON, version 1.1.
        sentences: one searches for the sentence; otherwise for the paragraph. A question whose
            answer crosses the end of a sentence is left out.
    """
    passages: dict[str, int] = {}
    found = Collection([], [], [], [])
    for article in read_json(file)["data"]:
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            spans = _sentences(text) if sentences else [(0, len(text))]
            for start, end in spans:
                passages.setdefault(text[start:end], len(passages))
            for asked in paragraph["qas"]:
                first = asked["answers"][0]["answer_start"]
                last = first + len(asked["answers"][0]["text"])
                for start, end in spans:
                    if start <= first and last <= end:
                        found.queries.append(asked["question"])
                        found.answers.append({passages[text[start:end]]})
                        found.groups.append(article["title"])
    found.passages.extend(passages)
    return found


def _sentences(text: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends."""
    starts = [0]
    ends = []
    for gap in END.finditer(text):
        ends.append(gap.start())
        starts.append(gap.end())
    return list(zip(starts, [*ends, len(text)], strict=True))


def stems(texts: Sequence[str]) -> list[str]:
    """Texts of their words' stems (Porter)."""
    porter = PorterStemmer()
    return [" ".join(porter.stem(word) for word in words(text)) for text in texts]


def fused(rankings: Sequence[Ranking]) -> Ranking:
    """The first ten of several rankings of ten by the sum of 1 / (60 + rank)."""
    score: Counter[int] = Counter()
    for ranking in rankings:
        score.update({number: 1 / (60 + place) for place, number in enumerate(ranking, start=1)})
    return [number for number, _ in score.most_common(FIRST)]


def ranked(collection: Collection, embedders: Mapping[str, Embedder]) -> dict[str, list[Ranking]]:
    """What is found first for each query: by BM25 of stems, by each embedder's cosines."""
    roots = Index(stems(collection.passages))
    hits = {"BM25": roots.search_all(stems(collection.queries), FIRST)}
    for name, embedder in embedders.items():
        index = Index(collection.passages, embedder=embedder)
        hits[name] = index.search_all(collection.queries, FIRST, how="dense")
    return {
        name: [[hit.number for hit in of_query] for of_query in found]
        for name, found in hits.items()
    }


def hard_rows(
    collection: Collection,
    rankings: Sequence[Sequence[Ranking]],
    queries: Sequence[int],
    negatives: int,
) -> list[dict[str, object]]:
    """Training rows of a cross-encoder: a query, its passage, and wrong ones that were found first.

    Args:
        collection: queries and passages.
        rankings: of several searches. They take turns in giving a wrong passage.
        queries: the numbers of the queries to learn from. Only their passages are negatives, so
            that a passage that never answers does not give itself away.
        negatives: wrong passages of a row.
    """
    known = {number for query in queries for number in collection.answers[query]}
    rows: list[dict[str, object]] = []
    for query in queries:
        right = min(collection.answers[query])
        wrong: dict[int, None] = {}  # used as a set that keeps its order
        for numbers in zip(*(ranking[query] for ranking in rankings), strict=False):
            wrong |= dict.fromkeys(
                n for n in numbers if n in known and n not in collection.answers[query]
            )
        if len(wrong) >= negatives:
            chosen = [right, *list(wrong)[:negatives]]
            texts = [collection.passages[number] for number in chosen]
            rows.append({"text": collection.queries[query], "choices": texts, "label": 0})
    return rows


@torch.no_grad()
def sorted_again(
    tuned: FineTuned, query: str, ranking: Ranking, passages: Sequence[str]
) -> Ranking:
    """A ranking in the order of a cross-encoder's scores.

    Args:
        tuned: reads a query together with a passage, trained on rows as of `hard_rows`.
        query: what is asked.
        ranking: what was found.
        passages: of the collection.
    """
    texts = [passages[number] for number in ranking]
    row = {"text": query, "choices": texts, "label": 0}
    batch = tuned.frame.collate(tuned.frame.rows([row]))
    device = next(tuned.model.parameters()).device
    inputs = {name: value.to(device) for name, value in batch.items() if name != "labels"}
    with evaluating(tuned.model):
        scores = tuned.model(**inputs)[0].tolist()
    order = sorted(range(len(ranking)), key=lambda place: -scores[place])
    return [ranking[place] for place in order]
