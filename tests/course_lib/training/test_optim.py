"""Parameter groups and schedules."""

from typing import get_args

import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.objectives import SPAN_SAMPLERS
from course_lib.training.optim import (
    OPTIMIZERS,
    SCHEDULES,
    adamw,
    constant,
    cosine,
    linear,
    muon,
    parameter_groups,
    wsd,
)
from course_lib.training.settings import MaskUnit, OptimizerName, ScheduleName


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.dense = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 10)
        self.out.weight = self.table.weight


def test_only_matrices_decay_and_tied_weights_come_once() -> None:
    net = Net()
    decayed, rest = parameter_groups(net, 0.1)
    assert [id(p) for p in decayed["params"]] == [id(net.dense.weight)]
    assert decayed["weight_decay"] == 0.1 and rest["weight_decay"] == 0
    names = {id(p): n for n, p in net.named_parameters()}
    assert {names[id(p)] for p in rest["params"]} == {
        "table.weight",
        "dense.bias",
        "norm.weight",
        "norm.bias",
        "out.bias",
    }
    net.dense.requires_grad_(False)
    assert sum(len(group["params"]) for group in parameter_groups(net)) == 4, (
        "frozen ones are left out"
    )


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_they_move_as_pytorchs_do(name, shape) -> None:
    """The groups and the fused form change nothing but speed; Muon is for matrices, AdamW for the
    rest.
    """
    torch.manual_seed(0)
    ours, theirs = nn.Linear(*shape), nn.Linear(*shape)
    theirs.load_state_dict(ours.state_dict())
    betas = (0.9, 0.98)
    own = (muon if name == "muon" else adamw)(ours, 0.1, weight_decay=0.1, betas=betas)
    if name == "muon":
        matrices = torch.optim.Muon(
            [theirs.weight], lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        )
    else:
        assert own.defaults["fused"]
        matrices = torch.optim.AdamW([theirs.weight], lr=0.1, weight_decay=0.1, betas=betas)
    rest = torch.optim.AdamW([theirs.bias], lr=0.1, weight_decay=0.0, betas=betas)
    x = torch.randn(5, shape[0])
    for _ in range(3):
        for net, optimizers in ((ours, [own]), (theirs, [matrices, rest])):
            net(x).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_commands_offer_every_schedule_optimizer_and_mask_unit() -> None:
    assert set(get_args(ScheduleName)) == SCHEDULES.keys()
    assert set(get_args(OptimizerName)) == OPTIMIZERS.keys()
    assert set(get_args(MaskUnit)) == SPAN_SAMPLERS.keys()


def test_schedules_equal_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    dummy = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    steps, warmup = 20, 5
    pairs = [
        (linear(steps, warmup), transformers.get_linear_schedule_with_warmup(dummy, warmup, steps)),
        (cosine(steps, warmup), transformers.get_cosine_schedule_with_warmup(dummy, warmup, steps)),
        (constant(warmup), transformers.get_constant_schedule_with_warmup(dummy, warmup)),
    ]
    for ours, theirs in pairs:
        factor = theirs.lr_lambdas[0]
        for step in range(steps):
            # Theirs starts the warm-up at 0, ours one step further: no step is wasted.
            assert ours(step) == pytest.approx(factor(step + 1 if step < warmup else step))


def test_the_shape_of_wsd() -> None:
    shape = [wsd(10, warmup=2, decay=0.4)(s) for s in range(11)]
    assert shape == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    longer = wsd(100, warmup=2, decay=0.4)
    assert [longer(s) for s in range(7)] == shape[:7], (
        "before the decay, the length must not matter"
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: adamw(Net(), lr=0), "above 0"),
        (lambda: adamw(Net().requires_grad_(False)), "no trainable parameter"),
    ],
)
def test_bad_arguments(make: object, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        make()  # type: ignore[operator]
