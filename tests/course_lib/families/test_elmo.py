"""What each half of ELMo can see, spelling, batches and hidden words."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from classroom.town import World
from course_lib.data.word_batches import BiLMBatches
from course_lib.data.words import split_words
from course_lib.errors import CourseError
from course_lib.families import elmo
from course_lib.families.elmo import ElmoConfig, Vocabulary, characters, spelling

SMALL = ElmoConfig(
    0,
    width=6,
    hidden=9,
    filters=((1, 4), (3, 8)),
    length=10,
    cell_clip=0.5,
    projection_clip=0.3,
    dropout=0.0,
)
TEXTS = [["The", "dog", "barks", "at", "the", "poet"], ["Who", "left", "?"], ["Yes"]]


def small(seed: int = 0, **changes) -> elmo.Elmo:
    torch.manual_seed(seed)
    return elmo.Elmo(replace(SMALL, **changes)).eval()


class Given(nn.Module):
    """A token layer that gives what it was given."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def forward(self, ids):
        return self.vectors


@pytest.mark.parametrize("clip", [None, 0.3])
def test_the_forward_half_never_sees_what_follows_nor_the_backward_half_what_precedes(clip):
    """In every layer the derivative is exactly zero."""
    model = small(layers=3, cell_clip=clip, projection_clip=clip)
    vectors = torch.randn(2, 7, 6, requires_grad=True)
    model.tokens = Given(vectors)
    attention_mask = torch.arange(7) < torch.tensor([[7], [5]])
    layers = model(torch.zeros(2, 7, 10, dtype=torch.long), attention_mask=attention_mask)
    assert len(layers) == 4
    for depth, layer in enumerate(layers[1:], 1):
        for t in (0, 2, 4):
            left, right = layer[:, t].chunk(2, dim=-1)
            for half, unseen in ((left, slice(t + 1, None)), (right, slice(0, t))):
                grad = torch.autograd.grad(half.square().sum(), vectors, retain_graph=True)[0]
                assert grad[:, unseen].abs().sum() == 0, depth
                seen = torch.ones(7, dtype=torch.bool)
                seen[unseen] = False
                assert (
                    grad[:, seen].abs().sum((0, 2))[: 5 - t if half is right else None] > 0
                ).all(), depth


def test_rows_are_padded_on_the_right():
    batch = characters(TEXTS, 10)
    with pytest.raises(CourseError, match="padded on the right"):
        small()(batch["ids"], attention_mask=batch["attention_mask"].flip(1))


def test_splitting_finds_the_words_of_the_world():
    world = World(0)
    for i in range(100):
        document = world.document(i)
        assert split_words(document["text"]) == document["tokens"]


def numbered(length=5, rows=2, pool=3, seed=0):
    """Documents whose words say which document they are of, from one to five words long."""
    texts = [[f"d{i}"] * (1 + i % 5) for i in range(24)]
    vocabulary = Vocabulary.count(texts)
    config = replace(SMALL, vocab=len(vocabulary))
    return vocabulary, BiLMBatches(
        lambda i: texts[i], vocabulary, config, length=length, rows=rows, pool=pool, seed=seed
    )


def test_batches_hold_every_document_once_whole_and_both_targets():
    vocabulary, batches = numbered(length=7)
    read = []
    for step in range(12):
        batch = batches[step]
        for attention_mask, ids, labels in zip(
            batch["attention_mask"], batch["ids"], batch["labels"], strict=True
        ):
            n = int(attention_mask.sum())
            following, before = labels[0, : n - 1].tolist(), labels[1, 1:n].tolist()
            assert (
                following[-1] == vocabulary.eos
                and before[0] == vocabulary.bos
                and following[:-1] == before[1:]
            )
            assert (
                labels[0, n - 1 :].eq(-100).all()
                and labels[1, n:].eq(-100).all()
                and labels[1, 0] == -100
            )
            word = vocabulary.words[before[1]]
            assert (
                tuple(ids[1].tolist()) == spelling(word, 10)
                and len(before) == 1 + 1 + int(word[1:]) % 5
            )
            read.append(word)
    assert sorted(read) == sorted(f"d{i}" for i in range(24))
    again = numbered(length=7)[1]
    for step in (11, 0, 5):
        assert all(torch.equal(again[step][name], batches[step][name]) for name in again[step])
    assert any(
        not torch.equal(numbered(length=7, seed=1)[1][s]["ids"], batches[s]["ids"])
        for s in range(3)
    )
    assert max(numbered(length=4)[1][s]["ids"].shape[1] for s in range(3)) == 4


def test_a_hidden_word_is_judged_by_what_stands_around_it_alone():
    vocabulary, batches = numbered()
    torch.manual_seed(0)
    model = elmo.model(batches.config).eval()
    before, after = [["d1", "d2"], []], [["d3"], ["d4", "d5", "d6"]]
    left, right = elmo.hidden_word(model, before, after)
    assert left.shape == right.shape == (2, len(vocabulary))
    for i in range(2):
        ahead = characters([["<S>", *before[i]]], 10, ends=False)
        behind = characters([[*after[i], "</S>"]], 10, ends=False)
        with torch.no_grad():
            expected = model(**ahead)[0, 0, -1], model(**behind)[0, 1, 0]
        for found, logits in zip((left[i], right[i]), expected, strict=True):
            assert torch.allclose(found, logits.log_softmax(-1), atol=1e-5)


def test_the_published_model_has_94_million_weights():
    with torch.device("meta"):
        original = elmo.Elmo(elmo.elmo_original())
    assert round(sum(p.numel() for p in original.parameters()) / 1e6, 1) == 93.6
