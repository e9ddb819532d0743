"""A text as numbers, which word2vec and GloVe learn from.

Letters: N words of text, V different words.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.errors import CourseError


@dataclass(frozen=True)
class CountedText:
    """A text of rows (sentences or documents), which no window crosses."""

    words: list[str]  # that are kept, the most frequent first
    counts: Int[Tensor, " V"]
    ids: Int[Tensor, " N"]  # the kept words of the text, one after another
    rows: Int[Tensor, " N"]  # the number of the row that each stands in


def count(rows: Iterable[Sequence[str]], *, least: int = 5) -> CountedText:
    """Number the words of a text.

    Args:
        rows: sentences or documents.
        least: rarer words are taken out of the text, and their neighbours move together.

    Raises:
        CourseError: fewer than two words are left.
    """
    kept_rows = list(rows)
    counted = Counter(word for row in kept_rows for word in row)
    frequent = [word for word, number in counted.items() if number >= least]
    words = sorted(frequent, key=lambda word: (-counted[word], word))
    if len(words) < 2:
        raise CourseError(
            f"Only {len(words)} words occur {least} times or more; give more text or a smaller"
            " `least`."
        )
    number_of = {word: i for i, word in enumerate(words)}
    ids = []
    row_numbers = []
    for row_number, row in enumerate(kept_rows):
        known = [number_of[word] for word in row if word in number_of]
        ids += known
        row_numbers += [row_number] * len(known)
    counts = [counted[word] for word in words]
    return CountedText(words, torch.tensor(counts), torch.tensor(ids), torch.tensor(row_numbers))


class Progress(NamedTuple):
    """How far training is."""

    epoch: int  # from 1
    # Mean of the epoch: a pair's in skip-gram, a centre's in CBOW, a term of J in GloVe.
    loss: float
