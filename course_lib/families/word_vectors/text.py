"""The vocabulary of a text, and the text as word ids: what word2vec and GloVe learn from.

Letters: N words of running text that are in the vocabulary, V words of the vocabulary.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.errors import CourseError


@dataclass(frozen=True)
class EncodedText:
    """Sentences as word ids, one sentence after another. No context window crosses a sentence.

    Attributes:
        words: the vocabulary, each different word once; the most frequent word is number 0.
        counts: how often each word of the vocabulary occurs in the text.
        ids: the running text, each word as its number in the vocabulary.
        sentence_ids: for each entry of `ids`, the number of the sentence that it comes from.
    """

    words: list[str]
    counts: Int[Tensor, " V"]
    ids: Int[Tensor, " N"]
    sentence_ids: Int[Tensor, " N"]


def encode_text(sentences: Iterable[Sequence[str]], *, min_count: int = 5) -> EncodedText:
    """Build the vocabulary of a text and encode the text with it.

    >>> text = encode_text([["a", "b", "a"], ["b"]], min_count=1)
    >>> text.words, text.counts.tolist()
    (['a', 'b'], [2, 2])
    >>> text.ids.tolist(), text.sentence_ids.tolist()
    ([0, 1, 0, 1], [0, 0, 0, 1])

    Args:
        sentences: the words of each sentence, or of each document.
        min_count: words seen fewer times are deleted, so a window reaches across the gap.

    Raises:
        CourseError: fewer than two words are left in the vocabulary.
    """
    sentences = list(sentences)
    counted = Counter(word for sentence in sentences for word in sentence)
    frequent = [word for word, number in counted.items() if number >= min_count]
    # Equally frequent words are in alphabetical order, so that the numbers are always the same.
    words = sorted(frequent, key=lambda word: (-counted[word], word))
    if len(words) < 2:
        raise CourseError(
            f"Only {len(words)} words occur {min_count} times or more; give more text or a smaller"
            " `min_count`."
        )
    id_of = {word: i for i, word in enumerate(words)}
    ids = []
    sentence_ids = []
    for number, sentence in enumerate(sentences):
        known = [id_of[word] for word in sentence if word in id_of]
        ids += known
        sentence_ids += [number] * len(known)
    counts = [counted[word] for word in words]
    return EncodedText(words, torch.tensor(counts), torch.tensor(ids), torch.tensor(sentence_ids))
