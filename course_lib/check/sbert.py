"""Checks of lesson 15: mean pooling, the triplet loss, in-batch negatives, BM25, the fusion of two rankings."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

Rankings = Sequence[Sequence[int]]


def mean_pool(fn: object) -> Verdict:
    """`fn(x, keep)` -> the mean of each text's real tokens; x [B T D], keep Bool[B T], True = a real token."""
    cases: list[Case] = [
        {"x": torch.randn(len(lengths), max(lengths), 4, generator=rng(i)), "keep": _keep(lengths)}
        for i, lengths in enumerate([(5, 2, 3), (1, 4), (3, 3, 6, 2)])
    ]

    def test() -> str:
        compare(fn, cases, _mean_pool, _POOL_MISTAKES)
        return "texts of one to six tokens, with padding and without"

    return report("mean_pool", test)


def triplet_loss(fn: object) -> Verdict:
    """`fn(anchor, positive, negative, margin)` -> mean of max(|a - p| - |a - n| + margin, 0); all three [B E]."""
    cases: list[Case] = []
    for i, (rows, margin) in enumerate([(6, 1.0), (8, 0.3), (4, 2.5)]):
        anchor, positive, negative = torch.randn(3, rows, 5, generator=rng(i)).unbind(0)
        near = anchor + torch.linspace(0.1, 1.0, rows)[:, None] * positive  # some triplets hold the margin, some do not
        cases.append({"anchor": anchor, "positive": near, "negative": negative, "margin": margin})
    far: Case = {"anchor": torch.zeros(2, 3), "positive": torch.eye(3)[:2], "negative": 9 * torch.eye(3)[:2]}
    cases.append({**far, "margin": 1.0})

    def test() -> str:
        compare(fn, cases, _triplet, _TRIPLET_MISTAKES)
        return "three margins, triplets inside and beyond them, and a batch without any loss"

    return report("triplet_loss", test)


def in_batch_loss(fn: object) -> Verdict:
    """`fn(queries, texts, scale)` -> cross-entropy of each query's own text among all of the batch; both [B E]."""
    cases: list[Case] = []
    for i, (rows, scale) in enumerate([(4, 20.0), (6, 5.0), (3, 1.0)]):
        queries = torch.randn(rows, 5, generator=rng(i)) * torch.arange(1, rows + 1)[:, None]
        texts = queries + 2 * torch.randn(rows, 5, generator=rng(10 + i))
        cases.append({"queries": queries, "texts": texts, "scale": scale})

    def test() -> str:
        compare(fn, cases, _in_batch, _BATCH_MISTAKES)
        return "batches of three, four and six, vectors of many lengths, three scales"

    return report("in_batch_loss", test)


def bm25_weight(fn: object) -> Verdict:
    """`fn(count, holding, n, length, mean_length, k1, b)` -> what one word of the query adds to a document's score."""
    names = ("count", "holding", "n", "length", "mean_length", "k1", "b")
    rows = [(1, 3, 10, 8, 12.5, 1.2, 0.75), (4, 9, 10, 30, 12.5, 1.2, 0.75), (2, 1, 500, 7, 6.0, 2.0, 0.3)]
    rows += [(0, 4, 20, 9, 9.0, 1.2, 0.75), (3, 5, 40, 20, 10.0, 0.9, 0.0)]
    cases: list[Case] = [dict(zip(names, row, strict=True)) for row in rows]

    def test() -> str:
        compare(fn, cases, _bm25, _BM25_MISTAKES)
        return "rare and frequent words, short and long documents, a word that is not there"

    return report("bm25_weight", test)


def fuse_ranks(fn: object) -> Verdict:
    """`fn(rankings, k)` -> documents by the sum of 1 / (k + rank), best first, equal ones by number."""
    cases: list[Case] = [
        {"rankings": [[3, 1, 2, 0], [2, 0, 3]], "k": 60},
        {"rankings": [[0, 1, 2, 3, 4], [3, 2, 1, 4, 0]], "k": 1},
        {"rankings": [[5, 4], [], [4, 7, 5]], "k": 5},
        {"rankings": [[8, 1, 5, 2, 6], [6, 2, 1, 7, 8], [7, 5, 9]], "k": 0.5},
        {"rankings": [[1, 2, 3, 4, 5, 6, 9], [8, 7, 6, 5, 4, 9, 1]], "k": 3},
    ]

    def test() -> str:
        compare(fn, cases, _fuse, _FUSE_MISTAKES)
        return "two and three rankings, empty ones, documents that only one of them found, several k"

    return report("fuse_ranks", test)


# --- pooling ------------------------------------------------------------------------------------------------------


def _keep(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _mean_pool(x: Tensor, keep: Tensor) -> Tensor:
    return (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


_POOL_MISTAKES = [
    Mistake(
        "The padding is in the mean: a text's vector would depend on what else is in its batch. Use keep.",
        lambda x, keep: x.mean(1),
    ),
    Mistake(
        "The padding is left out of the sum but counted in the divisor; divide by keep.sum(1), the real tokens.",
        lambda x, keep: (x * keep[..., None]).mean(1),
    ),
    Mistake(
        "The divisor counts the real tokens, but the padding is in the sum.",
        lambda x, keep: x.sum(1) / keep.sum(1, keepdim=True),
    ),
    Mistake("This is the sum of the real tokens, not their mean.", lambda x, keep: (x * keep[..., None]).sum(1)),
    Mistake("This is the first token's vector (CLS pooling).", lambda x, keep: x[:, 0]),
    Mistake(
        "This is the maximum (max pooling); the mean is asked for.",
        lambda x, keep: x.masked_fill(~keep[..., None], -math.inf).amax(1),
    ),
    Mistake(
        "The mask is the wrong way round: this is the mean of the padding.",
        lambda x, keep: (x * ~keep[..., None]).sum(1) / (~keep).sum(1, keepdim=True),
    ),
    Mistake(
        "One vector for the whole batch; each text has its own, so sum over the tokens only (dim 1).",
        lambda x, keep: x[keep].mean(0),
    ),
]


# --- losses -------------------------------------------------------------------------------------------------------


def _distance(u: Tensor, v: Tensor) -> Tensor:
    apart: Tensor = (u - v).norm(dim=-1)
    return apart


def _triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    return F.relu(_distance(anchor, positive) - _distance(anchor, negative) + margin).mean()


_TRIPLET_MISTAKES = [
    Mistake(
        "Without max(..., 0) a triplet that holds its margin is pulled on, and pays for others that do not.",
        lambda a, p, n, m: (_distance(a, p) - _distance(a, n) + m).mean(),
    ),
    Mistake(
        "max(..., 0) is taken of the batch's mean; each triplet has its own, then comes the mean.",
        lambda a, p, n, m: F.relu((_distance(a, p) - _distance(a, n) + m).mean()),
    ),
    Mistake(
        "Positive and negative are exchanged: this pushes the positive away.",
        lambda a, p, n, m: F.relu(_distance(a, n) - _distance(a, p) + m).mean(),
    ),
    Mistake(
        "The distances are squared; the formula has the lengths themselves.",
        lambda a, p, n, m: F.relu(_distance(a, p) ** 2 - _distance(a, n) ** 2 + m).mean(),
    ),
    Mistake(
        "The margin is missing: a negative that is farther by nothing at all would do.",
        lambda a, p, n, m: F.relu(_distance(a, p) - _distance(a, n)).mean(),
    ),
    Mistake(
        "The margin is subtracted: then the negative may even be nearer. It is added.",
        lambda a, p, n, m: F.relu(_distance(a, p) - _distance(a, n) - m).mean(),
    ),
    Mistake(
        "The triplets' losses are added up; the mean is asked for.",
        lambda a, p, n, m: F.relu(_distance(a, p) - _distance(a, n) + m).sum(),
    ),
    Mistake(
        "One loss for the batch is asked for: the mean over the triplets.",
        lambda a, p, n, m: F.relu(_distance(a, p) - _distance(a, n) + m),
    ),
    Mistake(
        "The second distance is from the positive to the negative; both are measured from the anchor.",
        lambda a, p, n, m: F.relu(_distance(a, p) - _distance(p, n) + m).mean(),
    ),
    Mistake(
        "These are cosines, which grow as texts come nearer; the formula has distances.",
        lambda a, p, n, m: F.relu(F.cosine_similarity(a, p) - F.cosine_similarity(a, n) + m).mean(),
    ),
]


def _cosines(queries: Tensor, texts: Tensor) -> Tensor:
    return F.normalize(queries, dim=-1) @ F.normalize(texts, dim=-1).T


def _own(logits: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits, torch.arange(len(logits)), reduction=reduction)


def _in_batch(queries: Tensor, texts: Tensor, scale: float) -> Tensor:
    return _own(scale * _cosines(queries, texts))


_BATCH_MISTAKES = [
    Mistake(
        "The vectors are not brought to length 1, so these are products, not cosines; long vectors win.",
        lambda q, t, s: _own(s * q @ t.T),
    ),
    Mistake(
        "The scale is missing: between cosines of -1 and 1 the softmax can hardly choose.",
        lambda q, t, s: _own(_cosines(q, t)),
    ),
    Mistake(
        "The cosines are divided by the scale; they are multiplied by it (a temperature would divide).",
        lambda q, t, s: _own(_cosines(q, t) / s),
    ),
    Mistake(
        "The softmax runs over the queries of each text; here each query chooses among the texts.",
        lambda q, t, s: _own(s * _cosines(q, t).T),
    ),
    Mistake(
        "The right text of query i is text i, not always the first: torch.arange(B).",
        lambda q, t, s: F.cross_entropy(s * _cosines(q, t), torch.zeros(len(q), dtype=torch.long)),
    ),
    Mistake("The losses are added up; the mean is asked for.", lambda q, t, s: _own(s * _cosines(q, t), "sum")),
    Mistake(
        "One loss for the batch is asked for: the mean over the queries.",
        lambda q, t, s: _own(s * _cosines(q, t), "none"),
    ),
    Mistake(
        "The queries are compared with each other; the columns are the texts.", lambda q, t, s: _own(s * _cosines(q, q))
    ),
    Mistake(
        "Only the right pairs are looked at; without the others of the batch there is nothing to choose between.",
        lambda q, t, s: -(s * F.cosine_similarity(q, t)).mean(),
    ),
    Mistake(
        "The softmax is taken before cross_entropy, which takes one itself: give it the scaled cosines.",
        lambda q, t, s: _own((s * _cosines(q, t)).softmax(-1)),
    ),
]


# --- search -------------------------------------------------------------------------------------------------------


def _idf(holding: int, n: int) -> float:
    return math.log(1 + (n - holding + 0.5) / (holding + 0.5))


def _bm25(count: int, holding: int, n: int, length: int, mean: float, k1: float, b: float) -> float:
    return _idf(holding, n) * count / (count + k1 * (1 - b + b * length / mean))


_BM25_MISTAKES = [
    Mistake(
        "The idf is missing: a word that stands everywhere would count as much as a rare one.",
        lambda c, h, n, w, m, k, b: c / (c + k * (1 - b + b * w / m)),
    ),
    Mistake(
        "The 1 + inside the logarithm is missing: a word in more than half of the documents would count against them.",
        lambda c, h, n, w, m, k, b: math.log((n - h + 0.5) / (h + 0.5)) * c / (c + k * (1 - b + b * w / m)),
    ),
    Mistake(
        "This idf is ln(n / holding), TF-IDF's; BM25 has ln(1 + (n - holding + 0.5) / (holding + 0.5)).",
        lambda c, h, n, w, m, k, b: math.log(n / h) * c / (c + k * (1 - b + b * w / m)),
    ),
    Mistake(
        "The count is not saturated: a word ten times counts ten times. Divide by count + k1 (...).",
        lambda c, h, n, w, m, k, b: _idf(h, n) * c / (k * (1 - b + b * w / m)),
    ),
    Mistake(
        "This is the plain count times the idf, TF-IDF; the saturation and the length are missing.",
        lambda c, h, n, w, m, k, b: _idf(h, n) * c,
    ),
    Mistake(
        "The document's length is missing: 1 - b + b length / mean_length stands behind k1.",
        lambda c, h, n, w, m, k, b: _idf(h, n) * c / (c + k),
    ),
    Mistake(
        "The ratio of the lengths is upside down: long documents are to be marked down, so length / mean_length.",
        lambda c, h, n, w, m, k, b: _idf(h, n) * c / (c + k * (1 - b + b * m / w)),
    ),
    Mistake(
        "b and 1 - b are exchanged: b is the share of the length, 1 - b stays.",
        lambda c, h, n, w, m, k, b: _idf(h, n) * c / (c + k * (b + (1 - b) * w / m)),
    ),
    Mistake(
        "The factor k1 + 1 of older texts changes no ranking; here it is left out.",
        lambda c, h, n, w, m, k, b: _idf(h, n) * c * (k + 1) / (c + k * (1 - b + b * w / m)),
    ),
    Mistake(
        "The logarithm is to base 2; take the natural one, math.log.",
        lambda c, h, n, w, m, k, b: _idf(h, n) / math.log(2) * c / (c + k * (1 - b + b * w / m)),
    ),
]


def _fused(rankings: Rankings, worth: dict[int, float]) -> list[int]:
    return sorted(worth, key=lambda document: (-worth[document], document))


def _fuse(rankings: Rankings, k: float, first: int = 1) -> list[int]:
    worth: dict[int, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=first):
            worth[document] = worth.get(document, 0.0) + 1 / (k + rank)
    return _fused(rankings, worth)


def _best_only(rankings: Rankings, k: float) -> list[int]:
    worth: dict[int, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            worth[document] = max(worth.get(document, 0.0), 1 / (k + rank))
    return _fused(rankings, worth)


def _in_all(rankings: Rankings, k: float) -> list[int]:
    return [document for document in _fuse(rankings, k) if all(document in ranking for ranking in rankings)]


def _rank_sum(rankings: Rankings, k: float) -> list[int]:
    worth: dict[int, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            worth[document] = worth.get(document, 0.0) + rank
    return sorted(worth, key=lambda document: (worth[document], document))


_FUSE_MISTAKES = [
    Mistake("The worst stand in front: a large sum is a good one.", lambda r, k: _fuse(r, k)[::-1]),
    Mistake("k is missing: the first place of one ranking would outweigh all else.", lambda r, k: _fuse(r, 0)),
    Mistake("Ranks are counted from 1: the best document adds 1 / (k + 1).", lambda r, k: _fuse(r, k, first=0)),
    Mistake("Each document gets its best rank only; add up over the rankings.", _best_only),
    Mistake("A document that one ranking did not find is lost; it keeps what the others give it.", _in_all),
    Mistake(
        "The ranks themselves are added up, so that a document found only once looks best; add up 1 / (k + rank).",
        _rank_sum,
    ),
    Mistake("This is the first ranking alone.", lambda r, k: list(r[0])),
    Mistake(
        "The rankings stand one behind the other, not fused.",
        lambda r, k: list(dict.fromkeys(document for ranking in r for document in ranking)),
    ),
]
