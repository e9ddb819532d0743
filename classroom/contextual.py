"""What vectors of words know of senses and tags, for lesson 06: other vectors, tasks, scores.

with_biases(convs)              weights of a character CNN, its biases among them
guesses(bilm, vocabulary, "I ___ it.")      what each half predicts for a gap
rivals(uses)                    vectors of uses without ELMo: words in common, neighbours, BERT
static_layers(rows), bert_layers(rows)      normalised vectors of all words, [L N F]
nouns_and_verbs(), names()      tasks of tagging
tagged(task, layers, train)     what taggers trained by `train` say, and the taggers
score(task, predicted)          (score, low, high) in percent
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn

from classroom import rivals as rivals_
from classroom.intervals import percent
from classroom.town import arcs
from classroom.town.senses import Use
from course_lib import data, zoo
from course_lib.analysis import probing
from course_lib.data.embedders import WordAverage
from course_lib.data.words import split_words
from course_lib.families import elmo

STATIC, BERT = "vectors-english", "bert-english"
TAGS = {"": 0, "N": 1, "V": 2}
PARTS = 5  # of the sentences; each is tagged by a tagger that was trained on the others
Rows = Sequence[Sequence[str]]
# (layers of N words, their labels, number of names) -> a tagger: layers -> logits
Train = Callable[[Tensor, Tensor, int], Any]


class Task(NamedTuple):
    """Sentences whose words have labels.

    Attributes:
        rows: the words of each sentence.
        labels: the number of each word's label.
        names: of the labels.
        parts: for each tagger, which sentences it is scored on; it is trained on the others.
        whole: whether names of several words are scored as a whole.
    """

    rows: list[list[str]]
    labels: list[list[int]]
    names: list[str]
    parts: list[list[bool]]
    whole: bool


def with_biases(convs: Iterable[nn.Module]) -> list[Tensor]:
    """The weights [F E+1 w] of convolutions, for inputs whose last number is always 1.

    The bias is shared out over the w places of the window.
    """
    weights = []
    for conv in convs:
        assert isinstance(conv, nn.Conv1d) and conv.bias is not None
        width = conv.kernel_size[0]
        bias = (conv.bias / width)[:, None, None].expand(-1, 1, width)
        weights.append(torch.cat([conv.weight, bias], dim=1))
    return weights


def guesses(
    bilm: elmo.BiLM, vocabulary: elmo.Vocabulary, sentence: str, k: int = 4
) -> dict[str, tuple[str, list[tuple[str, float]]]]:
    """What each half of a biLM reads of a sentence with one ___, and its likeliest words for it.

    "added" sums the log-probabilities of both. The words come with their probabilities, without
    `<UNK>`.
    """
    before, after = sentence.split("___")
    left, right = elmo.hidden_word(bilm, [split_words(before)], [split_words(after)])  # 1 V
    halves = {"forward": (before, left), "backward": (after, right)}
    found = {}
    for name, (reads, scores) in (halves | {"added": (sentence, left + right)}).items():
        scores[:, vocabulary.unk] = -torch.inf
        top = scores[0].softmax(-1).topk(k)
        words = [vocabulary.words[number] for number in top.indices]
        found[name] = (reads.strip(), list(zip(words, top.values.tolist(), strict=True)))
    return found


def nouns_and_verbs() -> Task:
    """The sentences whose nouns and verbs are marked (classroom/town/arcs.py), in five parts."""
    rows = [row for half in arcs.sentences() for row in half]
    labels = [[TAGS[tag] for tag in row["tags"]] for row in rows]
    parts = [[place % PARTS == part for place in range(len(rows))] for part in range(PARTS)]
    return Task([row["tokens"] for row in rows], labels, ["", "noun", "verb"], parts, whole=False)


def names() -> Task:
    """Names of persons, places and organisations: trained on one part, scored on the other."""
    train, test = (data.task("tasks/names", split=split) for split in ("train", "test"))
    rows = [list(row) for row in [*train["tokens"], *test["tokens"]]]
    labels = [list(row) for row in [*train["labels"], *test["labels"]]]
    tested = [False] * len(train) + [True] * len(test)
    return Task(rows, labels, train.features["labels"].feature.names, [tested], whole=True)


def static_layers(rows: Rows) -> Float[Tensor, "1 N F"]:
    """Static vectors of all words, from `vectors-english`; zeros for a word that it lacks."""
    vectors = zoo.load(STATIC).model
    units = vectors.units()
    table = torch.cat([units, torch.zeros_like(units[:1])])
    numbers = [vectors.numbers.get(word.lower(), -1) for row in rows for word in row]
    return F.layer_norm(table[numbers], units.shape[1:])[None]


def bert_layers(rows: Rows) -> Float[Tensor, "L N F"]:
    """The vectors of all words from every layer of `bert-english`."""
    model, tokenizer, _ = zoo.load(BERT)
    layers = torch.cat(probing.word_layers(model, tokenizer, rows), dim=1)
    return F.layer_norm(layers, layers.shape[-1:])


def tagged(
    task: Task, layers: Float[Tensor, "L N F"], train: Train
) -> tuple[list[list[int]], list[Any]]:
    """What taggers say of the words that they were not trained on, and the taggers.

    Args:
        task: the sentences.
        layers: of all words of all sentences, one after the other.
        train: makes a tagger.
    """
    labels = torch.tensor([label for row in task.labels for label in row])
    predicted = torch.zeros_like(labels)
    taggers = []
    for part in task.parts:
        held = torch.tensor(
            [is_held for is_held, row in zip(part, task.rows, strict=True) for _ in row]
        )
        tagger = train(layers[:, ~held], labels[~held], len(task.names))
        with torch.no_grad():
            predicted[held] = tagger(layers[:, held]).argmax(-1)
        taggers.append(tagger)
    return _by_sentence(predicted, task), taggers


def counted(task: Task) -> list[list[int]]:
    """What a linear model of counts says: the word, its neighbours, its last letters, capitals."""
    rows = [{"tokens": t, "labels": n} for t, n in zip(task.rows, task.labels, strict=True)]
    predicted: list[list[int]] = [[0] * len(row) for row in task.rows]
    for part in task.parts:
        held = [place for place, is_held in enumerate(part) if is_held]
        train = [row for row, is_held in zip(rows, part, strict=True) if not is_held]
        found = rivals_.linear_tagger(train, [rows[place] for place in held])
        for place, tags in zip(held, found, strict=True):
            predicted[place] = tags
    return predicted


def score(task: Task, predicted: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    """The share of right words, or the F1 of whole names, and its 95% interval.

    The interval of F1 is the one that other test sentences would give (bootstrap).
    """
    tested = [any(of_part) for of_part in zip(*task.parts, strict=True)]
    pairs = [
        (said, right)
        for said, right, is_tested in zip(predicted, task.labels, tested, strict=True)
        if is_tested
    ]
    if not task.whole:
        return percent([a == b for said, right in pairs for a, b in zip(said, right, strict=True)])
    counts = np.array([_hits(task.names, said, right) for said, right in pairs])  # N 3
    draws = np.random.default_rng(0).multinomial(len(counts), [1 / len(counts)] * len(counts), 1000)
    hits, given, there = np.vstack([counts.sum(0), draws @ counts]).T
    f1 = 200 * hits / np.maximum(1, given + there)
    low, high = np.quantile(f1[1:], [0.025, 0.975])
    return float(f1[0]), float(low), float(high)


def rivals(uses: Sequence[Use]) -> dict[str, Float[Tensor, "N D"]]:
    """A vector for each use by methods other than ELMo.

    Words in common: which words the rest of the sentence has. Mean of the neighbours: of the static
    vectors of the rest of the sentence. bert-english: the word's vector in its last layer.
    """
    rows = [split_words(use.text) for use in uses]
    places = [
        [word.lower() for word in row].index(use.word) for row, use in zip(rows, uses, strict=True)
    ]
    rest = [" ".join(row[:i] + row[i + 1 :]) for row, i in zip(rows, places, strict=True)]
    seen = CountVectorizer(binary=True).fit_transform(rest).toarray()
    static = zoo.load(STATIC).model
    model, tokenizer, _ = zoo.load(BERT)
    layers = probing.word_layers(model, tokenizer, rows)
    return {
        "words in common": torch.from_numpy(seen).float(),
        "mean of the neighbours": WordAverage(static.numbers, static.units()).embed(rest),
        "bert-english, last layer": torch.stack(
            [h[-1, i] for h, i in zip(layers, places, strict=True)]
        ),
    }


def _by_sentence(flat: Int[Tensor, " N"], task: Task) -> list[list[int]]:
    pieces = torch.split(flat, [len(row) for row in task.rows])
    return [piece.tolist() for piece in pieces]


def _hits(names: Sequence[str], said: Sequence[int], right: Sequence[int]) -> tuple[int, int, int]:
    """Names that are right, that were said, and that are there."""
    given, there = (set(get_entities([names[label] for label in row])) for row in (said, right))
    return len(given & there), len(given), len(there)
