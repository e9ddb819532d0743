"""Words of several senses, in the town's documents and in its task "word in context": who stands
where, in which sense.

Documents carry marks ("bank/river"), which no model gets to see; the task's pairs of sentences
carry them as well."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.families import elmo
from experiments.lessons import small_models, town


class Use(NamedTuple):
    """A word in a sentence. place: its number among the words."""

    word: str
    sense: str
    words: list[str]
    place: int


def by_sentence(
    document: Mapping[str, Any], labels: Sequence[Any]
) -> Iterator[tuple[list[str], list[Any]]]:
    """The sentences of a document as (words, their labels)."""
    start = 0
    for words in map(elmo.split, document["sentences"]):
        yield words, list(labels[start : start + len(words)])
        start += len(words)


def labelled(
    documents: Sequence[Mapping[str, Any]], column: str
) -> list[tuple[list[str], list[Any]]]:
    """All sentences of documents as (words, their labels in a column)."""
    return [row for document in documents for row in by_sentence(document, document[column])]


def marks(document: Mapping[str, Any]) -> list[str | None]:
    """At each word of a document its sense, if it is marked."""
    at = {mark["token"]: mark["sense"] for mark in document["senses"]}
    return [at.get(i) for i in range(len(document["tokens"]))]


def place(words: Sequence[str], word: str) -> int:
    """Where a word stands, in whatever case."""
    return [w.lower() for w in words].index(word)


def without_names(words: Sequence[str]) -> tuple[str, ...]:
    """What sentences have in common that differ in the names of people only."""
    return tuple(word for word in words if word.islower())


@cache
def uses(n: int, seed: int) -> tuple[Use, ...]:
    """The sentences of n pairs of either split, each once whatever its names."""
    found: dict[tuple[str, str, tuple[str, ...]], Use] = {}
    for split in ("train", "test"):
        for row in town(small_models.WORLD).task("wic", n, split, seed, gold=True):
            for side, sense in zip(("text", "pair"), row["gold"]["senses"], strict=True):
                words = elmo.split(row[side])
                use = Use(row["word"], sense, words, place(words, row["word"]))
                found.setdefault((use.word, sense, without_names(words)), use)
    return tuple(found.values())


@torch.no_grad()
def elmo_vectors(model: elmo.Elmo, rows: Sequence[Sequence[str]], places: Sequence[int]) -> Tensor:
    """The vector of one word of each row, in every layer: Float[layers, N, F]."""
    layers = model(**elmo.characters(rows, model.config.length))
    row = torch.arange(len(rows))
    # after the mark <S>
    return torch.stack([layer[row, torch.tensor(places) + 1] for layer in layers])
