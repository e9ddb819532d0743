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
from course_lib.model.layers import evaluating

WORD = re.compile(r"\w+")


class Embedder(Protocol):
    """Anything that turns a few texts into vectors: `encode` and the search engine ask for no
    more.
    """

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text."""


class SentenceEncoder:
    """A `Sentence` with its tokenizer: texts to vectors. max_length: longer texts are cut; by
    default what the positions allow, else 512. prompt: put before every text."""

    def __init__(
        self, model: Sentence, tokenizer: Tokenizer, max_length: int | None = None, prompt: str = ""
    ) -> None:
        limit = model.stack.config.max_length or max_length or 512
        self.model, self.tokenizer, self.prompt = model, tokenizer, prompt
        self.max_length = min(limit, max_length or limit)

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text, as one batch, without dropout; gradients flow if they are on."""
        batch = text_batch(
            self.tokenizer, [[self.prompt + text] for text in texts], self.max_length
        )
        device = self.model.stack.embed.tokens.weight.device
        with evaluating(self.model):
            vectors: Tensor = self.model(
                batch["ids"].to(device), attention_mask=batch["attention_mask"].to(device)
            )
        return vectors[:, 0]


class WordAverage:
    """The mean of the vectors of a text's known words, the paper's GloVe baseline (table 1).
    numbers: word -> row.
    """

    def __init__(self, numbers: Mapping[str, int], vectors: Float[Tensor, "V E"]) -> None:
        self.numbers, self.vectors = numbers, vectors

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector a text: zeros if no word of it is known."""
        known = [[self.numbers[w] for w in words(text) if w in self.numbers] for text in texts]
        rows = [
            self.vectors[torch.tensor(row)].mean(0) if row else torch.zeros_like(self.vectors[0])
            for row in known
        ]
        return torch.stack(rows)


def encode(
    embedder: Embedder, texts: Sequence[str], *, batch: int = 32, normalize: bool = False
) -> Float[Tensor, "n E"]:
    """Vectors of many texts, in their order, on the CPU; texts of like length are read together to
    spare padding. normalize: to length 1."""
    if isinstance(texts, str) or not texts:
        raise CourseError("encode takes a list of texts, at least one.")
    # the longest first: memory is short at once
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    with torch.no_grad():
        parts = [
            embedder.embed([texts[i] for i in order[start : start + batch]]).float().cpu()
            for start in range(0, len(texts), batch)
        ]
    sorted_vectors = torch.cat(parts)
    out = torch.empty_like(sorted_vectors)
    out[torch.tensor(order)] = sorted_vectors
    return F.normalize(out, dim=-1) if normalize else out


def words(text: str) -> list[str]:
    """The words of a query or document: runs of letters and digits, in lower case."""
    return WORD.findall(text.casefold())


def distil_queries(
    embedder: Embedder, queries: Sequence[str], vocabulary: Sequence[str]
) -> WordAverage:
    """The word vectors whose averages come nearest to the embedder's vectors of these queries, by
    least squares: then queries need no network. All are held near (ridge 0.1) the embedder's
    vectors of the words alone, which words of the vocabulary (as `words` cuts them) keep that no
    query holds."""
    numbers = {word: number for number, word in enumerate(vocabulary)}
    alone, wanted = (
        encode(embedder, texts, batch=256, normalize=True) for texts in (vocabulary, queries)
    )
    shares = torch.zeros(len(queries), len(vocabulary))
    for row, query in enumerate(queries):
        known = [numbers[word] for word in words(query) if word in numbers]
        for number in known:
            shares[row, number] += 1 / len(known)
    left = shares.T @ shares + 0.1 * torch.eye(len(vocabulary))
    change = torch.linalg.solve(left, shares.T @ (wanted - shares @ alone))
    return WordAverage(numbers, alone + change)
