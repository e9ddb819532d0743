"""record(): sees what it is asked for and leaves nothing behind."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.heads import LM, Classifier
from course_lib.models.gpt import gpt
from course_lib.stack import Stack
from course_lib.trace import record


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LM(Stack(gpt(20, width=16, layers=3, heads=2, length=8, dropout=0.0))).eval()


def hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


IDS = torch.tensor([[1, 2, 3, 4]])


def test_probabilities_of_every_layer(model):
    with record(model, "blocks.*.attn.probs") as seen:
        model(IDS)
    assert list(seen) == [f"blocks.{n}.attn.probs" for n in range(3)]
    for probs in seen.values():
        assert probs.shape == (1, 2, 4, 4) and not probs.requires_grad
        torch.testing.assert_close(probs.sum(-1), torch.ones(1, 2, 4))
        assert probs.triu(1).abs().max() == 0


def test_a_pattern_has_as_many_parts_as_the_names(model):
    with record(model, "blocks.*", "norm") as seen:
        model(IDS)
    assert set(seen) == {"blocks.0", "blocks.1", "blocks.2", "norm"}
    torch.testing.assert_close(model.stack.norm(seen["blocks.2"]), seen["norm"])


def test_names_work_with_and_without_a_head(model):
    with record(model.stack, "blocks.1.attn.probs") as inner, record(model, "blocks.1.attn.probs") as outer:
        model(IDS)
    assert torch.equal(inner["blocks.1.attn.probs"], outer["blocks.1.attn.probs"])


def test_a_heads_own_parts(model):
    head = Classifier(model.stack, 3)
    with record(head, "pooler", "out") as seen:
        logits = head(IDS)
    assert torch.equal(seen["out"], logits)
    assert seen["pooler"].shape == (1, 16)


def test_the_latest_call_is_kept(model):
    with record(model, "blocks.0") as seen:
        model(IDS)
        model(IDS[:, :2])
    assert seen["blocks.0"].shape[1] == 2


def test_watching_changes_nothing(model):
    with torch.no_grad():
        before = model(IDS)
        with record(model, "blocks.*.attn.probs", "blocks.*.attn.scores"):
            torch.testing.assert_close(model(IDS), before)
        assert torch.equal(model(IDS), before)


def test_hooks_are_gone_after_the_block(model):
    with record(model, "blocks.*.attn.probs"):
        assert hooks(model) == 3
    assert hooks(model) == 0


def test_hooks_are_gone_after_an_error_inside(model):
    with pytest.raises(RuntimeError, match="mine"), record(model, "blocks.*.attn.probs"):
        raise RuntimeError("mine")
    assert hooks(model) == 0


@pytest.mark.parametrize("patterns", [("blocks.9",), ("blocks.*", "nothing"), ("blocks.*.attn.weights",)])
def test_an_unknown_name_is_said_and_leaves_no_hook(model, patterns):
    with pytest.raises(CourseError, match="No part of the model is called"), record(model, *patterns):
        pass
    assert hooks(model) == 0
