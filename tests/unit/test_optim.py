"""Parameter groups and schedules."""

import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.optim import adamw, constant, cosine, linear, parameter_groups, stable


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
        "table.weight", "dense.bias", "norm.weight", "norm.bias", "out.bias",
    }  # fmt: skip


def test_frozen_parameters_are_left_out() -> None:
    net = Net()
    net.dense.requires_grad_(False)
    assert sum(len(group["params"]) for group in parameter_groups(net)) == 4
    net.requires_grad_(False)
    with pytest.raises(CourseError, match="no trainable parameter"):
        parameter_groups(net)


def test_adamw_is_pytorchs() -> None:
    """The groups and the fused form change nothing but speed."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 3), nn.Linear(3, 3)
    theirs.load_state_dict(ours.state_dict())
    a = adamw(ours, 0.1, weight_decay=0.2)
    b = torch.optim.AdamW(
        [{"params": [theirs.weight], "weight_decay": 0.2}, {"params": [theirs.bias], "weight_decay": 0.0}], lr=0.1
    )
    assert a.defaults["fused"]
    for _ in range(3):
        for net, optimizer in ((ours, a), (theirs, b)):
            net(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


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


def test_final_share_and_the_shape_of_stable() -> None:
    assert cosine(10, final=0.1)(10) == pytest.approx(0.1)
    assert linear(10, final=0.25)(5) == pytest.approx(0.625)
    shape = [stable(10, warmup=2, decay=0.4)(s) for s in range(11)]
    assert shape == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    longer = stable(100, warmup=2, decay=0.4)
    assert [longer(s) for s in range(7)] == shape[:7], "before the decay, the length must not matter"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: linear(0), "at least one step"),
        (lambda: cosine(5, warmup=6), "warmup is 6"),
        (lambda: constant(-1), "warmup is -1"),
        (lambda: adamw(Net(), lr=0), "above 0"),
    ],
)
def test_bad_arguments(make: object, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        make()  # type: ignore[operator]
