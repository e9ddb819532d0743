"""What turns an English sentence into a vector: the encoders that the course compares."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib import peft, zoo
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


def sbert_english() -> SentenceEncoder:
    """`bert-english` with the LoRA matrices that learned from neighbours and from STS-B."""
    model, tokenizer, _ = zoo.load("bert-english")
    folder = zoo.FOLDER.parent / "adapters" / "sbert-english"
    layout = {"model_type": "megatron-bert", "architecture": "MegatronBertModel"}
    sentence = peft.load_pretrained(Sentence(model.stack), folder, **layout)
    return SentenceEncoder(sentence.eval(), tokenizer)


def of_sentences() -> dict[str, Embedder]:
    """The embedders by their name in the figures."""
    model, tokenizer, _ = zoo.load("bert-english")
    vectors = zoo.load("vectors-english").model
    return {
        "[CLS]": SentenceEncoder(Sentence(model.stack, "first"), tokenizer),
        "mean": SentenceEncoder(Sentence(model.stack, "mean"), tokenizer),
        "input rows": TokenAverage(model.stack.embed.tokens, tokenizer),
        "skip-gram": WordAverage(vectors.numbers, vectors.matrix),
        "sbert-english": sbert_english(),
        "MiniLM": zoo.public("minilm").sentence_encoder(),
    }
