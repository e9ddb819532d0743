"""Missing words of real sentences whose evidence is left, right, or on both sides.

Two readers of counts decide where the evidence is: each sees the words on one side of the gap alone
(`ngrams.Counts.association`). The words to choose from are the missing one and others of about
the same frequency. Where only the left reader finds the missing word, the evidence is left; where
only the right reader does, it is right; where both do, it is on both sides.
"""

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.generation.scoring import score
from course_lib.objectives.collate import pad_to_longest
from lab.real.ngrams import Counts
from lab.real.text import ENDS

LENGTHS = range(12, 41)  # words of a sentence
EDGE = 4  # words at least on each side of the gap
NEAR = 5  # words on each side that a reader of counts sees
RANKS = range(150, 5000)  # of the missing words, by frequency
SIDES = ("left", "right", "both")


@dataclass(frozen=True)
class Gap:
    """A sentence with a missing word.

    Attributes:
        left: the text before it, with the space.
        right: the text after it, with the space.
        choices: the words to choose from; the missing one is the first.
    """

    left: str
    right: str
    choices: tuple[str, ...]


class Finder:
    """Finds gaps.

    Args:
        counts: of the training text.
        tokenizers: every word to choose from is one token of each of them.
        choices: the number of words to choose from.
    """

    def __init__(self, counts: Counts, tokenizers: Sequence[Tokenizer], choices: int) -> None:
        self.counts = counts
        self.choices = choices
        frequent = [counts.vocabulary[rank] for rank in RANKS if rank < len(counts.vocabulary)]
        self.words = [word for word in frequent if word.isalpha() and len(word) > 2]
        for tokenizer in tokenizers:
            coded = tokenizer.ids([f" {word}" for word in self.words], special=False)
            self.words = [w for w, ids in zip(self.words, coded, strict=True) if len(ids) == 1]
        self.place = {word: place for place, word in enumerate(self.words)}

    def gap(self, sentence: str, rng: random.Random) -> Gap | None:
        """A gap at one word of a sentence; None where no word of it will do."""
        found = list(re.finditer(r"[A-Za-z']+", sentence))
        if len(found) not in LENGTHS:
            return None
        inner = [word for word in found[EDGE:-EDGE] if word.group() in self.place]
        inner = [word for word in inner if sentence[word.start() - 1] == " "]
        inner = [word for word in inner if not sentence[word.end()].isalnum()]
        if not inner:
            return None
        word = rng.choice(inner)
        place = self.place[word.group()]
        # Others of about the same frequency, that do not stand in the sentence.
        near = self.words[max(0, place - self.choices) : place + self.choices]
        present = {each.group().lower() for each in found}
        absent = [other for other in near if other not in present]
        if len(absent) < self.choices - 1:
            return None
        others = rng.sample(absent, self.choices - 1)
        choices = (word.group(), *others)
        return Gap(sentence[: word.start()], sentence[word.end() :], choices)

    def reader(self, gap: Gap, *, left: bool) -> list[float]:
        """A value for each choice, by the words on one side."""
        text = gap.left if left else gap.right
        ids = self.counts.encode(text)
        seen = ids[-NEAR:] if left else ids[:NEAR]
        numbers = [self.counts.numbers[choice] for choice in gap.choices]
        return list(self.counts.associations(numbers, seen, NEAR, before=left))

    def bigrams(self, gap: Gap) -> dict[str, list[float]]:
        """Values by frequency, by the word before too, and by both neighbours."""
        before = self.counts.encode(gap.left)[-1]
        after = self.counts.encode(gap.right)[0]
        numbers = [self.counts.numbers[choice] for choice in gap.choices]
        left = [self.counts.bigram(before, n) for n in numbers]
        right = [self.counts.bigram(n, after) for n in numbers]
        return {
            "unigram": [float(self.counts.frequency[n]) for n in numbers],
            "bigram, up to the gap": left,
            "bigram, whole sentence": [a + b for a, b in zip(left, right, strict=True)],
        }

    def side(self, gap: Gap) -> str | None:
        """Where the evidence is; None if neither side alone tells the word."""
        left, right = (is_found(self.reader(gap, left=left)) for left in (True, False))
        if left and right:
            return "both"
        if left or right:
            return "left" if left else "right"
        return None

    def gaps(self, texts: Sequence[str], most: int, seed: int) -> dict[str, list[Gap]]:
        """At most so many gaps of each side, one a sentence, in an order that the seed draws."""
        rng = random.Random(seed)
        lines = chain.from_iterable(text.split("\n") for text in texts)
        sentences = list(chain.from_iterable(ENDS.split(line) for line in lines))
        rng.shuffle(sentences)
        found: defaultdict[str, list[Gap]] = defaultdict(list)
        for sentence in sentences:
            gap = self.gap(sentence, rng)
            side = None if gap is None else self.side(gap)
            if gap is not None and side is not None and len(found[side]) < most:
                found[side].append(gap)
            if all(len(found[name]) == most for name in SIDES):
                break
        return {name: found[name] for name in SIDES}


def is_found(values: Sequence[float]) -> bool:
    """Whether the missing word, the first choice, has a larger value than every other."""
    return values[0] > max(values[1:])


def accuracy(values: Sequence[Sequence[float]]) -> float:
    """The share of gaps whose missing word is found."""
    return sum(map(is_found, values)) / len(values)


def up_to_the_gap(model: nn.Module, tokenizer: Tokenizer, gaps: Sequence[Gap]) -> list[list[float]]:
    """log P(choice | left), by a decoder."""
    scores = score(model, tokenizer, [gap.left for gap in gaps], [gap.choices for gap in gaps])
    return [[each.logprob for each in row] for row in scores]


def whole_sentence(
    model: nn.Module, tokenizer: Tokenizer, gaps: Sequence[Gap]
) -> list[list[float]]:
    """log P(choice and right | left), by a decoder: the sentence's with each choice."""
    texts = [[choice + gap.right for choice in gap.choices] for gap in gaps]
    scores = score(model, tokenizer, [gap.left for gap in gaps], texts)
    return [[each.logprob for each in row] for row in scores]


@torch.no_grad()
def both_sides(
    model: nn.Module, tokenizer: Tokenizer, gaps: Sequence[Gap], batch: int = 32
) -> list[list[float]]:
    """log P(choice | left and right), by an encoder at a mask."""
    vocab = tokenizer.vocab
    cls, mask, sep = (cast(int, token) for token in (vocab.cls, vocab.mask, vocab.sep))
    lefts = tokenizer.ids([gap.left for gap in gaps], special=False)
    rights = tokenizer.ids([gap.right for gap in gaps], special=False)
    values: list[list[float]] = []
    for start in range(0, len(gaps), batch):
        some = range(start, min(start + batch, len(gaps)))
        rows = [[cls, *lefts[i], mask, *rights[i], sep] for i in some]
        inputs = pad_to_longest(rows, vocab.padding_id)
        is_gap = inputs["ids"] == mask
        logits = model(inputs["ids"], attention_mask=inputs["attention_mask"], loss_mask=is_gap)
        values += [_chosen(tokenizer, gaps[i], row) for i, row in zip(some, logits, strict=True)]
    return values


def _chosen(tokenizer: Tokenizer, gap: Gap, logits: Float[Tensor, " V"]) -> list[float]:
    """The logits of a gap's choices."""
    numbers = [ids[0] for ids in tokenizer.ids(list(gap.choices), special=False)]
    return [float(value) for value in logits[numbers]]
