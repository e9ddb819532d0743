"""Sentences of a treebank, with which heads and layers of a model are compared."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from course_lib import data
from course_lib.analysis import probing
from course_lib.data.tokenizers import Tokenizer
from lab.real.parts import part

Row = dict[str, Any]
CLASSES = {"noun": ("NOUN", "PROPN", "PRON"), "verb": ("VERB",)}


def rows(folder: Path, split: str, tokenizer: Tokenizer, number: int, parts: int) -> list[Row]:
    """One of several parts of a treebank's sentences, with the columns that `probing` reads.

    A head is the place of the governor, counted from 0; -1 is the root's.

    Args:
        folder: of the treebank.
        split: "validation" or "test".
        tokenizer: sentences with a word of which it leaves nothing are left out.
        number: of the part.
        parts: how many there are.
    """
    chosen = part(data.task(folder, split=split).to_list(), number, parts)
    found = []
    for row in chosen:
        code = tokenizer.encode(row["tokens"])
        if set(code.words) >= set(range(len(row["tokens"]))):
            found.append(row | {"heads": [head - 1 for head in row["heads"]]})
    return found


def nearest(tags: Sequence[str], place: int, wanted: Sequence[str], step: int) -> int:
    """The place of the nearest word with a wanted tag to the left (step -1) or right (1), or -1."""
    place += step
    while 0 <= place < len(tags):
        if tags[place] in wanted:
            return place
        place += step
    return -1


def neighbours(sentences: Sequence[Row]) -> dict[str, Bool[Tensor, "8 N"]]:
    """For each relation, whether a rule of one line finds the other end of each of its N arcs.

    The eight rules: from the dependent or from the governor, the nearest noun (or pronoun) or
    verb, to the left or to the right.
    """
    found: dict[str, list[list[bool]]] = {}
    for row in sentences:
        for relation, dependent, governor in probing.arcs(row):
            right = []
            for start, end in ((dependent, governor), (governor, dependent)):
                for wanted in CLASSES.values():
                    right += [nearest(row["upos"], start, wanted, step) == end for step in (-1, 1)]
            found.setdefault(relation, []).append(right)
    return {relation: torch.tensor(right).T for relation, right in found.items()}


def labels(sentences: Sequence[Row], column: str) -> list[str]:
    """The labels of all words; of a relation the part before the colon ("nmod:poss": "nmod")."""
    return [label.split(":")[0] for row in sentences for label in row[column]]


def words(sentences: Sequence[Row]) -> list[str]:
    """All words, in small letters."""
    return [word.lower() for row in sentences for word in row["tokens"]]


def most_frequent(
    train_words: Sequence[str], train_labels: Sequence[str], test_words: Sequence[str]
) -> list[str]:
    """The label that each word has most often in training; that of all words for a new one."""
    by_word: dict[str, Counter[str]] = {}
    for word, label in zip(train_words, train_labels, strict=True):
        by_word.setdefault(word, Counter())[label] += 1
    usual = Counter(train_labels).most_common(1)[0][0]
    return [by_word[w].most_common(1)[0][0] if w in by_word else usual for w in test_words]


def control(
    all_words: Sequence[str], all_labels: Sequence[str], generator: torch.Generator
) -> dict[str, str]:
    """Each word's label of the control task (Hewitt and Liang 2019, section 2).

    It is drawn once for each word, as often each as the task has it. So a probe can know it only
    by heart.
    """
    vocabulary = sorted(set(all_words))
    drawn = torch.randint(len(all_labels), (len(vocabulary),), generator=generator)
    return {w: all_labels[i] for w, i in zip(vocabulary, drawn.tolist(), strict=True)}


def numbered(names: Sequence[str], some: Sequence[str]) -> Int[Tensor, " N"]:
    """Labels as numbers; one that is not among the names gets -1, which no probe says."""
    numbers = {name: number for number, name in enumerate(names)}
    return torch.tensor([numbers.get(label, -1) for label in some])
