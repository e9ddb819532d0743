"""A text as numbers: its words by frequency, and every word's number in the order of the text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.models.elmo.words import split


@dataclass(frozen=True)
class CountedText:
    """N words of text in rows (sentences or documents), which no window crosses.

    words: the V words that are kept, the most frequent first. counts: how often each occurs. ids: the kept words of
    the text, one after another. rows: the number of the row that each stands in.
    """

    words: list[str]
    counts: Int[Tensor, " V"]
    ids: Int[Tensor, " N"]
    rows: Int[Tensor, " N"]


def sentences(texts: Iterable[str], *, lower: bool = True) -> Iterator[list[str]]:
    """The words of each text, punctuation marks included.

    >>> list(sentences(["Anna's dog barks."]))
    [['anna', "'s", 'dog', 'barks', '.']]
    """
    for text in texts:
        yield split(text.lower() if lower else text)


def count(rows: Iterable[Sequence[str]], *, least: int = 5, most: int | None = None) -> CountedText:
    """Number the words of a text.

    Args:
        rows: lists of words. least: rarer words are taken out of the text, and their neighbours move together.
        most: keep so many of the most frequent words.

    Raises:
        CourseError: fewer than two words are left.
    """
    kept_rows = list(rows)
    if any(isinstance(row, str) for row in kept_rows):
        raise CourseError("The rows of a text are lists of words; `sentences` makes them of texts.")
    counted = Counter(word for row in kept_rows for word in row)
    words = sorted((w for w, n in counted.items() if n >= least), key=lambda w: (-counted[w], w))[:most]
    if len(words) < 2:
        raise CourseError(f"Only {len(words)} words occur {least} times or more; give more text or a smaller `least`.")
    number = {word: i for i, word in enumerate(words)}
    pairs = [(number[word], r) for r, row in enumerate(kept_rows) for word in row if word in number]
    ids, places = torch.tensor(pairs).unbind(1)
    return CountedText(words, torch.tensor([counted[w] for w in words]), ids.contiguous(), places.contiguous())
