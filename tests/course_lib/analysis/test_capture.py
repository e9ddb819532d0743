"""capture(): sees what it is asked for and leaves nothing behind."""

import pytest
import torch

from course_lib.analysis import capture
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
