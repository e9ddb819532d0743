"""A slow encoder's query vectors from a table of word vectors, so that queries need no network (a page can hold it).

The documents keep the vectors of the slow encoder; only the query's side is replaced. That works because queries are
short and the order of their words tells little.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.models.sentence import Embedder, WordAverage, encode
from course_lib.search import words


def distil_queries(
    embedder: Embedder, queries: Sequence[str], vocabulary: Sequence[str], *, ridge: float = 0.1, batch: int = 256
) -> WordAverage:
    """The word vectors whose averages come nearest to the embedder's vectors of these queries, by least squares.

    Args:
        vocabulary: the words that get a vector. One that no query holds keeps the embedder's vector of the word alone.
        ridge: how strongly all are held near those.

    Raises:
        CourseError: a word of the vocabulary comes twice or is none, no query, or ridge is not above 0.
    """
    numbers = {word: number for number, word in enumerate(vocabulary)}
    if len(numbers) < len(vocabulary) or any(words(word) != [word] for word in vocabulary):
        raise CourseError("The vocabulary must be single words in lower case, each once; `search.words` cuts them.")
    if ridge <= 0:
        raise CourseError(f"ridge is {ridge}; it must be above 0, or words that no query holds have no vector.")
    alone = encode(embedder, vocabulary, batch=batch, normalize=True)
    wanted = encode(embedder, queries, batch=batch, normalize=True)
    shares = torch.zeros(len(queries), len(vocabulary))
    for row, query in enumerate(queries):
        known = [numbers[word] for word in words(query) if word in numbers]
        for number in known:
            shares[row, number] += 1 / len(known)
    left = shares.T @ shares + ridge * torch.eye(len(vocabulary))
    change = torch.linalg.solve(left, shares.T @ (wanted - shares @ alone))
    return WordAverage(numbers, alone + change)


def directions(vectors: Float[Tensor, "n E"], size: int) -> Float[Tensor, "E size"]:
    """The directions that hold most of these vectors (their right singular vectors): `vectors @ directions(...)` is
    shorter and has nearly the same products.

    Raises:
        CourseError: more directions than there can be.
    """
    if not 1 <= size <= min(vectors.shape):
        raise CourseError(f"{list(vectors.shape)} vectors have 1 to {min(vectors.shape)} directions, not {size}.")
    across: Tensor = torch.linalg.svd(vectors, full_matrices=False).Vh
    return across[:size].T.contiguous()
