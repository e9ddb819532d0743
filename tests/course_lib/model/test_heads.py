"""Heads: shapes, positions asked for, pooling, candidates, and gradients that reach the whole
model.
"""

from typing import get_args

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.families.bert import bert
from course_lib.families.gpt import gpt
from course_lib.model import heads
from course_lib.model.config import Pool, StackConfig
from course_lib.model.transformer import Transformer

VOCAB = 30


def stack(causal=False) -> Transformer:
    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 2, "heads": 2, "length": 12, "dropout": 0.0}
    config: StackConfig = gpt(VOCAB, **sizes) if causal else bert(VOCAB, **sizes)
    return Transformer(config)


@pytest.fixture
def batch():
    ids = torch.randint(VOCAB, (3, 6), generator=torch.Generator().manual_seed(1))
    attention_mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    return {
        "ids": ids,
        "attention_mask": attention_mask,
        "segments": (torch.arange(6) > 2).long().expand(3, 6),
    }


@pytest.mark.parametrize(
    "head", [heads.LM(stack(causal=True)), heads.MLM(stack())], ids=["LM", "MLM"]
)
def test_at_gives_the_rows_of_the_full_logits(head, batch):
    at = torch.zeros(3, 6, dtype=torch.bool)
    at[0, 2] = at[0, 5] = at[2, 0] = True
    full = head(batch["ids"], attention_mask=batch["attention_mask"])
    assert full.shape == (3, 6, VOCAB)
    torch.testing.assert_close(
        head(batch["ids"], attention_mask=batch["attention_mask"], loss_mask=at), full[at]
    )
    assert head(batch["ids"], loss_mask=torch.zeros_like(at)).shape == (0, VOCAB)


def test_pretraining_is_both_objectives_on_one_stack(batch):
    both = heads.Pretraining(stack())
    words, follows = both(**batch)
    assert words.shape == (3, 6, VOCAB) and follows.shape == (3, 2)
    mlm = heads.MLM(both.stack)
    mlm.head.load_state_dict(both.head.state_dict())
    torch.testing.assert_close(mlm(**batch), words)
    torch.testing.assert_close(both.next(both.pooler(both.stack(**batch))), follows)
    at = batch["attention_mask"]
    torch.testing.assert_close(both(**batch, loss_mask=at)[0], words[at])


@pytest.mark.parametrize("how", get_args(Pool))
def test_classifier_pools_as_it_says(how, batch):
    model = heads.Classifier(stack(), 4, pool=how).eval()
    h = model.stack(**batch)
    lengths = [6, 4, 1]
    expected = {
        "first": torch.tanh(model.pooler.dense(h[:, 0])) if how == "first" else None,
        "last": torch.stack([h[n, length - 1] for n, length in enumerate(lengths)]),
        "mean": torch.stack([h[n, :length].mean(0) for n, length in enumerate(lengths)]),
        "max": torch.stack([h[n, :length].amax(0) for n, length in enumerate(lengths)]),
    }[how]
    torch.testing.assert_close(model(**batch), model.out(expected))


def test_pooling_with_padding_on_the_left():
    h, attention_mask = (
        torch.randn(2, 4, 3),
        torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]], dtype=torch.bool),
    )
    torch.testing.assert_close(heads.pool(h, attention_mask, "last"), h[:, 3])
    torch.testing.assert_close(
        heads.pool(h, attention_mask, "mean"), torch.stack([h[0, 2:].mean(0), h[1].mean(0)])
    )
    torch.testing.assert_close(heads.pool(h, None, "last"), h[:, -1])
    assert torch.equal(heads.pool(h, attention_mask, "first"), h[:, 0])
    assert torch.equal(
        heads.pool(h, attention_mask, "max"), torch.stack([h[0, 2:].amax(0), h[1].amax(0)])
    )
    assert heads.pool(h, torch.zeros(2, 4), "mean").isfinite().all()
    with pytest.raises(CourseError, match="'median'; there are first, last, mean and max"):
        heads.pool(h, None, "median")


def test_choice_reads_each_candidate_alone(batch):
    model = heads.MultipleChoice(stack()).eval()
    many = {name: torch.stack([value, value.flip(0)], dim=1) for name, value in batch.items()}
    scores = model(**many)
    assert scores.shape == (3, 2)
    alone = heads.Classifier.forward(model, **batch)[:, 0]
    torch.testing.assert_close(scores[:, 0], alone)
    torch.testing.assert_close(scores[:, 1], alone.flip(0))


HEADS = {
    "Pooled": lambda: heads.Pooled(stack()),
    "MLM": lambda: heads.MLM(stack()),
    "Pretraining": lambda: heads.Pretraining(stack()),
    "Classifier": lambda: heads.Classifier(stack(), 3),
    "Tagger": lambda: heads.TokenClassifier(stack(), 3),
    "Span": lambda: heads.QuestionAnswering(stack()),
}


@pytest.mark.parametrize("name", HEADS)
def test_every_weight_learns(name, batch):
    model = HEADS[name]()
    outputs = model(**batch)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    rng = torch.Generator().manual_seed(0)
    sum((out * torch.randn(out.shape, generator=rng)).sum() for out in outputs).backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []
