"""Masks: who may look at whom, by the definition and by what a model then knows."""

import pytest
import torch

from course_lib import masks
from course_lib.config import EmbedConfig, Rope, StackConfig
from course_lib.stack import Stack


@pytest.mark.parametrize(("tq", "tk"), [(1, 1), (4, 4), (1, 5), (3, 7)])
def test_causal_is_by_definition(tq, tk):
    found = masks.causal(tq, tk)
    assert found.dtype == torch.bool and found.shape == (1, 1, tq, tk)
    for i in range(tq):
        for j in range(tk):
            assert bool(found[0, 0, i, j]) == (j <= i + tk - tq)


def test_padding_hides_keys_from_everyone():
    keep = torch.tensor([[1, 1, 0], [0, 1, 1]])
    found = masks.padding(keep)
    assert found.shape == (2, 1, 1, 3) and found.dtype == torch.bool
    assert found[:, 0, 0].tolist() == [[True, True, False], [False, True, True]]


def test_prefix_is_full_inside_and_causal_after():
    found = masks.prefix(torch.tensor([0, 2, 4]), 4)[:, 0]
    for row, length in enumerate([0, 2, 4]):
        for i in range(4):
            for j in range(4):
                assert bool(found[row, i, j]) == (j <= i or j < length)


def test_documents_do_not_see_each_other():
    ids = torch.tensor([[0, 0, 1, 1, 1], [3, 3, 3, 3, 3]])
    found = masks.documents(ids)[:, 0]
    assert found[1].all()
    for i in range(5):
        for j in range(5):
            assert bool(found[0, i, j]) == (int(ids[0, i]) == int(ids[0, j]))


@pytest.fixture
def model():
    torch.manual_seed(0)
    # Rope sees only distances, so a document means the same wherever it stands in a packed row.
    config = StackConfig(EmbedConfig(20), width=16, layers=2, heads=2, hidden=32, position=Rope(), causal=True)
    return Stack(config).eval().requires_grad_(False)


def test_packed_documents_read_as_if_alone(model):
    one, two = torch.randint(20, (1, 5)), torch.randint(20, (1, 3))
    packed = torch.cat([one, two], dim=1)
    numbers = torch.tensor([[0] * 5 + [1] * 3])
    together = model(packed, mask=masks.causal(8) & masks.documents(numbers))
    torch.testing.assert_close(together[:, :5], model(one))
    torch.testing.assert_close(together[:, 5:], model(two))
    leaking = model(packed)[:, 5:]
    assert (leaking - model(two)).abs().max() > 1e-3


def test_a_prefix_sees_itself_and_nothing_later(model):
    ids = torch.randint(20, (1, 6))
    mask = masks.prefix(torch.tensor([4]), 6)
    base = model(ids, mask=mask)
    inside, after = ids.clone(), ids.clone()
    inside[0, 3] = (inside[0, 3] + 1) % 20
    after[0, 5] = (after[0, 5] + 1) % 20
    assert (model(inside, mask=mask)[0, 0] - base[0, 0]).abs().max() > 1e-4
    torch.testing.assert_close(model(after, mask=mask)[0, :5], base[0, :5])


def test_a_mask_may_differ_between_heads(model):
    ids = torch.randint(20, (1, 4))
    per_head = torch.cat([masks.causal(4), torch.eye(4, dtype=torch.bool)[None, None]], dim=1)
    assert per_head.shape == (1, 2, 4, 4)
    assert (model(ids, mask=per_head) - model(ids)).abs().max() > 1e-4
