"""Objectives against their definitions, written out by hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import losses
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.corrupt import IGNORE
from course_lib.errors import CourseError
from course_lib.heads import LM, MLM, Choice, Classifier, Pretraining, Span, Tagger
from course_lib.stack import Stack

V, B, T = 23, 3, 7


def stack(causal: bool = False) -> Stack:
    torch.manual_seed(0)
    config = StackConfig(
        EmbedConfig(V, segments=0 if causal else 2), width=8, layers=2, heads=2, hidden=16,
        position=Learned(T), causal=causal, dropout=0.0, attention_dropout=0.0, init_std=0.5,
    )  # fmt: skip
    return Stack(config)


def ids() -> Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(1))


RIGHT = torch.arange(T) < torch.tensor([[7], [4], [2]])
LEFT = RIGHT.flip(1)


def by_hand(logits: Tensor, x: Tensor, keep: Tensor) -> Tensor:
    """-log p of every real token that follows a real one, averaged."""
    total, count = torch.zeros(()), 0
    for b in range(B):
        for t in range(T - 1):
            if keep[b, t] and keep[b, t + 1]:
                total = total - logits[b, t].log_softmax(-1)[x[b, t + 1]]
                count += 1
    return total / count


@pytest.mark.parametrize("keep", [RIGHT, LEFT, torch.ones_like(RIGHT)], ids=["right", "left", "none"])
def test_clm_is_the_mean_over_real_next_tokens(keep: Tensor) -> None:
    model = LM(stack(causal=True))
    x = ids()
    expected = by_hand(model(x, keep=keep), x, keep)
    torch.testing.assert_close(losses.clm(model, {"ids": x, "keep": keep}), expected)
    if keep.all():
        torch.testing.assert_close(losses.clm(model, {"ids": x}), expected)


def test_clm_does_not_depend_on_what_stands_in_the_padding() -> None:
    model = LM(stack(causal=True))
    x = ids()
    for keep in (RIGHT, LEFT):
        other = x.where(keep, (x + 5) % V)
        a, b = (losses.clm(model, {"ids": i, "keep": keep}) for i in (x, other))
        torch.testing.assert_close(a, b)


def test_clm_passes_the_mask_only_where_it_is_needed() -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: Tensor, *, keep: Tensor | None = None, at: Tensor | None = None) -> Tensor:
            seen.append(keep)
            out = torch.zeros(*x.shape, V)
            return out if at is None else out[at]

    for keep in (RIGHT, LEFT):
        losses.clm(Spy(), {"ids": ids(), "keep": keep})
    assert seen[0] is None and seen[1] is LEFT


def test_clm_takes_labels_as_they_are() -> None:
    model = LM(stack(causal=True))
    x = ids()
    labels = torch.randint(0, V, (B, T))
    expected = F.cross_entropy(model(x).flatten(0, 1), labels.flatten())
    torch.testing.assert_close(losses.clm(model, {"ids": x, "labels": labels}), expected)


@pytest.mark.parametrize("named", [True, False])
def test_mlm_counts_the_chosen_positions_only(named: bool) -> None:
    model = MLM(stack())
    x, at = ids(), torch.rand(B, T, generator=torch.Generator().manual_seed(2)) < 0.4
    at &= RIGHT
    labels = x.masked_fill(~at, IGNORE)
    masked = x.masked_fill(at, 4)
    segments = (torch.arange(T) > 2).long().expand(B, T)
    expected = F.cross_entropy(model(masked, keep=RIGHT, segments=segments)[at], x[at])
    batch = {"ids": masked, "keep": RIGHT, "segments": segments, "labels": labels} | ({"at": at} if named else {})
    torch.testing.assert_close(losses.mlm(model, batch), expected)


@pytest.mark.parametrize("head", [MLM, Pretraining])
def test_left_to_right_is_the_loss_of_a_decoder_with_the_same_weights(head: Any) -> None:
    model, decoder = head(stack()), LM(stack())
    decoder.stack.config = replace(decoder.stack.config, causal=True)
    x = ids()
    for keep in (RIGHT, LEFT):
        expected = by_hand(decoder(x, keep=keep), x, keep)
        torch.testing.assert_close(losses.left_to_right(model, {"ids": x, "keep": keep}), expected)
        assert not torch.isclose(expected, by_hand(LM(model.stack)(x, keep=keep), x, keep))


def test_mlm_nsp_is_the_sum_and_leaves_out_rows_that_are_no_pair() -> None:
    model = Pretraining(stack())
    x = ids()
    labels = x.masked_fill(torch.arange(T) != 2, IGNORE)
    follows = torch.tensor([1, 0, IGNORE])
    words, pairs = model(x, keep=RIGHT)
    expected = F.cross_entropy(words[:, 2], x[:, 2]) + F.cross_entropy(pairs[:2], follows[:2])
    batch = {"ids": x, "keep": RIGHT, "labels": labels, "next": follows}
    torch.testing.assert_close(losses.mlm_nsp(model, batch), expected)


def test_one_label_a_text_and_scores() -> None:
    model = Classifier(stack(), 3)
    x, y = ids(), torch.tensor([2, 0, 1])
    torch.testing.assert_close(losses.classification(model, {"ids": x, "labels": y}), F.cross_entropy(model(x), y))
    one = Classifier(stack(), 1)
    scores = torch.tensor([0.5, 2.0, -1.0])
    expected = ((one(x)[:, 0] - scores) ** 2).mean()
    torch.testing.assert_close(losses.classification(one, {"ids": x, "labels": scores}), expected)


def test_smoothing_moves_its_share_to_all_classes() -> None:
    logits, y = torch.randn(5, 4), torch.tensor([0, 3, IGNORE, 1, 2])
    real = y != IGNORE
    log_p = logits[real].log_softmax(-1)
    right = log_p.gather(1, y[real, None]).squeeze(1)
    expected = -(0.9 * right + 0.1 * log_p.mean(1)).mean()
    torch.testing.assert_close(losses.cross_entropy(logits, y, 0.1), expected)


def test_one_label_a_token() -> None:
    model = Tagger(stack(), 5)
    x = ids()
    y = (x % 5).masked_fill(~RIGHT, IGNORE)
    expected = F.cross_entropy(model(x, keep=RIGHT)[RIGHT], y[RIGHT])
    torch.testing.assert_close(losses.tagging(model, {"ids": x, "keep": RIGHT, "labels": y}), expected)


def test_span_is_the_mean_of_start_and_end() -> None:
    model = Span(stack())
    x, y = ids(), torch.tensor([[1, 3], [0, 0], [IGNORE, IGNORE]])
    start, end = model(x)
    expected = (F.cross_entropy(start[:2], y[:2, 0]) + F.cross_entropy(end[:2], y[:2, 1])) / 2
    torch.testing.assert_close(losses.span(model, {"ids": x, "labels": y}), expected)


def test_choice_compares_the_candidates_of_a_row() -> None:
    model = Choice(stack())
    x = torch.randint(0, V, (B, 4, T))
    y = torch.tensor([3, 0, 1])
    scores = torch.stack([Classifier.forward(model, x[b])[:, 0] for b in range(B)])
    torch.testing.assert_close(losses.choice(model, {"ids": x, "labels": y}), F.cross_entropy(scores, y))


def test_a_batch_without_targets_gives_zero_and_no_nan() -> None:
    model = MLM(stack())
    value = losses.mlm(model, {"ids": ids(), "labels": torch.full((B, T), IGNORE)})
    assert value.item() == 0
    value.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_mlm_without_labels_is_refused() -> None:
    with pytest.raises(CourseError, match="mask_tokens"):
        losses.mlm(MLM(stack()), {"ids": ids()})


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_every_loss_smooths_its_labels_alike(smoothing: float) -> None:
    """(1 - e) -log p(right) + e mean of -log p, over real targets only; written out for each shape of labels."""

    def by_hand(logits: Tensor, labels: Tensor) -> Tensor:
        real = labels != IGNORE
        log_p = logits[real].log_softmax(-1)
        right = log_p.gather(1, labels[real, None])[:, 0]
        return -((1 - smoothing) * right + smoothing * log_p.mean(1)).mean()

    x = ids()
    spans = torch.tensor([[1, 3], [0, 0], [IGNORE, IGNORE]])
    model = Span(stack())
    start, end = model(x)
    expected = (by_hand(start, spans[:, 0]) + by_hand(end, spans[:, 1])) / 2
    torch.testing.assert_close(losses.span(model, {"ids": x, "labels": spans}, smoothing=smoothing), expected)

    both = Pretraining(stack())
    labels = x.masked_fill(torch.arange(T) % 3 != 2, IGNORE)
    follows = torch.tensor([1, 0, IGNORE])
    words, pairs = both(x)
    expected = by_hand(words.flatten(0, 1), labels.flatten()) + F.cross_entropy(pairs[:2], follows[:2])
    batch = {"ids": x, "labels": labels, "next": follows}
    torch.testing.assert_close(losses.mlm_nsp(both, batch, smoothing=smoothing), expected)

    decoder = LM(stack(causal=True))
    expected = by_hand(decoder(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    torch.testing.assert_close(losses.clm(decoder, {"ids": x}, smoothing=smoothing), expected)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_a_share_outside_0_to_1_is_refused(smoothing: float) -> None:
    with pytest.raises(CourseError, match="smoothing"):
        losses.cross_entropy(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), smoothing)
