"""The claim of lesson 04: one vector a word mixes its senses."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib import zoo
from course_lib.analysis import probing
from course_lib.data.columns import Row
from course_lib.families import elmo, word_vectors
from experiments.lessons import Lab, experiment, given, small_models, town
from experiments.lessons.embeddings import senses

SIZES: dict[str, dict[str, int]] = given("word_embeddings")["sizes"]
METHODS = ("skip-gram", "CBOW", "GloVe")
# sense -> word -> share of the sense's sentences in which it stands
_Senses = dict[str, dict[str, float]]
# rows, side -> the word's vectors, Float[layers N F]
Embed = Callable[[Sequence[Row], str], Tensor]


def company(
    sentences: Sequence[tuple[list[str], list[str | None]]], known: Sequence[str]
) -> dict[str, _Senses]:
    """Of each known word of several senses, for each of these: in which share of its sentences
    another word stands.
    """
    seen, beside = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for words, marks in sentences:
        for sense in filter(None, marks):
            seen[sense] += 1
            beside[sense].update(set(words))
    shares = {
        sense: {word: n / seen[sense] for word, n in beside[sense].items()}
        for sense in sorted(seen)
    }
    found = {
        word: {s: shares[s] for s in group}
        for word, group in groupby(shares, lambda sense: sense.split("/")[0])
    }
    return {
        word: senses for word, senses in found.items() if len(senses) > 1 and word in set(known)
    }


def sense_of(neighbour: str, senses: _Senses) -> str:
    """The sense that a neighbour speaks for: it stands in one of twenty of its sentences at least,
    and more than twice as often as in those of any other; "" if for none."""
    shares = sorted(
        ((there.get(neighbour, 0.0), sense) for sense, there in senses.items()), reverse=True
    )
    (best, sense), (second, _) = shares[:2]
    return sense if best >= 0.05 and best > 2 * second else ""


def learned(
    text: word_vectors.CountedText, sizes: Mapping[str, int], seed: int
) -> dict[str, word_vectors.WordVectors]:
    """The vectors of the three methods."""
    size = {"size": sizes["size"], "seed": seed}
    word2vec = {**size, "epochs": sizes["epochs"]}
    models: tuple[word_vectors.Word2Vec | word_vectors.GloVe, ...] = (
        word_vectors.Word2Vec(text, word_vectors.Word2VecConfig("skip-gram", **word2vec)),
        word_vectors.Word2Vec(text, word_vectors.Word2VecConfig("cbow", lr=0.05, **word2vec)),
        word_vectors.GloVe(
            text,
            word_vectors.GloVeConfig(window=8, x_max=2.0, lr=0.1, epochs=sizes["GloVe"], **size),
        ),
    )
    for model in models:
        deque(model.train(), maxlen=0)
    return {name: model.vectors() for name, model in zip(METHODS, models, strict=True)}


def threshold_probe(
    cosines: tuple[Tensor, Tensor], same: tuple[Tensor, Tensor]
) -> tuple[float, float]:
    """Two uses have the same sense from that cosine on which is best on the tune rows: accuracy on
    these and on the test rows."""
    right = ((cosines[0] >= cosines[0][:, None]) == same[0]).float().mean(1)
    best = cosines[0][right.argmax()]
    return float(right.max()), float(((cosines[1] >= best) == same[1]).float().mean())


def by_reader(name: str, rows: Sequence[Row], side: str) -> Tensor:
    """The word's vector after each of bert-mini's blocks or of elmo-mini's LSTM layers."""
    model, tokenizer, _ = zoo.load(name)
    texts = [elmo.split(row[side]) for row in rows]
    at = [senses.place(words, row["word"]) for words, row in zip(texts, rows, strict=True)]
    if isinstance(model, elmo.BiLM):
        return senses.elmo_vectors(model.elmo, texts, at)[1:]
    layers = probing.word_layers(model, tokenizer, texts)
    return torch.stack([layer[1:, i] for layer, i in zip(layers, at, strict=True)], dim=1)


def by_company(
    vectors: word_vectors.WordVectors, counts: Tensor, rows: Sequence[Row], side: str
) -> Tensor:
    """The mean of the other words' vectors, frequent words weighing less (Arora et al. 2017)."""
    weighed, found = vectors.units() * (1e-3 / (1e-3 + counts / counts.sum()))[:, None], []
    for words, row in zip(word_vectors.sentences(row[side] for row in rows), rows, strict=True):
        others = [vectors.numbers[w] for w in words if w in vectors and w != row["word"]]
        found.append(weighed[others].sum(0))
    return torch.stack(found)[None]


@experiment("static-mixes-senses")
def static_mixes_senses(lab: Lab, seed: int) -> dict[str, float]:
    """Shares of ambiguous words with mixed neighbours; accuracies of the probe."""
    sizes, world = SIZES[lab.plan.scale], town(small_models.WORLD)
    documents = world.documents(sizes["whole"] + sizes["marked"], seed=seed)
    marked_up = [senses.by_sentence(document, senses.marks(document)) for document in documents]
    read = [[([*map(str.lower, words)], labels) for words, labels in rows] for rows in marked_up]
    whole = [[word for words, _ in rows for word in words] for rows in read[: sizes["whole"]]]
    marked = [words for rows in read[sizes["whole"] :] for words, labels in rows if any(labels)]
    text = word_vectors.count(whole + marked, least=5)
    shares, vectors = (
        company([row for rows in read for row in rows], text.words),
        learned(text, sizes, seed),
    )
    values: dict[str, float] = {}
    for name, found in vectors.items():  # for how many senses do a word's nearest neighbours speak?
        told = [
            {sense_of(near, s) for near, _ in found.nearest(w, 10)} - {""}
            for w, s in shares.items()
        ]
        values[f"two senses or more/{name}"] = sum(len(senses) > 1 for senses in told) / len(told)

    pairs = [
        world.task("wic", n, s, seed=seed)
        for s, n in (("train", sizes["tune"]), ("test", sizes["test"]))
    ]
    same = [torch.tensor([row["label"] == 1 for row in part]) for part in pairs]
    ways: dict[str, Embed] = {
        # the word's own vector, whatever it is
        "static": lambda rows, side: torch.ones(1, len(rows), 1),
        **{name: partial(by_reader, name) for name in ("bert-mini", "elmo-mini")},
        "mean of the other words": partial(by_company, vectors["skip-gram"], text.counts),
    }
    for name, embed in ways.items():
        cosines = [
            F.cosine_similarity(embed(part, "text"), embed(part, "pair"), dim=-1) for part in pairs
        ]
        tried = [threshold_probe((a, b), (same[0], same[1])) for a, b in zip(*cosines, strict=True)]
        values[f"same sense/{name}"] = max(tried, key=lambda scores: scores[0])[1]
    return values
