"""What turns an English sentence into a vector: the encoders that the course compares."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from classroom import lesson
from course_lib import zoo
from course_lib.data.embedders import Embedder, SentenceEncoder, WordAverage
from course_lib.data.tokenizers import Tokenizer
from course_lib.families.sentence import Sentence


class TokenAverage:
    """The mean of a model's input vectors of a text's tokens. The model itself does not run.

    Args:
        table: the token embeddings [V D].
        tokenizer: the model's own.
    """

    def __init__(self, table: nn.Embedding, tokenizer: Tokenizer) -> None:
        self.table = table
        self.tokenizer = tokenizer

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "B D"]:
        """One vector for each text."""
        rows = self.tokenizer.ids(list(texts), special=False)
        return torch.stack([self.table(torch.tensor(row)).mean(0) for row in rows])


def of_sentences() -> dict[str, Embedder]:
    """The embedders by their name in the figures."""
    model, tokenizer, _ = zoo.load("bert-english")
    vectors = zoo.load("vectors-english").model
    return {
        "[CLS]": SentenceEncoder(Sentence(model.stack, "first"), tokenizer),
        "mean": SentenceEncoder(Sentence(model.stack, "mean"), tokenizer),
        "input rows": TokenAverage(model.stack.embed.tokens, tokenizer),
        "skip-gram": WordAverage(vectors.numbers, vectors.matrix),
        "sbert-english": lesson.sentence_encoder("sbert-english"),
        "MiniLM": zoo.public("minilm").sentence_encoder(),
    }
