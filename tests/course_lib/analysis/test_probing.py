"""Attention between words, heads against a parse, layers as vectors, the linear probe."""

import pytest
import torch
import torch.nn.functional as F

from classroom.town import World
from course_lib.analysis import capture, probing
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.model.config import EmbedConfig, StackConfig
from course_lib.model.heads import MLM
from course_lib.model.transformer import Transformer

TEXTS = [["the", "cats", "sat"], ["a", "catalogue", "of", "mats", "."], ["mats"]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(["the cat sat on a mat . of the log"] * 3, 60)


@pytest.fixture(scope="module")
def body(tokenizer: Tokenizer) -> Transformer:
    torch.manual_seed(0)
    return Transformer(StackConfig(EmbedConfig(tokenizer.vocab.size), 16, 3, 2, 32)).eval()


def test_attention_between_words_is_the_loop(
    body: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "BATCH", 2)
    for text, found in zip(
        TEXTS, probing.word_attention(MLM(body).eval(), tokenizer, TEXTS), strict=True
    ):
        code = tokenizer.encode(text)
        with torch.no_grad(), capture(body, "blocks.*.attn.probs") as seen:
            body(torch.tensor([code.ids]))
        assert found.shape == (3, 2, len(text), len(text))
        for layer in range(3):
            weights = seen[f"blocks.{layer}.attn.probs"][0]
            for i in range(len(text)):
                for j in range(len(text)):
                    mine = [p for p, w in enumerate(code.words) if w == i]
                    value = sum(
                        weights[:, p, q] for p in mine for q, w in enumerate(code.words) if w == j
                    ) / len(mine)
                    assert torch.allclose(found[layer, :, i, j], value, atol=1e-6)


def test_vectors_of_words_are_their_first_pieces(body: Transformer, tokenizer: Tokenizer) -> None:
    for text, found in zip(TEXTS, probing.word_layers(body, tokenizer, TEXTS), strict=True):
        code = tokenizer.encode(text)
        with torch.no_grad(), capture(body, "embed", "blocks.1") as seen:
            top = body(torch.tensor([code.ids]))
        first = [code.words.index(word) for word in range(len(text))]
        assert found.shape == (4, len(text), 16)
        for layer, vectors in ((0, seen["embed"]), (2, seen["blocks.1"]), (3, top)):
            assert torch.allclose(found[layer], vectors[0, first], atol=1e-5)


def test_a_word_of_which_nothing_is_left(body: Transformer, tokenizer: Tokenizer) -> None:
    with pytest.raises(CourseError, match=r"leaves nothing of the word ' '"):
        probing.word_attention(body, tokenizer, [["the", " ", "cat"]])


# governors: cat <- the, sat <- cat, root sat, sat <- down
ROW = {
    "tokens": ["the", "cat", "sat", "down", "."],
    "heads": [1, 2, -1, 2, 2],
    "deprels": ["det", "nsubj", "root", "advmod", "punct"],
}


def test_hits_say_who_finds_whom() -> None:
    # every word looks at the next one, the last at the first
    next_word = torch.eye(5).roll(1, dims=1)
    itself = 0.6 * torch.eye(5) + 0.4 * next_word
    found = probing.hits([torch.stack([next_word, next_word.T, itself])[None]], [ROW])
    assert set(found) == {"det", "nsubj", "advmod"}  # neither the root nor punctuation
    assert found["det"].shape == (2, 1, 3, 1)
    assert found["det"][..., 0].tolist() == [[[True, False, True]], [[False, True, False]]]
    assert found["advmod"][..., 0].tolist() == [[[False, True, False]], [[True, False, True]]]


def test_distances_and_the_usual_one() -> None:
    assert {name: d.tolist() for name, d in probing.distances([ROW, ROW]).items()} == {
        "det": [1, 1],
        "nsubj": [1, 1],
        "advmod": [-1, -1],
    }
    assert probing.most_frequent(torch.tensor([3, -2, -2, 3, 1])) == -2


def test_sentences_of_the_world_hang_together() -> None:
    rows = World.sentences(World(0).documents(30))
    assert len({" ".join(row["tokens"]) for row in rows}) == len(rows) > 100
    for row in rows:
        assert len(row["tokens"]) == len(row["heads"]) == len(row["deprels"]) == len(row["tags"])
        assert row["tokens"][-1] in ".?!" and row["heads"].count(-1) == 1
        assert all(-1 <= head < len(row["tokens"]) for head in row["heads"])


def test_the_probe_finds_what_is_linear() -> None:
    draw = torch.Generator().manual_seed(0)
    x = 50 + torch.randn(600, 4, generator=draw) * torch.tensor([0.1, 1.0, 10.0, 1.0])
    y = ((x[:, 0] - 50) * 10 + (x[:, 1] - 50) > 0).long()
    probe = probing.linear_probe(x[:400], y[:400], 2)
    assert (probe(x[400:]).argmax(-1) == y[400:]).float().mean() > 0.95 and F.cross_entropy(
        probe(x), y
    ) < 0.3
    again = probing.linear_probe(x[:400], y[:400], 2)
    assert torch.equal(again.weight, probe.weight)
