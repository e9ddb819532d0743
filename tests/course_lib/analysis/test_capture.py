"""capture() and without_heads() do what they are asked to, and leave nothing behind."""

import pytest
import torch

from course_lib.analysis import capture, without_heads
from course_lib.errors import CourseError
from course_lib.families.gpt import gpt
from course_lib.model.heads import LM, Classifier
from course_lib.model.transformer import Transformer

IDS = torch.tensor([[1, 2, 3, 4]])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LM(Transformer(gpt(20, width=16, layers=3, heads=2, length=8, dropout=0.0))).eval()


def hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_probabilities_of_every_layer(model):
    with torch.no_grad():
        before = model(IDS)
    with capture(model, "blocks.*.attn.probs") as seen:
        assert hooks(model) == 3
        torch.testing.assert_close(model(IDS), before)  # watching changes nothing
        model(IDS[:, :2])
        assert seen["blocks.0.attn.probs"].shape == (1, 2, 2, 2)  # the latest call's
        model(IDS)
    assert hooks(model) == 0 and list(seen) == [f"blocks.{n}.attn.probs" for n in range(3)]
    for probs in seen.values():
        assert probs.shape == (1, 2, 4, 4) and not probs.requires_grad
        torch.testing.assert_close(probs.sum(-1), torch.ones(1, 2, 4))
        assert probs.triu(1).abs().max() == 0


def test_a_pattern_has_as_many_parts_as_the_names(model):
    with capture(model, "blocks.*", "norm", detach=False) as seen:
        model(IDS)
    assert set(seen) == {"blocks.0", "blocks.1", "blocks.2", "norm"}
    torch.testing.assert_close(model.stack.norm(seen["blocks.2"]), seen["norm"])
    assert seen["norm"].requires_grad


def test_names_work_with_and_without_a_head(model):
    with (
        capture(model.stack, "blocks.1.attn.probs") as inner,
        capture(model, "blocks.1.attn.probs") as outer,
    ):
        model(IDS)
    assert torch.equal(inner["blocks.1.attn.probs"], outer["blocks.1.attn.probs"])
    head = Classifier(model.stack, 3)
    with capture(head, "pooler", "out") as seen:
        logits = head(IDS)
    assert torch.equal(seen["out"], logits) and seen["pooler"].shape == (1, 16)


def test_errors_leave_no_hook(model):
    with pytest.raises(RuntimeError, match="mine"), capture(model, "blocks.*.attn.probs"):
        raise RuntimeError("mine")
    with (
        pytest.raises(CourseError, match="No part of the model is called"),
        capture(model, "blocks.*", "blocks.9"),
    ):
        pass
    assert hooks(model) == 0


def test_a_head_that_is_switched_off_adds_nothing(model):
    """Its columns of the output matrix do not count, and afterwards they do again."""
    attn = model.stack.blocks[1].attn
    with torch.no_grad():
        whole = model(IDS)
        with without_heads(model, [(1, 0), (2, 1)]):
            without = model(IDS)
        assert hooks(model) == 0
        torch.testing.assert_close(model(IDS), whole)
        attn.out.weight[:, : attn.dh] = 0
        model.stack.blocks[2].attn.out.weight[:, attn.dh :] = 0
        torch.testing.assert_close(model(IDS), without)
    assert not torch.allclose(without, whole)


def test_heads_come_back_after_an_error(model):
    with pytest.raises(ZeroDivisionError), without_heads(model, [(0, 0)]):
        _ = 1 / 0
    assert hooks(model) == 0


@pytest.mark.parametrize("head", [(3, 0), (0, 2), (0, -1)])
def test_a_head_that_is_not_there(model, head):
    with (
        pytest.raises(CourseError, match="no head"),
        without_heads(model, [(0, 0), head]),
    ):
        pass
    assert hooks(model) == 0
