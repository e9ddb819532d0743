"""Word vectors without training: counts of neighbours, weighed by PPMI and reduced by an SVD.

The settings are those of Levy, Goldberg and Dagan 2015, "Improving Distributional Similarity with
Lessons Learned from Word Embeddings". Letters: V words of the vocabulary, D width of a vector.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from course_lib.data.words import lowercase_words
from course_lib.families.word_vectors.glove import cooccurrences
from course_lib.families.word_vectors.text import EncodedText
from course_lib.families.word_vectors.vectors import WordVectors

SMOOTHING = 0.75  # exponent of the counts of contexts; it makes rare contexts less informative


def encode(texts: Iterable[str], words: Sequence[str]) -> EncodedText:
    """Texts as ids of a given vocabulary; other words are left out."""
    numbers = {word: number for number, word in enumerate(words)}
    parts = []
    for text in lowercase_words(texts):
        parts.append(np.array([numbers[word] for word in text if word in numbers], np.int64))
    lengths = torch.tensor([len(part) for part in parts])
    ids = torch.from_numpy(np.concatenate(parts))
    text_numbers = torch.repeat_interleave(torch.arange(len(parts)), lengths)
    return EncodedText(list(words), torch.bincount(ids, minlength=len(words)), ids, text_numbers)


def ppmi(text: EncodedText, window: int) -> sparse.csr_array:
    """The positive pointwise mutual information of every word with every context word, [V V].

    max(0, log(P(word, context) / (P(word) P(context)))), the contexts' counts to the power of
    `SMOOTHING`.

    Args:
        text: the encoded text.
        window: number of context words on each side; a distance of n counts 1 / n.
    """
    size = len(text.words)
    i, j, x = (part.numpy() for part in cooccurrences(text, window))
    total = x.sum(dtype=np.float64)
    of_words = np.bincount(i, x, size) / total
    of_contexts = np.bincount(j, x, size) ** SMOOTHING
    of_contexts /= of_contexts.sum()
    information = np.log(x / total) - np.log(of_words[i]) - np.log(of_contexts[j])
    positive = information > 0
    values = information[positive].astype(np.float32)
    return sparse.csr_array((values, (i[positive], j[positive])), shape=(size, size))


def reduced(
    matrix: sparse.csr_array, words: Sequence[str], size: int, powers: Iterable[float]
) -> dict[float, WordVectors]:
    """Word vectors U S^p of the matrix's largest singular values, for several powers p.

    Args:
        matrix: PPMI [V V].
        words: V.
        size: width D of a vector.
        powers: 1 is the SVD itself; 0 gives all directions the same weight.
    """
    u, s, _ = randomized_svd(matrix, size, n_iter=4, random_state=0)
    return {
        power: WordVectors(words, torch.from_numpy(np.ascontiguousarray(u * s**power)))
        for power in powers
    }
