"""Objectives against their definitions, written out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.model import kernels
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.heads import (
    LM,
    MLM,
    Classifier,
    MultipleChoice,
    Pretraining,
    QuestionAnswering,
    TokenClassifier,
)
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.objectives.losses import cross_entropy
from course_lib.vocab import IGNORE

V, B, T = 23, 3, 7


def stack(causal: bool = False) -> Transformer:
    torch.manual_seed(0)
    config = StackConfig(
        EmbedConfig(V, segments=0 if causal else 2),
        width=8,
        layers=2,
        heads=2,
        hidden=16,
        position=Learned(T),
        causal=causal,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.5,
    )
    return Transformer(config)


def ids() -> Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(1))


RIGHT = torch.arange(T) < torch.tensor([[7], [4], [2]])
LEFT = RIGHT.flip(1)


def by_hand(logits: Tensor, x: Tensor, attention_mask: Tensor) -> Tensor:
    """-log p of every real token that follows a real one, averaged."""
    total, count = torch.zeros(()), 0
    for b in range(B):
        for t in range(T - 1):
            if attention_mask[b, t] and attention_mask[b, t + 1]:
                total = total - logits[b, t].log_softmax(-1)[x[b, t + 1]]
                count += 1
    return total / count


@pytest.mark.parametrize(
    "attention_mask", [RIGHT, LEFT, torch.ones_like(RIGHT)], ids=["right", "left", "none"]
)
def test_clm_is_the_mean_over_real_next_tokens(attention_mask: Tensor) -> None:
    model, x = LM(stack(causal=True)), ids()
    expected = by_hand(model(x, attention_mask=attention_mask), x, attention_mask)
    found = losses.clm(model, {"ids": x, "attention_mask": attention_mask})
    torch.testing.assert_close(found, expected)
    if attention_mask.all():
        torch.testing.assert_close(losses.clm(model, {"ids": x}), expected)
    other = x.where(attention_mask, (x + 5) % V)  # what stands in the padding does not count
    torch.testing.assert_close(
        losses.clm(model, {"ids": other, "attention_mask": attention_mask}), found
    )


@pytest.mark.parametrize("named", [True, False])
def test_mlm_counts_the_chosen_positions_only(named: bool) -> None:
    model, x = MLM(stack()), ids()
    at = (torch.rand(B, T, generator=torch.Generator().manual_seed(2)) < 0.4) & RIGHT
    masked = x.masked_fill(at, 4)
    segments = (torch.arange(T) > 2).long().expand(B, T)
    expected = F.cross_entropy(model(masked, attention_mask=RIGHT, segments=segments)[at], x[at])
    batch = {
        "ids": masked,
        "attention_mask": RIGHT,
        "segments": segments,
        "labels": x.masked_fill(~at, IGNORE),
    }
    torch.testing.assert_close(
        losses.mlm(model, batch | ({"loss_mask": at} if named else {})), expected
    )


def test_mlm_nsp_is_the_sum_and_leaves_out_rows_that_are_no_pair() -> None:
    model, x = Pretraining(stack()), ids()
    labels = x.masked_fill(torch.arange(T) != 2, IGNORE)
    follows = torch.tensor([1, 0, IGNORE])
    words, pairs = model(x, attention_mask=RIGHT)
    expected = F.cross_entropy(words[:, 2], x[:, 2]) + F.cross_entropy(pairs[:2], follows[:2])
    batch = {"ids": x, "attention_mask": RIGHT, "labels": labels, "next": follows}
    torch.testing.assert_close(losses.mlm_nsp(model, batch), expected)


def test_losses_of_the_tasks() -> None:
    x, y = ids(), torch.tensor([2, 0, 1])
    model = Classifier(stack(), 3)
    torch.testing.assert_close(
        losses.classification(model, {"ids": x, "labels": y}), F.cross_entropy(model(x), y)
    )
    model, scores = Classifier(stack(), 1), torch.tensor([0.5, 2.0, -1.0])
    expected = ((model(x)[:, 0] - scores) ** 2).mean()
    torch.testing.assert_close(losses.classification(model, {"ids": x, "labels": scores}), expected)
    tagger, tags = TokenClassifier(stack(), 5), (x % 5).masked_fill(~RIGHT, IGNORE)
    expected = F.cross_entropy(tagger(x, attention_mask=RIGHT)[RIGHT], tags[RIGHT])
    given = {"ids": x, "attention_mask": RIGHT, "labels": tags}
    torch.testing.assert_close(losses.classification(tagger, given), expected)
    reader, ends = QuestionAnswering(stack()), torch.tensor([[1, 3], [0, 0], [IGNORE, IGNORE]])
    start, end = reader(x)
    expected = (F.cross_entropy(start[:2], ends[:2, 0]) + F.cross_entropy(end[:2], ends[:2, 1])) / 2
    torch.testing.assert_close(losses.span(reader, {"ids": x, "labels": ends}), expected)
    chooser, x = MultipleChoice(stack()), torch.randint(0, V, (B, 4, T))
    scores = torch.stack([Classifier.forward(chooser, x[b])[:, 0] for b in range(B)])
    torch.testing.assert_close(
        losses.classification(chooser, {"ids": x, "labels": y}), F.cross_entropy(scores, y)
    )


def test_a_batch_without_targets_gives_zero_and_no_nan_and_one_without_labels_is_refused() -> None:
    model = MLM(stack())
    value = losses.mlm(model, {"ids": ids(), "labels": torch.full((B, T), IGNORE)})
    assert value.item() == 0
    value.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(CourseError, match="mask_tokens"):
        losses.mlm(model, {"ids": ids()})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("elements", [1, 50, 10**6])
@pytest.mark.parametrize("ignored", [0, 5])
def test_the_memory_saving_cross_entropy_equals_pytorchs(
    dtype, elements, ignored, monkeypatch
) -> None:
    monkeypatch.setattr(kernels, "ELEMENTS", elements)  # one row, two rows, all rows at a time
    torch.manual_seed(0)
    logits, labels = (4 * torch.randn(11, 23)).to(dtype), torch.randint(23, (11,))
    labels[:ignored] = IGNORE
    before, results = logits.clone(), []
    for function in (cross_entropy, lambda x, y: F.cross_entropy(x.float(), y)):
        leaf = logits.clone().requires_grad_()
        loss = function(leaf, labels)
        (3 * loss).backward()
        assert torch.equal(leaf, before), "the logits were written to"
        results.append((loss.detach(), leaf.grad))
    (ours, our_grad), (theirs, their_grad) = results
    assert ours.dtype == torch.float32 and our_grad.dtype == dtype
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_grad, their_grad)


def test_large_logits_do_not_overflow_and_no_rows_give_zero() -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(1e4) and logits.grad.tolist() == [[1.0, -1.0, 0.0]]
    empty = torch.randn(0, 5, requires_grad=True)
    cross_entropy(empty, torch.full((0,), IGNORE)).backward()
