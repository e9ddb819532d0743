"""Embedders turn texts into vectors, so that similar texts get similar vectors.

    encoder = SentenceEncoder(model, tokenizer)
    encode(encoder, ["A dog runs.", "A cat sleeps."])    Float[2 E], a vector for each text

`SentenceEncoder` uses a trained model, `WordAverage` the mean of word vectors. Shapes: B texts in a
batch, vectors of E numbers, V words.
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

# The similarity of two vectors: the cosine of their angle, or their dot product.
SIMILARITIES = ("cosine", "dot")
WORD = re.compile(r"\w+")


class Embedder(Protocol):
    """Anything with a method `embed`. `encode` and the search engine need nothing else."""

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector for each text."""


class SentenceEncoder:
    """A `Sentence` model with its tokenizer.

    Args:
        model: returns a vector for each row of tokens.
        tokenizer: the model's own.
        max_length: longer texts are cut to this number of tokens. The default is the longest input
            of the model, or 512 if its positions have no limit.
        prompt: a text that is put before every text.
        similarity: how the vectors are to be compared, one of `SIMILARITIES`.
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
        """Embed the texts as one batch, without dropout. Gradients flow unless `no_grad` is on."""
        rows = [[self.prompt + text] for text in texts]  # one text in each row
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
        vectors: one for each word.
    """

    def __init__(self, numbers: Mapping[str, int], vectors: Float[Tensor, "V E"]) -> None:
        self.numbers = numbers
        self.vectors = vectors

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """One vector for each text; it is zero if the text has no known word."""
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
    """Embed many texts, in batches of texts of similar length.

    Args:
        embedder: turns a batch of texts into vectors.
        texts: at least one.
        batch: number of texts in a batch.
        normalize: whether to scale every vector to length 1.

    Returns:
        The vectors on the CPU, in the order of the texts.

    Raises:
        CourseError: there is no text, or `texts` is one string.
    """
    if isinstance(texts, str) or not texts:
        raise CourseError("encode takes a list of texts, at least one.")
    # The longest texts come first, so that a lack of memory shows in the first batch.
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
    """Whether a search compares this embedder's vectors by the cosine, which is the default."""
    return getattr(embedder, "similarity", "cosine") == "cosine"


def words(text: str) -> list[str]:
    """The words of a query or document: runs of letters and digits, in lower case."""
    return WORD.findall(text.casefold())
