"""Sentence vectors: order, padding, anything with `embed`, batches for training, and what is
refused.
"""

import pytest
import torch

from course_lib.analysis.sts import sts
from course_lib.data.embedders import SentenceEncoder, WordAverage, encode
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families.sentence import (
    Dense,
    Normalize,
    Sentence,
)
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.transformer import Transformer

TEXTS = [
    "the cat sat on the mat",
    "a dog",
    "the old dog sat on the old mat all day",
    "cat",
    "a cat sat",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece([" ".join(TEXTS)] * 5, 80)


def stack(vocab: int, dropout: float = 0.0, causal: bool = False) -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        StackConfig(
            EmbedConfig(vocab),
            width=8,
            layers=1,
            heads=2,
            hidden=16,
            position=Learned(64),
            dropout=dropout,
            attention_dropout=dropout,
            causal=causal,
            init_std=0.5,
        )
    )


def encoder(tokenizer: Tokenizer, **options: object) -> SentenceEncoder:
    return SentenceEncoder(Sentence(stack(len(tokenizer), **options)), tokenizer)  # type: ignore[arg-type]


class Counting:
    """An embedder of one's own: the number of letters and of words."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def embed(self, texts: list[str]) -> torch.Tensor:
        self.seen.append(list(texts))
        return torch.tensor([[len(text), text.count(" ") + 1] for text in texts])


def test_encode_takes_anything_with_embed_and_sorts_by_length() -> None:
    own = Counting()
    made = encode(own, TEXTS, batch=2)
    assert made.dtype == torch.float32 and made.tolist() == [
        [len(t), len(t.split())] for t in TEXTS
    ]
    assert [len(t) for batch in own.seen for t in batch] == sorted(map(len, TEXTS), reverse=True)
    assert [len(batch) for batch in own.seen] == [2, 2, 1]
    assert encode(own, TEXTS, normalize=True).norm(dim=-1) == pytest.approx(torch.ones(5))


@pytest.mark.parametrize("pool", ["mean", "first", "max", "last"])
def test_a_text_alone_has_the_vector_it_has_in_a_batch(pool: str, tokenizer: Tokenizer) -> None:
    model = Sentence(stack(len(tokenizer)), pool, [Dense(8, 6), Normalize()])  # type: ignore[arg-type]
    texts = SentenceEncoder(model, tokenizer)
    together = encode(texts, TEXTS, batch=5)
    torch.testing.assert_close(together, torch.cat([encode(texts, [text]) for text in TEXTS]))
    assert together.shape == (5, model.width) == (5, 6)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(5))


def test_encoding_is_without_dropout_and_leaves_the_mode_alone(tokenizer: Tokenizer) -> None:
    model = encoder(tokenizer, dropout=0.5)
    model.model.train()
    assert torch.equal(encode(model, TEXTS), encode(model, TEXTS)) and model.model.training
    assert not encode(model, TEXTS).requires_grad and model.embed(TEXTS).requires_grad


def test_word_averages() -> None:
    table = WordAverage({"cat": 0, "dog": 1}, torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    made = encode(table, ["A cat, a DOG, a cat!", "nothing", "dog"])
    torch.testing.assert_close(made, torch.tensor([[2 / 3, 1.0], [0.0, 0.0], [0.0, 3.0]]))


def test_sts_is_spearman_of_the_cosines() -> None:
    table = WordAverage(
        {"a": 0, "b": 1, "c": 2}, torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 5.0]])
    )
    labels = [5.0, 3.0, 0.0]
    assert sts(table, ["a"] * 3, ["a", "b", "c"], labels) == pytest.approx(1)
    assert sts(table, ["a"] * 3, ["c", "b", "a"], labels) == pytest.approx(-1)


def test_bad_input(tokenizer: Tokenizer) -> None:
    with pytest.raises(CourseError, match="'median'"):
        Sentence(stack(len(tokenizer)), "median")  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="list of texts"):
        encode(Counting(), "text")
