"""Products with few rows: the numbers of F.linear, wherever the other way round is taken and wherever it is not."""

import pytest
import torch
import torch.nn.functional as F

from course_lib import few_rows
from course_lib.few_rows import FewRows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 5), (1, 1, 5), (2, 1, 5), (9, 5), (4, 4, 5), (32, 5), (33, 5), (5,)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_equals_linear(dtype, shape, with_bias):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape).to(dtype), torch.randn(7, 5).to(dtype), torch.randn(7).to(dtype)
    bias = bias if with_bias else None
    expected = F.linear(x, weight, bias)
    tolerance = {"atol": 0.1, "rtol": 0.02} if dtype == torch.bfloat16 else {}
    with torch.no_grad(), FewRows():
        found = F.linear(x, weight, bias)
        layer = torch.nn.Linear(5, 7, dtype=dtype)
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(7) if bias is None else bias)
        torch.testing.assert_close(layer(x), expected, **tolerance)
    assert found.shape == expected.shape and found.is_contiguous() and found.dtype == dtype
    torch.testing.assert_close(found, expected, **tolerance)


def test_only_inside_the_block_and_only_for_few_rows(monkeypatch):
    taken = []
    monkeypatch.setattr(torch, "addmm", lambda bias, w, x: taken.append(x.shape[1]) or bias + w @ x)
    weight, bias = torch.randn(7, 5), torch.randn(7)
    with torch.no_grad():
        F.linear(torch.randn(16, 5), weight, bias)
        assert taken == []
        with FewRows():
            for n in (1, 7, 8, 32, 33):
                F.linear(torch.randn(n, 5), weight, bias)
    assert taken == [8, 32]
    F.linear(torch.randn(16, 5), weight, bias)
    assert taken == [8, 32]


def test_gradients_go_the_usual_way():
    weight = torch.randn(7, 5, requires_grad=True)
    with FewRows():
        F.linear(torch.randn(16, 5), weight).sum().backward()
    assert weight.grad is not None
    assert few_rows.linear(torch.randn(16, 5), weight).requires_grad
