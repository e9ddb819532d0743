"""What vectors of words know of senses and tags, for lesson 06: other vectors, a task, a curve.

with_biases(convs)              weights of a character CNN, its biases among them
guesses(bilm, vocabulary, "I ___ it.")      what each half predicts for a gap
rivals(uses)                    vectors of uses without ELMo: neighbours, BERT
static_layers(rows), bert_layers(rows)      normalised vectors of all words, [L N F]
nouns_and_verbs()               sentences whose nouns and verbs are labelled
with_few_labels(task, inputs, train)        words right with 5, 10, 20, 40 labelled sentences
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn

from classroom import rivals as rivals_
from classroom.town import arcs
from classroom.town.senses import Use
from course_lib import zoo
from course_lib.analysis import probing
from course_lib.data.embedders import WordAverage
from course_lib.data.words import split_words
from course_lib.families import elmo

STATIC, BERT = "vectors-english", "bert-english"
TAGS = {"": 0, "N": 1, "V": 2}
Rows = Sequence[Sequence[str]]
# (layers of N words, their labels, number of names) -> a tagger: layers -> logits
Train = Callable[[Tensor, Tensor, int], Any]


class Task(NamedTuple):
    """Sentences whose words have labels.

    Attributes:
        rows: the words of each sentence.
        labels: the number of each word's label.
        names: of the labels.
    """

    rows: list[list[str]]
    labels: list[list[int]]
    names: list[str]


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
    """The sentences whose nouns and verbs are labelled (classroom/town/arcs.py)."""
    rows = [row for half in arcs.sentences() for row in half]
    labels = [[TAGS[tag] for tag in row["tags"]] for row in rows]
    return Task([row["tokens"] for row in rows], labels, ["", "noun", "verb"])


def static_layers(rows: Rows, window: int = 0) -> Float[Tensor, "1 N F"]:
    """Static vectors of all words, from `vectors-english`; zeros for a word that it lacks.

    Args:
        rows: the words of each sentence.
        window: how many words on each side are put beside a word's own vector. Zeros stand for
            places before and behind the sentence.
    """
    vectors = zoo.load(STATIC).model
    units = F.layer_norm(vectors.units(), vectors.units().shape[1:])
    table = torch.cat([units, torch.zeros_like(units[:1])])
    found = []
    for row in rows:
        own = table[[vectors.numbers.get(word.lower(), -1) for word in row]]
        padded = F.pad(own, (0, 0, window, window))
        found.append(torch.cat([padded[i : i + len(row)] for i in range(2 * window + 1)], dim=1))
    return torch.cat(found)[None]


def bert_layers(rows: Rows) -> Float[Tensor, "L N F"]:
    """The vectors of all words from every layer of `bert-english`."""
    model, tokenizer, _ = zoo.load(BERT)
    layers = torch.cat(probing.word_layers(model, tokenizer, rows), dim=1)
    return F.layer_norm(layers, layers.shape[-1:])


def with_few_labels(
    task: Task,
    inputs: Mapping[str, Float[Tensor, "L N F"]],
    train: Train,
    *,
    amounts: Sequence[int] = (5, 10, 20, 40),
    draws: int = 10,
    held: int = 30,
) -> dict[str, Float[Tensor, "A D"]]:
    """The words tagged rightly, in percent, after training on few of a task's sentences.

    Each draw shuffles the sentences. The first `held` are the test, the next ones are trained on.

    Args:
        task: the sentences.
        inputs: name -> the layers of all words of all sentences, one after the other.
        train: makes a tagger from the layers and labels of the training words.
        amounts: numbers of training sentences.
        draws: how often the sentences are drawn.
        held: sentences of the test.

    Returns:
        For each name, and for "counts" (a linear model of the word, its neighbours, its last
        letters and capitals), a row for each amount and a column for each draw.
    """
    owner = torch.tensor([number for number, row in enumerate(task.rows) for _ in row])
    labels = torch.tensor([label for row in task.labels for label in row])
    right = {name: torch.zeros(len(amounts), draws) for name in (*inputs, "counts")}
    for draw in range(draws):
        order = random.Random(draw).sample(range(len(task.rows)), len(task.rows))
        test = torch.isin(owner, torch.tensor(order[:held]))
        for place, amount in enumerate(amounts):
            chosen = order[held : held + amount]
            seen = torch.isin(owner, torch.tensor(chosen))
            for name, layers in inputs.items():
                tagger = train(layers[:, seen], labels[seen], len(task.names))
                with torch.no_grad():
                    said = tagger(layers[:, test]).argmax(-1)
                right[name][place, draw] = 100 * (said == labels[test]).float().mean()
            right["counts"][place, draw] = _counted(task, chosen, order[:held])
    return right


def _counted(task: Task, train: Sequence[int], test: Sequence[int]) -> float:
    """The words of the test that a linear model of counts tags rightly, in percent."""
    rows = [{"tokens": t, "labels": n} for t, n in zip(task.rows, task.labels, strict=True)]
    found = rivals_.linear_tagger([rows[i] for i in train], [rows[i] for i in test])
    hits = [
        said == label
        for tags, i in zip(found, test, strict=True)
        for said, label in zip(tags, task.labels[i], strict=True)
    ]
    return 100 * sum(hits) / len(hits)


def rivals(uses: Sequence[Use]) -> dict[str, Float[Tensor, "N D"]]:
    """A vector for each use by methods other than ELMo.

    Words in common: which words the rest of the sentence has. The word before: its static vector.
    Mean of the neighbours: of the static vectors of the rest of the sentence. bert-english: the
    word's vector in its last layer.
    """
    rows = [split_words(use.text) for use in uses]
    places = [
        [word.lower() for word in row].index(use.word) for row, use in zip(rows, uses, strict=True)
    ]
    rest = [" ".join(row[:i] + row[i + 1 :]) for row, i in zip(rows, places, strict=True)]
    seen = CountVectorizer(binary=True).fit_transform(rest).toarray()
    static = zoo.load(STATIC).model
    embed = WordAverage(static.numbers, static.units()).embed
    before = [row[i - 1] if i else "" for row, i in zip(rows, places, strict=True)]
    model, tokenizer, _ = zoo.load(BERT)
    layers = probing.word_layers(model, tokenizer, rows)
    return {
        "words in common": torch.from_numpy(seen).float(),
        "the word before": embed(before),
        "mean of the neighbours": embed(rest),
        "bert-english, last layer": torch.stack(
            [h[-1, i] for h, i in zip(layers, places, strict=True)]
        ),
    }
