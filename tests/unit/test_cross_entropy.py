"""The memory-saving cross-entropy equals PyTorch's: values, gradients, ignored labels, both precisions."""

import pytest
import torch
import torch.nn.functional as F

from course_lib import cross_entropy
from course_lib.cross_entropy import mean_cross_entropy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("elements", [1, 50, 10**6])
@pytest.mark.parametrize("ignored", [0, 5])
def test_equals_pytorch(dtype, elements, ignored, monkeypatch):
    monkeypatch.setattr(cross_entropy, "ELEMENTS", elements)  # one row, two rows, all rows at a time
    torch.manual_seed(0)
    logits = (4 * torch.randn(11, 23)).to(dtype)
    labels = torch.randint(23, (11,))
    labels[:ignored] = -100
    results = []
    for function in (mean_cross_entropy, lambda x, y: F.cross_entropy(x.float(), y)):
        leaf = logits.clone().requires_grad_()
        loss = function(leaf, labels)
        (3 * loss).backward()
        results.append((loss.detach(), leaf.grad))
    (ours, our_grad), (theirs, their_grad) = results
    assert ours.dtype == torch.float32 and our_grad.dtype == dtype
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_grad, their_grad)


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    loss = mean_cross_entropy(logits, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(1e4)
    assert logits.grad.tolist() == [[1.0, -1.0, 0.0]]


@pytest.mark.parametrize("rows", [0, 3])
def test_no_target_gives_zero_not_nan(rows):
    logits = torch.randn(rows, 5, requires_grad=True)
    loss = mean_cross_entropy(logits, torch.full((rows,), -100))
    loss.backward()
    assert loss.item() == 0 and logits.grad.abs().sum() == 0


def test_the_logits_are_left_as_they_were():
    logits, labels = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 1, 2, 3])
    before = logits.detach().clone()
    loss = mean_cross_entropy(logits, labels)
    loss.backward(retain_graph=True)
    first = logits.grad.clone()
    loss.backward()
    assert torch.equal(logits, before)
    torch.testing.assert_close(logits.grad, 2 * first)


def test_without_gradients_it_is_a_number():
    with torch.no_grad():
        assert not mean_cross_entropy(torch.randn(4, 5), torch.tensor([0, 1, 2, 3])).requires_grad
