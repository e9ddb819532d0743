"""What turns texts into vectors: a `Sentence` with its tokenizer, or the mean of word vectors.

Letters: B texts, E width of a vector, V words.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from course_lib.data.text_batches import text_batch
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.sentence import Sentence
from course_lib.model.modes import evaluating

# How vectors are compared: by their angle, or by their product, for which their length counts too.
SIMILARITIES = ("cosine", "dot")
WORD = re.compile(r"\w+")


class Embedder(Protocol):
    """Anything that turns a few texts into vectors; `encode` and the search engine need no more."""

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text."""


class SentenceEncoder:
    """A `Sentence` with its tokenizer: texts to vectors.

    Args:
        model: gives a vector for each row of tokens.
        tokenizer: the model's own.
        max_length: longer texts are cut to so many tokens; by default as many as the model's
            positions allow, 512 where these have no limit.
        prompt: put before every text.
        similarity: how its vectors are compared, one of `SIMILARITIES`.
    """

    def __init__(
        self,
        model: Sentence,
        tokenizer: Tokenizer,
        max_length: int | None = None,
        prompt: str = "",
        similarity: str = "cosine",
    ) -> None:
        limit = model.stack.config.max_length or max_length or 512
        self.model = model
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.similarity = similarity
        self.max_length = min(limit, max_length or limit)

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text, as one batch, without dropout; gradients flow if they are on."""
        rows = [[self.prompt + text] for text in texts]  # one text a row
        batch = text_batch(self.tokenizer, rows, self.max_length)
        device = self.model.stack.embed.tokens.weight.device
        ids = batch["ids"].to(device)  # B 1 T
        attention_mask = batch["attention_mask"].to(device)
        with evaluating(self.model):
            vectors: Tensor = self.model(ids, attention_mask=attention_mask)  # B 1 E
        return vectors[:, 0]


class WordAverage:
    """The mean of the vectors of a text's known words: the baseline of Sentence-BERT's table 1.

    Args:
        numbers: word -> its row in `vectors`.
        vectors: of the words.
    """

    def __init__(self, numbers: Mapping[str, int], vectors: Float[Tensor, "V E"]) -> None:
        self.numbers = numbers
        self.vectors = vectors

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text: zeros if no word of it is known."""
        rows = []
        for text in texts:
            known = [self.numbers[word] for word in words(text) if word in self.numbers]
            if known:
                rows.append(self.vectors[torch.tensor(known)].mean(0))
            else:
                rows.append(torch.zeros_like(self.vectors[0]))
        return torch.stack(rows)


def encode(
    embedder: Embedder, texts: Sequence[str], *, batch: int = 32, normalize: bool = False
) -> Float[Tensor, "n E"]:
    """Vectors of many texts, in their order, on the CPU.

    Args:
        embedder: turns a batch of texts into vectors.
        texts: at least one.
        batch: texts that are read at once; texts of like length are read together.
        normalize: make every vector's length 1.

    Raises:
        CourseError: there is no text, or one string in place of a list.
    """
    if isinstance(texts, str) or not texts:
        raise CourseError("encode takes a list of texts, at least one.")
    # The longest come first: if memory is too small, we know it at once.
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    with torch.no_grad():
        parts = [
            embedder.embed([texts[i] for i in order[start : start + batch]]).float().cpu()
            for start in range(0, len(texts), batch)
        ]
    sorted_vectors = torch.cat(parts)
    out = torch.empty_like(sorted_vectors)
    out[torch.tensor(order)] = sorted_vectors  # back into the texts' own order
    return F.normalize(out, dim=-1) if normalize else out


def has_unit_vectors(embedder: Embedder) -> bool:
    """Whether a search compares this embedder's vectors by their angle alone; the default."""
    return getattr(embedder, "similarity", "cosine") == "cosine"


def words(text: str) -> list[str]:
    """The words of a query or document: runs of letters and digits, in lower case."""
    return WORD.findall(text.casefold())


def distil_queries(
    embedder: Embedder, queries: Sequence[str], vocabulary: Sequence[str]
) -> WordAverage:
    """Word vectors whose averages come nearest to the embedder's vectors of these queries.

    With them a query needs no network. They are the least-squares solution, held near the
    embedder's vectors of the single words (ridge regression, 0.1). A word in no query keeps that
    vector.

    Args:
        embedder: the slow one, which is imitated.
        queries: texts as users ask them.
        vocabulary: words, as `words` cuts them.
    """
    numbers = {word: number for number, word in enumerate(vocabulary)}
    single = encode(embedder, vocabulary, batch=256, normalize=True)  # V E
    targets = encode(embedder, queries, batch=256, normalize=True)  # Q E
    # A query's vector is shares @ word vectors: its known words, each with the same share.
    shares = torch.zeros(len(queries), len(vocabulary))  # Q V
    for row, query in enumerate(queries):
        known = [numbers[word] for word in words(query) if word in numbers]
        for number in known:
            shares[row, number] += 1 / len(known)
    # Ridge regression for the change: (S'S + 0.1 I) change = S' (targets - S single)
    left = shares.T @ shares + 0.1 * torch.eye(len(vocabulary))  # V V
    change = torch.linalg.solve(left, shares.T @ (targets - shares @ single))  # V E
    return WordAverage(numbers, single + change)
